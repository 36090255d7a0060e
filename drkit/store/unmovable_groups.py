"""The groups of a link that can't be moved, as the mirror last saw them: a note for each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime

from drkit.model.groups.unmovable_groups import UnmovableGroup
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore

_KIND = "unmovable-group"


def put_unmovable(store: LinkStore, link: LinkId, groups: Iterable[UnmovableGroup]) -> None:
    """Replace the note of each group."""
    notes = {
        each.group: json.dumps(
            {
                "type": each.type,
                "starts": [[*tp, start] for tp, start in sorted(each.starts.items())],
                "captured_at": each.captured_at.isoformat(),
            }
        )
        for each in groups
    }
    if notes:
        store.put_notes(link, _KIND, notes)


def unmovable_groups(store: LinkStore, link: LinkId) -> list[UnmovableGroup]:
    """All of them, by name."""
    found = []
    for group, text in store.notes(link, _KIND).items():
        body = json.loads(text)
        starts = {TopicPartition(topic, partition): start for topic, partition, start in body["starts"]}
        found.append(UnmovableGroup(group, body["type"], starts, datetime.fromisoformat(body["captured_at"])))
    return found


def forget_unmovable(store: LinkStore, link: LinkId, groups: Iterable[str]) -> None:
    """Remove the notes of groups that are gone from the source."""
    store.forget_notes(link, _KIND, list(groups))
