"""What the adversary notices beside logs: workers that end by themselves, faults that never struck. No brokers."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

from chaos.adversary.load import Load
from chaos.adversary.oracle import Journal, Written
from chaos.adversary.plan import Plan
from chaos.adversary.run import Run
from chaos.adversary.world import World
from chaos.soak.clusters import SoakError

PLAN = Plan(1, "preserve", "", 2, {}, (), ())
RUNS = "import time; time.sleep(600)"
FAILS = "raise SystemExit(1)"


def dies_at_its_fault_point(control):
    return f"import os, signal; os.unlink({str(control)!r}); os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def world(tmp_path):
    cluster = SimpleNamespace(bootstrap="127.0.0.1:1", create=lambda *_: None, partitions=lambda _: 0)
    made = World(cluster, cluster, tmp_path, PLAN, "-")
    made._program = ("-c", RUNS)
    yield made
    made.close()


def test_a_worker_that_ended_by_itself_is_found_by_the_next_action(world):
    world._program = ("-c", FAILS)
    world.start()
    world.worker.process.wait(30)
    world.worker._program = ("-c", RUNS)
    world.start()
    assert [each[:35] for each in world.ended] == ["worker 1 ended by itself with 1: ['"]
    assert world.worker.process.poll() is None
    world.start()
    assert len(world.ended) == 1


def test_one_that_died_before_it_is_killed_or_stopped_is_found(world):
    for end in (world.kill, lambda: world.stop(world.worker)):
        world.ended.clear()
        world.worker = None
        world._program = ("-c", FAILS)
        world.start()
        world.worker.process.wait(30)
        end()
        assert ["by itself with 1" in each for each in world.ended] == [True]


def test_another_worker_that_died_is_found_and_stays_down(world):
    world.start()
    world._program = ("-c", FAILS)
    other = world.another()
    other.process.wait(30)
    world.look_after()
    world.look_after()
    assert [each[:31] for each in world.ended] == ["worker 2 ended by itself with 1"]
    assert other.process.poll() == 1


def test_what_is_killed_on_purpose_is_no_finding(world):
    world.start()
    world.kill()
    world.start()
    with world.mirror("killed"):
        world.look_after()
        assert world.worker.process.poll() == -signal.SIGKILL
    world.look_after()
    assert world.ended == []


def test_a_death_at_a_fault_point_is_no_finding_but_any_other_sigkill_is(world):
    world._program = ("-c", dies_at_its_fault_point(world.control))
    world.arm("before_rows", 0, signal.SIGKILL)
    world.start()
    assert world.worker.process.wait(30) == -signal.SIGKILL
    world.disarm()
    world.worker._program = ("-c", RUNS)
    world.start()
    assert world.ended == []
    world.worker.send(signal.SIGKILL)
    world.worker.process.wait(30)
    world.start()
    assert [each[:33] for each in world.ended] == ["worker 1 ended by itself with -9:"]


def test_a_fault_point_that_wasnt_reached_explains_no_death(world):
    world.start()
    world.arm("before_rows", 0, signal.SIGKILL)
    world.disarm()
    world.worker.send(signal.SIGKILL)
    world.worker.process.wait(30)
    world.start()
    assert len(world.ended) == 1


def test_a_worker_that_runs_on_without_its_store_is_found(world, monkeypatch):
    monkeypatch.setattr("chaos.adversary.world._STOP_SECONDS", 1.0)
    world.start()
    world.lose_store("live")
    assert [each[:35] for each in world.ended] == ["worker 1 runs on without its store:"]


def test_one_that_ends_without_its_store_is_none_and_after_a_failover_any_may_end(world):
    world._program = ("-c", FAILS)
    for end in (lambda: world.lose_store("live"), world.expect_end):
        world.worker = world.another()
        world.worker.process.wait(30)
        world._meant.clear()
        world._note_end = lambda _: False  # it runs when it is asked
        end()
        del world._note_end
        world.look_after()
    assert world.ended == []


def test_a_record_that_the_source_refuses_breaks_the_run():
    load = Load("127.0.0.1:1", "t", "", 1_000, Journal(), committed=True)
    quiet = SimpleNamespace(flush=lambda _: 0)
    written = Written(0, b"")
    load._delivered(written, None, SimpleNamespace(offset=lambda: 7))
    load._flush(quiet, 0)
    assert written.offset == 7
    load._delivered(written, "too large", SimpleNamespace(offset=lambda: None))
    with pytest.raises(SoakError, match="too large"):
        load._flush(quiet, 0)


def test_a_step_that_drkit_refuses_breaks_the_run(world):
    with pytest.raises(SoakError, match="link resume"):
        world.order("link", "resume", "primary->dr", "--topic", "t", "--accept-recreated")


def run_on(partitions, **known):
    """A run on a source that shows so many partitions of the topic's two."""
    source = SimpleNamespace(partitions=lambda _: partitions)
    world = SimpleNamespace(topic="t", partitions=2, folder=known.pop("folder", None), ask=known.pop("ask", None))
    run = Run.__new__(Run)
    run._source, run._world, run._plan, run._say = source, world, PLAN, lambda _: None
    run._schema, run._spotless, run._deviations, run.findings = {}, True, [], []
    for name, value in known.items():
        setattr(run, name, value)
    return run


STATUS = {"state": "mirroring", "source_reachable": True, "target_reachable": True, "partitions": [], "problems": []}


def test_a_source_without_leaders_is_not_quiet_and_is_never_called_clean():
    run = run_on(0)
    assert run._state(STATUS) is None
    with pytest.raises(SoakError, match="0 of 2 partitions"):
        run._found(STATUS)


@pytest.mark.parametrize(
    ("code", "spotless", "why", "found"),
    [
        (0, True, None, 0),
        (0, True, "3 records are missing", 2),
        (8, True, None, 2),
        (8, False, None, 0),
        (8, True, "3 records are missing", 0),
        (5, True, None, 2),
        (5, False, None, 0),
    ],
)
def test_an_audit_without_a_verdict_is_a_finding_where_nothing_was_ever_wrong(tmp_path, code, spotless, why, found):
    said = {"verdict": "", "totals": {}, "incomplete": []}
    run = run_on(2, folder=tmp_path, ask=lambda *_: (code, said), _spotless=spotless, _deviations=[None, why])
    run._audit()
    assert len(run.findings) == found
