"""Stores what a watch of transactions has seen as notes of a link: a head, and a ring of chunks of commits.

The ring limits the size: the newest chunk replaces the oldest. Every chunk names its watch, so that an earlier
mirror's chunks aren't read as this one's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from drkit.model.clock import now
from drkit.model.groups import GroupTransaction, TransactionHistory
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore

_KIND = "transactions"
_SUSPECTED = "transactional_groups"
_HEAD = "head"
_CHUNK = 32
_CHUNKS = 128


class TransactionNotes:
    """Writes the history of one watch. Used by one thread.

    Args:
        store: where the history is kept.
        link: the link that it belongs to.
        watch: the watch's id.
    """

    def __init__(self, store: LinkStore, link: LinkId, watch: str) -> None:
        self._store = store
        self._link = link
        self._watch = watch
        self._chunks: dict[int, dict[int, GroupTransaction]] = defaultdict(dict)

    def save(
        self,
        news: Sequence[GroupTransaction],
        begun: Mapping[TopicPartition, int],
        read: Mapping[TopicPartition, int],
        dropped: Mapping[TopicPartition, int],
        undecided: Mapping[TopicPartition, int],
        elsewhere: Mapping[str, frozenset[str]],
        topic_ids: Mapping[str, str],
    ) -> None:
        """Store new and changed commits, and how far the logs were read. Durable on return.

        Raises:
            Unreachable: the store doesn't answer.
        """
        for each in news:
            self._chunks[each.number // _CHUNK][each.number] = each
        notes = {}
        for chunk in {each.number // _CHUNK for each in news}:
            commits = [_pack(each) for _, each in sorted(self._chunks[chunk].items())]
            notes[f"{chunk % _CHUNKS:03d}"] = _text({"watch": self._watch, "commits": commits})
        for chunk in sorted(self._chunks)[:-_CHUNKS]:
            del self._chunks[chunk]
        head = {
            "watch": self._watch,
            "seen_at": now().isoformat(),
            "begun": _offsets(begun),
            "read": _offsets(read),
            "dropped": _offsets(dropped),
            "undecided": _offsets(undecided),
            "elsewhere": {group: sorted(topics) for group, topics in sorted(elsewhere.items())},
            "topic_ids": dict(sorted(topic_ids.items())),
        }
        self._store.put_notes(self._link, _KIND, notes)  # before the head, which says how far they are complete
        self._store.put_notes(self._link, _KIND, {_HEAD: _text(head)})


def transaction_history(store: LinkStore, link: LinkId) -> TransactionHistory | None:
    """The history of the newest watch, as far as it holds for the topics that are mirrored now; None: no group was seen
    that commits in transactions."""
    notes = store.notes(link, _KIND)
    head = notes.pop(_HEAD, None)
    if head is None:
        return None
    kept = json.loads(head)
    commits = []
    for text in notes.values():
        chunk = json.loads(text)
        if chunk["watch"] == kept["watch"]:
            commits += [_unpack(each) for each in chunk["commits"]]
    history = TransactionHistory(
        kept["watch"],
        datetime.fromisoformat(kept["seen_at"]),
        _read_offsets(kept["begun"]),
        _read_offsets(kept["read"]),
        tuple(sorted(commits, key=lambda each: each.number)),
        _read_offsets(kept["dropped"]),
        _read_offsets(kept["undecided"]),
        {group: frozenset(topics) for group, topics in kept["elsewhere"].items()},
        kept["topic_ids"],
    )
    return history.of_topics(store.topic_states(link))


def suspect(store: LinkStore, link: LinkId, groups: Iterable[str]) -> None:
    """Note that these groups may commit in transactions, before the watch has found them."""
    store.put_notes(link, _SUSPECTED, dict.fromkeys(groups, "1"))


def suspected_groups(store: LinkStore, link: LinkId) -> frozenset[str]:
    """The groups that may commit in transactions, whether a watch knows them or not."""
    return frozenset(store.notes(link, _SUSPECTED))


def forget_suspected(store: LinkStore, link: LinkId, groups: Iterable[str]) -> None:
    """Note that these groups don't commit in transactions."""
    store.forget_notes(link, _SUSPECTED, sorted(groups))


def forget_transactions(store: LinkStore, link: LinkId) -> None:
    """Remove the history: offsets have changed their meaning."""
    store.forget_notes(link, _KIND, list(store.notes(link, _KIND)))


def _pack(commit: GroupTransaction) -> list[Any]:
    offsets = None
    if commit.offsets is not None:
        offsets = [[group, *tp, offset, metadata] for (group, tp), (offset, metadata) in commit.offsets.items()]
    outputs = None
    if commit.outputs is not None:
        outputs = [[*tp, first, last] for tp, (first, last) in commit.outputs.items()]
    return [commit.number, offsets, outputs]


def _unpack(row: list[Any]) -> GroupTransaction:
    number, offsets, outputs = row
    return GroupTransaction(
        number,
        None
        if offsets is None
        else {
            (group, TopicPartition(topic, partition)): (offset, metadata)
            for group, topic, partition, offset, metadata in offsets
        },
        None
        if outputs is None
        else {TopicPartition(topic, partition): (first, last) for topic, partition, first, last in outputs},
    )


def _offsets(offsets: Mapping[TopicPartition, int]) -> list[list[Any]]:
    return [[*tp, offset] for tp, offset in sorted(offsets.items())]


def _read_offsets(rows: list[list[Any]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}


def _text(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
