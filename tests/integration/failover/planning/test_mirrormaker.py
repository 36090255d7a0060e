"""A shop that mirrors with MirrorMaker 2: a real one mirrors, drkit moves the groups by what it recorded."""

import re
from pathlib import Path

import pytest

from bench.clusters import Cluster
from bench.mirrors import Job, MirrorMaker
from drkit.drill.runbook import read_runbook
from drkit.failover.context.state_machine import State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.positions.mirrormaker_positions import read_mirrormaker
from drkit.failover.positions.positions import Strategy
from drkit.failover.run.service import run_failover
from drkit.kafka.groups.mirrormaker import checkpoints_topic
from drkit.lab.toolchain import ensure
from drkit.model.errors import DrkitError
from tests.support.collection.sampling import some_of
from tests.support.commands.runbooks import run_block
from tests.support.links.estates import texts, without_primary
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("migrations from MirrorMaker", 1)]

RECORDS = 900
RUNBOOK = Path(__file__).parents[4] / "runbooks" / "mirrormaker-migration.md"


@pytest.fixture
def mirrored(own, tmp_path):
    """Mirrored by MirrorMaker 2, which has stopped; groups stand at and between its syncs."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", RECORDS))
    names = [
        own.commit("primary", "old", topic, {0: 137, 1: 0}),
        own.commit("primary", "level", topic, {0: RECORDS, 1: RECORDS - 1}),
    ]
    sides = [Cluster(alias, own.config.clusters[alias].bootstrap_servers) for alias in ("primary", "dr")]
    job = Job(tmp_path, *sides, topics=re.escape(own.name) + "[.].*", codec="lz4", groups=True)
    running = MirrorMaker(ensure("mirrormaker")).launch(job)

    def checkpointed():
        assert not running.ended, running.output_tail()
        with own.estate() as estate:
            if checkpoints_topic("primary") not in estate.admin("dr").topics():
                return False
            found = read_mirrormaker(estate, own.link, "").checkpoints
        mine = {(each.group, each.tp.partition): each for each in found if each.group in names}
        level = mine.get((names[1], 0))
        return len(mine) >= 3 and level is not None and level.upstream == RECORDS

    try:
        wait_until(checkpointed, timeout=90, what="MirrorMaker 2's checkpoints")
    finally:
        running.stop()
    yield topic, names
    with own.estate() as estate:
        for alias in ("primary", "dr"):
            admin = estate.admin(alias)
            mine = re.compile(r"mm2-.*|.*[.]checkpoints[.]internal|heartbeats")
            admin.delete_topics([name for name in admin.topics() if mine.fullmatch(name)])


def test_groups_move_by_what_mirrormaker_recorded_and_the_certificate_holds(own, mirrored):
    topic, names = mirrored
    unread = {name: own.unread("primary", name, topic) for name in names}
    here = own.values("dr", topic)
    assert here == own.values("primary", topic)
    with own.estate() as estate:
        with pytest.raises(DrkitError, match=r"no topic EU\.checkpoints\.internal"):
            make_plan(estate, PlanRequest("dr", mirrormaker="EU"))
        with_source = make_plan(estate, PlanRequest("dr", mirrormaker=""))
    by_syncs = {(p.group, p.partition): p for p in with_source.positions}
    assert all(p.strategy is Strategy.MIRRORMAKER for p in by_syncs.values() if p.target_offset is not None)

    with own.estate(without_primary(own)) as estate:
        plan = make_plan(estate, PlanRequest("dr", mirrormaker=""))
        assert any("no offset-sync topic" in warning for warning in plan.warnings)
        assert any("KAFKA-12468" in warning for warning in plan.warnings)
        result = run_failover(estate, plan, accept_unfenced=True)
    assert result.error is None
    assert result.machine.state is State.CLOSED
    assert result.evidence.rpo_records is None  # MirrorMaker 2 doesn't say
    placed = [p for p in result.positions if p.target_offset is not None]
    assert {(p.group, p.partition) for p in placed} >= {(names[0], 0), (names[1], 0), (names[1], 1)}
    for position in placed:
        for chosen in (position, by_syncs[position.group, position.partition]):
            rest = here[position.partition][chosen.target_offset :]
            expected = unread[position.group][position.partition]
            again = len(rest) - len(expected)
            assert rest[again:] == expected, "no unread record is passed"
            bound = chosen.reread if chosen.reread is not None else chosen.reread_at_most
            assert 0 <= again <= bound
        assert own.committed("dr", position.group)[topic, position.partition] == position.target_offset
    old = by_syncs[names[0], 0]
    assert old.skipped == 0, "by a pair of offsets"
    assert old.reread_at_most is None or old.reread_at_most <= 137


def test_topics_that_mirrormaker_filled_are_taken_over(own, mirrored, tmp_path):
    """The runbook's way B: a store from the logs alone, and a mirror that continues where MirrorMaker 2 stopped."""
    topic, _ = mirrored
    own.store.close()
    own.produce("primary", topic, texts("later", 50))
    book = read_runbook(RUNBOOK, {"DRKIT_CONFIG": str(own.config_path), "TOPIC": topic})
    for block in ("look", "take-over", "verify"):
        for ran in run_block(book, block, tmp_path):
            allowed = {0, 3, 8} if ran.command.argv[1] == "doctor" else {0}
            assert ran.done.returncode in allowed, f"{ran.command.place}: {ran.done.stderr}\n{ran.done.stdout}"
    there = own.values("dr", topic)
    assert there == own.values("primary", topic)
    assert sum(map(len, there.values())) > 2 * RECORDS
