"""Reverses a link's record: its rows, watermarks and topic states become those of the opposite direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from drkit.mapping.invert import invert_mappings, invert_watermark
from drkit.model.errors import DrkitError
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId
from drkit.store.api import Store


class FormerDirection(NamedTuple):
    """The opposite direction's state of a topic: its last epoch, and whether drkit created it."""

    epoch: int
    created_by_drkit: bool


class ReversedLink(NamedTuple):
    """A record of the opposite direction, not yet in the store."""

    states: list[TopicState]
    rows: list[OffsetMapping]
    watermarks: list[Watermark]


def reverse_record(
    store: Store, link: Link, before: Mapping[str, FormerDirection], reason: str, *, only_known: bool
) -> ReversedLink:
    """Make the record of the other direction, in new epochs, from this one's. Reads the store; changes nothing.

    Args:
        store: where the record is.
        link: the direction that recorded.
        before: the other direction's state, by topic name on its target.
        reason: stored with the topics' states.
        only_known: leave out topics that `before` lacks; otherwise they get the epoch after their current one.

    Raises:
        DrkitError: nothing is recorded, or the record can't be reversed.
    """
    epochs: dict[str, int] = {}
    states = []
    for state in store.topic_states(link.id).values():
        known = before.get(state.target_topic)
        if known is None and only_known:
            continue
        epochs[state.topic] = epoch = (known.epoch if known is not None else state.epoch) + 1
        states.append(
            TopicState(
                topic=state.target_topic,
                target_topic=state.topic,
                source_topic_id=state.target_topic_id,
                target_topic_id=state.source_topic_id,
                epoch=epoch,
                partitions=state.partitions,
                created_by_drkit=known.created_by_drkit if known is not None else False,
                reason=reason,
            )
        )
    rows: list[OffsetMapping] = []
    watermarks = []
    for tp, mark in store.watermarks(link.id).items():
        if tp.topic not in epochs:
            continue
        topic, epoch = link.target_topic(tp.topic), epochs[tp.topic]
        rows += invert_mappings(store.mappings(link.id, tp, mark.epoch), mark, topic=topic, epoch=epoch)
        watermarks.append(invert_watermark(mark, topic=topic, epoch=epoch))
    if not states:
        raise DrkitError(
            f"nothing is recorded of {link.id}",
            meaning="drkit can't make the other direction's record from it",
            remedy="Check the store, then resume",
        )
    return ReversedLink(states, rows, watermarks)


def save_reversed(store: Store, link: LinkId, turned: ReversedLink) -> None:
    """Store the record for a link that has none."""
    store.append_mappings(link, turned.rows)
    store.put_watermarks(link, turned.watermarks)
    store.put_topic_states(link, turned.states)
