"""Failback from a dr whose broker loses the end of a log, or all of it: before the plan, or after the scrub."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from drkit.drill.environment.log_surgery import Disk, stopped
from drkit.failover.journal.journal import INTENT, OUTCOME
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.stages.audit_stage import AuditFailed
from drkit.lab import Lab
from drkit.model.errors import PartlyDone
from tests.support.killing.killed_process import killed
from tests.support.links.estates import OwnLink, mirror
from tests.support.recovery.failback_ports import reading_ports, salvaged
from tests.support.recovery.failbacks import fail_back, fail_over, resume

pytestmark = pytest.mark.lab

RECORDS, KEPT = 100, 80


def write(own: OwnLink, alias: str, topic: str, what: str, first: int, end: int) -> None:
    """Records at these offsets, in batches of 10."""
    for begin in range(first, end, 10):
        own.produce(alias, topic, {0: [f"{what}-{number}" for number in range(begin, begin + 10)]})


@pytest.fixture
def away(own: OwnLink, request: pytest.FixtureRequest) -> str:
    """Failed over with all of a topic mirrored, and nothing written on dr since. Its parameter: the cleanup.policy."""
    topic = own.create("primary", "t", partitions=1, cleanup_policy=getattr(request, "param", "delete"))
    for first, end in ((0, KEPT), (KEPT, RECORDS)):  # batches on dr, too, so that its log can be cut between them
        write(own, "primary", topic, "before", first, end)
        mirror(own)
    fail_over(own)
    return topic


def cut(disk: Disk, topic: str) -> None:
    assert disk.cut(topic, 0, KEPT) == KEPT


def emptied(disk: Disk, topic: str) -> None:
    """A partition's only replica is gone; its topic is the same one."""
    shutil.rmtree(disk.partition(topic, 0))


@pytest.mark.parametrize(
    ("loses", "held", "written"),
    [(cut, KEPT, 0), (cut, KEPT, 40), (emptied, 0, 0)],
    ids=["cut", "written on", "emptied"],
)
def test_what_dr_loses_after_the_scrub_before_it_was_brought_back_stops_the_run(
    own: OwnLink,
    away: str,
    lab: Lab,
    tmp_path: Path,
    loses: Callable[[Disk, str], None],
    held: int,
    written: int,
) -> None:
    """Its topic is the same one, and its log begins where it did."""
    own.produce("primary", away, {0: ["only-here"]})  # or nothing is scrubbed
    killed(own, "failback", tmp_path, ("scrub", OUTCOME, "after"))
    assert own.values("primary", away) == {0: []}
    with stopped(lab, "dr-1") as disk:
        loses(disk, away)
    if written:
        write(own, "dr", away, "after", held, RECORDS + written)
    stopped_run = resume(own, reading_ports(own, tmp_path))
    assert isinstance(stopped_run.error, AuditFailed), stopped_run.error
    assert f"{away} ({RECORDS - held} offsets): the end of the log" in stopped_run.error.what
    assert salvaged(tmp_path) == {"only-here"}
    done = resume(own, reading_ports(own, tmp_path), accept_salvage_only=True)
    assert done.error is None, done.error
    said = " ".join(stage.reason for stage in done.stages)
    assert f"gone from dr since the scrub and not brought back: {away} ({RECORDS - held} offsets)" in said
    assert own.values("primary", away) == own.values("dr", away)


@pytest.mark.parametrize("away", ["delete", "compact"], indirect=True)
def test_a_dr_that_was_set_back_as_a_whole_before_it_was_brought_back_stops_the_run(
    own: OwnLink, away: str, lab: Lab, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It has grown to its former end in the same leader epochs, so all that was brought back is what it holds."""
    compacted = request.node.callspec.params["away"] == "compact"
    with stopped(lab, "dr-1") as disk:
        disk.copy_to(tmp_path / "copy")
    write(own, "dr", away, "more", RECORDS, RECORDS + 40)
    own.produce("primary", away, {0: ["only-here"]})  # or nothing is scrubbed
    killed(own, "failback", tmp_path / "salvage", ("scrub", OUTCOME, "after"))
    with stopped(lab, "dr-1") as disk:
        disk.set_back(tmp_path / "copy")
    write(own, "dr", away, "after", RECORDS, RECORDS + 40)
    stopped_run = resume(own, reading_ports(own, tmp_path / "salvage"))
    error, count = stopped_run.error, RECORDS + 40
    assert isinstance(error, PartlyDone), error
    assert isinstance(error, AuditFailed) != compacted, "unknown isn't failed"
    unknown = f"nothing shows that dr held all of {away} (up to {count} offsets) until that was brought back"
    assert (unknown if compacted else f"{away} ({count} offsets): the end of the log was lost") in error.what
    assert "--accept-salvage-only" in error.remedy
    done = resume(own, reading_ports(own, tmp_path / "salvage"), accept_salvage_only=True)
    assert done.error is None, done.error
    told = unknown if compacted else f"not brought back: {away} ({count} offsets)"
    assert told in " ".join(stage.reason for stage in done.stages)


@pytest.mark.parametrize("loses", [cut, emptied])
def test_what_dr_lost_before_the_plan_is_told_by_it(
    own: OwnLink, away: str, lab: Lab, tmp_path: Path, loses: Callable[[Disk, str], None]
) -> None:
    """The old primary alone holds it: it isn't what a failback that deletes nothing could bring up to date."""
    with stopped(lab, "dr-1") as disk:
        loses(disk, away)
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary")
        assert not plan.level
        (obstacle,) = [each for each in plan.obstacles if "lacks records that only primary still holds" in each.what]
        assert f"{away} ends earlier than what was mirrored" in obstacle.what
    result = fail_back(own, reading_ports(own, tmp_path), accept_salvage_only=True)
    assert result.error is None, result.error
    assert own.values("primary", away) == own.values("dr", away)
    left = len(own.values("dr", away)[0])
    assert salvaged(tmp_path) == {f"before-{number}" for number in range(left, RECORDS)}


@pytest.mark.parametrize("written", [0, 10], ids=["quiet", "written on"])
def test_what_dr_holds_in_place_of_what_was_brought_back_is_not_left_there(
    own: OwnLink, away: str, lab: Lab, tmp_path: Path, written: int
) -> None:
    """Its log ends below what the mirror had reached, so nothing seems to be left to copy."""
    own.produce("primary", away, {0: ["only-here"]})  # or nothing is scrubbed
    group = own.commit("primary", "reads", away, {0: 10})
    killed(own, "failback", tmp_path, ("audit", OUTCOME, "after"))
    with stopped(lab, "dr-1") as disk:
        cut(disk, away)
    if written:
        write(own, "dr", away, "after", KEPT, KEPT + written)
    done = resume(own, reading_ports(own, tmp_path))
    if not written:  # nothing of dr is missing
        assert done.error is None, done.error
        assert own.values("primary", away) == {0: [f"before-{number}" for number in range(RECORDS)]}
        return
    assert isinstance(done.error, PartlyDone), done.error
    assert f"{away}:0 (offsets {KEPT} to {KEPT + written - 1})" in done.error.what
    assert "drkit abandon" in done.error.remedy
    with own.estate() as estate:
        (said,) = [
            each for each in abandon_run(estate, own.store.runs()[0].run, print).stands if "positions.json" in each
        ]
        assert f"1 committed offset of {group} went with the topics" in said
    result = fail_back(own, reading_ports(own, tmp_path), accept_salvage_only=True)
    assert result.error is None, result.error
    assert own.values("primary", away) == own.values("dr", away)
    assert f"after-{KEPT}" in own.values("primary", away)[0]
    assert own.committed("primary", group) == {(away, 0): 10}


def test_a_failback_that_is_abandoned_in_its_commit_says_whose_offsets_no_cluster_has(
    own: OwnLink, away: str, tmp_path: Path
) -> None:
    own.produce("primary", away, {0: ["only-here"]})  # or nothing is scrubbed
    group = own.commit("primary", "reads", away, {0: 10})
    killed(own, "failback", tmp_path, ("commit", INTENT, "after"))
    assert own.committed("primary", group) == {}
    with own.estate() as estate:
        (said,) = [
            each for each in abandon_run(estate, own.store.runs()[0].run, print).stands if "positions.json" in each
        ]
        assert f"1 committed offset of {group} went with the topics" in said
    result = fail_back(own, reading_ports(own, tmp_path))
    assert result.error is None, result.error
    assert own.committed("primary", group) == {(away, 0): 10}


@pytest.mark.parametrize(
    ("away", "grown"),
    [("delete", 20), ("compact", 20), ("compact", 40)],
    ids=["shorter", "compacted, shorter", "compacted, as long"],
    indirect=["away"],
)
def test_a_dr_that_was_set_back_as_a_whole_and_gives_out_the_same_epochs_again_is_no_shorter_copy(
    own: OwnLink, away: str, lab: Lab, tmp_path: Path, grown: int
) -> None:
    """Its leader epochs say that it only lost its end, if that: all that is left seems to be brought back. Nor does
    the last batch tell where a cleaner may have written it anew."""
    with stopped(lab, "dr-1") as disk:
        disk.copy_to(tmp_path / "copy")
    write(own, "dr", away, "more", RECORDS, RECORDS + 40)
    own.produce("primary", away, {0: ["only-here"]})  # or nothing is scrubbed
    killed(own, "failback", tmp_path / "salvage", ("audit", OUTCOME, "after"))
    with stopped(lab, "dr-1") as disk:
        disk.set_back(tmp_path / "copy")
    write(own, "dr", away, "after", RECORDS, RECORDS + grown)
    done = resume(own, reading_ports(own, tmp_path / "salvage"))
    assert isinstance(done.error, PartlyDone), done.error
    assert f"{away}:0 (from offset {RECORDS} on)" in done.error.what


def test_a_dr_that_was_set_back_below_what_a_failback_that_deletes_nothing_took_as_brought_back_stops_it(
    own: OwnLink, lab: Lab, tmp_path: Path
) -> None:
    """Nothing of the topic was read on the way back: what dr held when the record was reversed tells."""
    topic = own.create("primary", "t", partitions=1)
    write(own, "primary", topic, "before", 0, KEPT)
    mirror(own)
    with stopped(lab, "dr-1") as disk:
        disk.copy_to(tmp_path / "copy")
    write(own, "primary", topic, "before", KEPT, RECORDS)
    mirror(own)
    fail_over(own)
    killed(own, "failback", tmp_path / "salvage", ("audit", OUTCOME, "after"))
    with stopped(lab, "dr-1") as disk:
        disk.set_back(tmp_path / "copy")
    write(own, "dr", topic, "after", KEPT, RECORDS)
    done = resume(own, reading_ports(own, tmp_path / "salvage"))
    assert isinstance(done.error, PartlyDone), done.error
    assert f"{topic}:0 (offsets 0 to {RECORDS - 1})" in done.error.what
