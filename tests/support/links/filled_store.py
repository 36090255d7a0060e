"""A store with one row of every kind, and its contents."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from drkit.model.clock import now
from drkit.model.digests import RangeDigest
from drkit.model.groups import GroupCommit, GroupState
from drkit.model.link_state import STORE_RECOVERED, Direction, LinkControl, Problem, TopicState
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.topology import LinkId, TopicPartition
from drkit.state_topic.guard import RECOVERY
from drkit.store.api import WholeStore
from drkit.store.workers import LOST

FILLED = LinkId("primary", "dr")
TP = TopicPartition("flights", 3)


def fill_store(store: WholeStore, link: LinkId = FILLED) -> dict[str, Any]:
    """Fill a store with one row of every kind; returns its `contents_of`."""
    at = (now() - timedelta(seconds=1)).replace(microsecond=123_000)  # never later than a following backup
    store.raise_generation(link, 40)
    store.set_link_control(
        LinkControl(link, Direction.ACTIVE, 7, at, "why", "01RUN", frozenset({"held"})), expected_version=None
    )
    store.put_topic_states(link, [TopicState("flights", "flights", "a", "b", 2, 4, created_by_drkit=True, reason="ü")])
    store.put_notes(link, "fence primary", {"7": "rules", "8": "{}"})
    store.put_problem(link, Problem("halted", "flights", None, "why", "do", halted=True, since=at))
    store.put_group_positions(link, [GroupPosition("billing", *TP, 900, "meta\x00", at, "a")])
    later = at + timedelta(hours=5)
    store.put_group_states(
        link,
        [
            GroupState("billing", "flights", at, (GroupCommit(3, 900, "m"), GroupCommit(4, 1)), None, None, later, "a"),
            GroupState("billing", "flights", at + timedelta(seconds=3), (), at, at, later),
        ],
    )
    for epoch in (1, 2):
        store.append_mappings(link, [OffsetMapping(*TP, epoch, place, place + 5) for place in range(0, 5000, 2)])
    store.put_range_digests(link, [RangeDigest(*TP, 2, 0, 10, 0, 1, 10, 2**127 + 1, 2**32 - 1)])
    store.put_range_digests(link, [RangeDigest(*TP, 2, 5, 10, 0, 1, 5, 12, 3)])
    store.put_watermarks(link, [_mark(at)])
    entry = None
    for seq in range(3):
        entry = JournalEntry.chained(entry, run="01RUN", at=at, stage="fence", event="done", payload=f'{{"n": {seq}}}')
        store.append_entry(entry)
    store.put_run(RunSummary("01RUN", "failover", "closed", at, at, "detail"))
    return contents_of(store)


def _mark(at: datetime) -> Watermark:
    return Watermark(*TP, 2, 4998, 5003, 0, 4998, 0, at, None, 4)


def contents_of(store: WholeStore) -> dict[str, Any]:
    """Everything that copies include. Digests in the order of their generations; no problems that a restore adds."""
    found: dict[str, Any] = {"runs": store.runs(), "journals": {run: store.entries(run) for run in store.journals()}}
    for link in store.links():
        places = store.places(link)
        digests = [each for tp, epoch in places for each in store.range_digests(link, tp, epoch)]
        found[str(link)] = {
            "control": store.link_control(link),
            "topics": store.topic_states(link),
            "notes": {kind: store.notes(link, kind) for kind in store.note_kinds(link) if kind not in {RECOVERY, LOST}},
            "problems": [each for each in store.problems(link) if each.kind != STORE_RECOVERED],
            "positions": store.group_positions(link),
            "states": list(store.group_states(link)),
            "watermarks": store.watermarks(link),
            "places": places,
            "rows": {place: store.mappings(link, *place) for place in places},
            "digests": [
                (*each.tp, each.epoch, each.target_start, each.records, each.digest)
                for each in sorted(digests, key=lambda each: each.generation)
            ],
        }
    return found
