"""What dr loses while a run is under way, on topics that no group reads, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.failover.context.state_machine import Mode
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.runner import RunResult
from drkit.failover.run.service import run_failover
from drkit.lab import Lab
from drkit.model.clock import now, to_millis
from drkit.model.errors import Refused
from drkit.model.link_state import Direction
from drkit.model.topology import TopicPartition
from tests.support.links.estates import OwnLink, mirror, mirroring, texts, without_primary
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

RECORDS, PURGED = 20, 5
COMPACTED = {"cleanup_policy": "compact"}
SOON_COMPACTED = COMPACTED | {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.0001"}


@pytest.fixture
def unread(own: OwnLink, request: pytest.FixtureRequest) -> str:
    """A topic that no group reads, beside one that a group reads; both are mirrored. Its parameter: its settings."""
    settings = {"read": {}, "unread": getattr(request, "param", {})}
    topics = [own.create("primary", name, partitions=1, **each) for name, each in settings.items()]
    for topic in topics:
        own.produce("primary", topic, texts("x", RECORDS, partitions=(0,)))
    own.commit("primary", "g", topics[0], {0: 10})
    mirror(own)
    return topics[1]


@pytest.fixture
def older(own: OwnLink, unread: str, lab: Lab, tmp_path: Path) -> Path:
    """A copy of dr's disks, its controller's too, from before the last half of that topic was mirrored."""
    with stopped(lab, "dr-1") as disk:
        disk.copy_to(tmp_path / "older")
    own.produce("primary", unread, texts("y", RECORDS, partitions=(0,)))
    mirror(own)
    return tmp_path / "older"


def failover(own: OwnLink, mode: Mode, stage: str, meanwhile: Callable[[], None], *, primary: bool = True) -> RunResult:
    """A failover, and what happens just before one of its stages begins. `primary`: it answers."""
    happened = False

    def watch(name: str, _record: object, _text: str) -> None:
        nonlocal happened
        if name == stage and not happened:
            happened = True
            meanwhile()

    with own.estate(None if primary else without_primary(own)) as estate:
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


def test_what_retention_removes_on_the_target_first_stops_no_planned_move(own: OwnLink) -> None:
    """Both sides have the same one, but not the same segments."""
    topic = own.create("primary", "old", partitions=1, retention_ms="3600000")
    own.produce("primary", topic, texts("x", RECORDS, partitions=(0,)), to_millis(now()) - 7_200_000)
    own.commit("primary", "g", topic, {0: RECORDS})
    with mirroring(own):
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror to begin")
        done = failover(own, Mode.PLANNED, "translate", lambda: purged(own, topic))
    assert done.error is None, done.error
    assert done.evidence.rpo_records == 0


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


def regrown(own: OwnLink, topic: str, lab: Lab, older: Path, beyond: int = 5) -> None:
    """dr's disks go back to that copy, and somebody writes as many records there, and some beyond its former end: it
    gives out the same leader epochs again, and a batch ends where one did."""
    with stopped(lab, "dr-1") as disk:
        disk.set_back(older)
    for count in (RECORDS, beyond):
        own.produce("dr", topic, texts("client", count, partitions=(0,)))


@pytest.mark.parametrize("beyond", [0, 5], ids=["to its end", "beyond it"])
def test_a_planned_move_whose_target_was_set_back_and_has_grown_again_moves_nothing(
    own: OwnLink, unread: str, lab: Lab, older: Path, beyond: int
) -> None:
    with mirroring(own):
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror to begin")
        done = failover(own, Mode.PLANNED, "translate", lambda: regrown(own, unread, lab, older, beyond))
    assert isinstance(done.error, Refused), done.error
    assert f"dr has lost up to {2 * RECORDS} offsets since it was drained to: {unread}:0" in done.error.what
    assert done.machine.facts.committed is None


@pytest.mark.parametrize("stage", ["translate", "close"])
@pytest.mark.parametrize(
    ("unread", "primary", "lost"),
    [({}, False, 2 * RECORDS), (COMPACTED, True, RECORDS)],
    ids=["by its last batch", "by its last records"],
    indirect=["unread"],
)
def test_what_a_target_that_was_set_back_and_has_grown_again_lost_counts(
    own: OwnLink, unread: str, lab: Lab, older: Path, stage: str, primary: bool, lost: int
) -> None:
    """A compacted topic's last batch may be the cleaner's: records of both sides tell from where on they differ."""
    done = failover(own, Mode.UNPLANNED, stage, lambda: regrown(own, unread, lab, older), primary=primary)
    assert done.error is None, done.error
    loss = done.machine.facts.loss
    assert loss is not None
    assert (loss.records, loss.upper_bound) == (lost, True)
    assert {each.topic: each.records for each in loss.by_topic if each.records} == {unread: lost}


@pytest.mark.parametrize("unread", [COMPACTED], indirect=True)
def test_where_nothing_shows_that_a_compacted_log_is_the_one_it_was_the_loss_is_a_lower_bound(
    own: OwnLink, unread: str, lab: Lab, older: Path
) -> None:
    done = failover(own, Mode.UNPLANNED, "close", lambda: regrown(own, unread, lab, older), primary=False)
    assert done.error is None, done.error
    loss = done.machine.facts.loss
    assert loss is not None
    assert (loss.records, loss.lower_bound) == (0, True)
    assert f"nothing shows that dr still holds what it held of {unread}:0" in (loss.reason or "")


@pytest.mark.parametrize("unread", [SOON_COMPACTED], indirect=True)
def test_a_last_batch_that_the_cleaner_of_the_target_wrote_anew_is_no_loss(own: OwnLink, unread: str) -> None:
    """Nothing shows either that it is the same log: clients there have written its keys again."""

    def cleaned() -> None:
        own.produce("dr", unread, texts("client", RECORDS, partitions=(0,)))

        def removed() -> bool:
            own.produce("dr", unread, {0: ["rolls a segment"]})
            return min(own.records("dr", unread)[0]) >= RECORDS

        wait_until(removed, 90, "dr's cleaner")

    done = failover(own, Mode.UNPLANNED, "close", cleaned)
    assert done.error is None, done.error
    loss = done.machine.facts.loss
    assert loss is not None
    assert (loss.records, loss.lower_bound, loss.upper_bound) == (0, True, False)
    assert f"nothing shows that dr still holds what it held of {unread}:0" in (loss.reason or "")


@pytest.mark.parametrize("unread", [{"retention_bytes": "100000000"}], indirect=True)
def test_what_a_retention_by_size_may_have_removed_since_clients_write_there_is_not_exactly_nothing(
    own: OwnLink, unread: str
) -> None:
    done = failover(own, Mode.UNPLANNED, "close", lambda: purged(own, unread))
    assert done.error is None, done.error
    loss = done.machine.facts.loss
    assert loss is not None
    assert (loss.records, loss.lower_bound, loss.upper_bound) == (0, True, False)
    assert f"{unread}:0 (offsets 0 to {PURGED - 1} were removed): whether its retention by size" in (loss.reason or "")


def test_what_retention_takes_on_both_sides_is_no_loss(own: OwnLink, unread: str) -> None:
    def taken() -> None:
        with own.estate() as estate:
            for alias in ("primary", "dr"):
                estate.admin(alias).delete_records({TopicPartition(unread, 0): RECORDS})

    done = failover(own, Mode.UNPLANNED, "switch", taken)
    assert done.error is None, done.error
    loss = done.machine.facts.loss
    assert loss is not None
    assert (loss.records, loss.lower_bound, loss.upper_bound, loss.reason) == (0, False, False, None)
