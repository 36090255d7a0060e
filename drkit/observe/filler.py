"""Detects filler that clients can read: a broker killed soon after its removal may have lost the log start."""

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
    """A problem for each target partition of a failed-over link that shows filler again.

    Args:
        store: its notes.
        link: a link on which no mirror may run: a mirror would remove the filler by itself.
        starts: the log starts on the target, by its own topic names.
        ends: the log ends.
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
                f"drkit had written and removed below {each.end} are visible, and consumers that read from the start "
                "get them. A killed broker has lost its log start offset",
                f"Remove only them: drkit link trim '{link.id}'",
                halted=False,
                since=at,
            )
        )
    return found
