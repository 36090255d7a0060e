"""What dr loses while a run is under way, on topics that no group reads, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from drkit.failover.context.state_machine import Mode
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.runner import RunResult
from drkit.failover.run.service import run_failover
from drkit.model.errors import Refused
from drkit.model.link_state import Direction
from drkit.model.topology import TopicPartition
from tests.support.links.estates import OwnLink, mirror, mirroring, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

RECORDS, PURGED = 20, 5


@pytest.fixture
def unread(own: OwnLink) -> str:
    """A topic that no group reads, beside one that a group reads; both are mirrored."""
    topics = [own.create("primary", name, partitions=1) for name in ("read", "unread")]
    for topic in topics:
        own.produce("primary", topic, texts("x", RECORDS, partitions=(0,)))
    own.commit("primary", "g", topics[0], {0: 10})
    mirror(own)
    return topics[1]


def failover(own: OwnLink, mode: Mode, stage: str, meanwhile: Callable[[], None]) -> RunResult:
    """A failover, and what happens just before one of its stages begins."""
    happened = False

    def watch(name: str, _record: object, _text: str) -> None:
        nonlocal happened
        if name == stage and not happened:
            happened = True
            meanwhile()

    with own.estate() as estate:
        return run_failover(estate, make_plan(estate, PlanRequest("dr", mode=mode)), accept_unfenced=True, watch=watch)


def purged(own: OwnLink, topic: str) -> None:
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): PURGED})


def deleted(own: OwnLink, topic: str, *, made_anew: bool = False) -> None:
    with own.estate() as estate:
        dr = estate.admin("dr")
        dr.delete_topics([topic])
        wait_until(lambda: topic not in dr.topics([topic]), what="its deletion")
        if made_anew:
            dr.create_topic(topic, partitions=1, replication_factor=1)
            own.produce("dr", topic, texts("client", RECORDS + 5, partitions=(0,)))


LOSSES: dict[str, tuple[Callable[[OwnLink, str], None], int]] = {
    "purged": (purged, PURGED),
    "deleted": (deleted, RECORDS),
    "made anew": (partial(deleted, made_anew=True), RECORDS),
}


@pytest.mark.parametrize("how", LOSSES)
def test_a_planned_move_whose_target_lost_what_was_drained_moves_nothing(own: OwnLink, unread: str, how: str) -> None:
    loses, count = LOSSES[how]
    with mirroring(own):
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror to begin")
        done = failover(own, Mode.PLANNED, "translate", lambda: loses(own, unread))
    assert isinstance(done.error, Refused), done.error
    assert f"dr has lost {count} offsets since it was drained to: {unread}:0" in done.error.what
    assert done.machine.facts.committed is None
    control = own.store.link_control(own.link.id)
    assert control is not None
    assert control.direction is Direction.ACTIVE


@pytest.mark.parametrize("how", LOSSES)
def test_what_the_target_loses_once_groups_are_moved_counts_as_lost(own: OwnLink, unread: str, how: str) -> None:
    loses, count = LOSSES[how]
    done = failover(own, Mode.UNPLANNED, "switch", lambda: loses(own, unread))
    assert done.error is None, done.error
    loss = done.machine.facts.loss
    assert loss is not None
    assert (done.evidence.rpo_records, loss.upper_bound) == (count, True)
    assert {each.topic: each.records for each in loss.by_topic if each.records} == {unread: count}
    assert f"dr has lost {count} offsets since the run counted what is missing there: {unread}:0" in (loss.reason or "")
