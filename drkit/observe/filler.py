"""Filler that is visible where clients read: a broker that was killed soon after may forget that it was removed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from drkit.model.link_state import FILLER_VISIBLE, Problem
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store
from drkit.store.link_notes import alignments


def filler_problems(
    store: Store,
    link: Link,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
    at: datetime,
) -> list[Problem]:
    """A problem for each partition of a link that was failed over whose target shows filler again.

    Args:
        store: its notes.
        link: one that no mirror may run on: a mirror removes it by itself.
        starts: where the target's logs begin, by its own topic names.
        ends: where they end.
        ids: of the target's topics.
        at: now.
    """
    found = []
    for tp, each in sorted(alignments(store, link.id).items()):
        place = each.target_tp
        visible = min(each.end, ends.get(place, 0)) - starts.get(place, each.end)
        if visible <= 0 or ids.get(each.target_topic) != each.target_topic_id:
            continue
        found.append(
            Problem(
                FILLER_VISIBLE,
                tp.topic,
                tp.partition,
                f"{place} on {link.id.target} begins at {starts[place]} again: up to {visible:,} empty records that "
                f"drkit had put and removed below {each.end} are visible, and consumers that read from the beginning "
                "get them. A broker that was killed has forgotten where the log begins",
                f"drkit link trim '{link.id}' removes them, and nothing else",
                halted=False,
                since=at,
            )
        )
    return found
