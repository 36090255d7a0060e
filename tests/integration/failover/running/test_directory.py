"""Clients follow: directories, hooks and `drkit endpoint` through a failover and back, on real clusters."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from drkit.directory import Entry, open_directories
from drkit.failover.context.state_machine import Kind, StageOutcome, State
from drkit.failover.journal.run_record import load_run
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import plan_again, resume_run, run_failback, run_failover, standing_obstacles
from drkit.lab.ports import free_ports
from drkit.model.clock import now
from drkit.model.errors import PartlyDone, Refused, StalePlan
from tests.support.clusters.directories import consul_like
from tests.support.collection.sampling import some_of
from tests.support.links.estates import mirror, open_link, own_link, texts
from tests.support.recovery.failback_ports import reading_ports

pytestmark = [pytest.mark.lab, some_of("moves of a directory", 2)]

SCHEMA = Path(__file__).parents[4] / "docs" / "schemas" / "endpoint.schema.json"


def endpoint(own, *words):
    command = [sys.executable, "-m", "drkit", "endpoint", *words, "--config", str(own.config_path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def entry(own, number=0):
    return open_directories(own.config, own.link.id)[number].read()


def fail_over(own):
    with own.estate() as estate:
        return run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)


@pytest.fixture
def prepare(lab, tmp_path, unique_name):
    """A mirrored link with more in its configuration."""
    opened = []

    def make(extra):
        own = own_link(lab, tmp_path, unique_name, extra=extra)
        opened.append(own)
        topic = own.create("primary", "t")
        own.produce("primary", topic, texts("x", 10))
        own.commit("primary", "g", topic, {0: 4, 1: 10})
        mirror(own)
        return own

    yield make
    for own in opened:
        own.store.close()


def calls(tmp_path, name):
    """A hook's command that writes down what it was told."""
    told = "$DRKIT_HOOK $DRKIT_RUN $DRKIT_CLUSTER $DRKIT_STATE $DRKIT_PLAN_DIGEST"
    return f'["/bin/sh", "-c", "echo {told} >> {tmp_path}/{name}"]'


def test_clients_follow_there_and_back_and_hooks_are_called(prepare, tmp_path):
    with consul_like() as port:
        own = prepare(
            f'[[directory]]\nurl = "file://{tmp_path}/active.json"\n'
            f'[[directory]]\nurl = "consul://127.0.0.1:{port}/kafka"\n'
            f"[hooks]\npre_failover = [{calls(tmp_path, 'hooks')}]\n"
            f'post_failover = [["/bin/sh", "-c", "echo the pager is down >&2; exit 4"], ["/bin/false"]]\n'
            f"post_failback = [{calls(tmp_path, 'hooks')}]\n"
        )
        servers = {alias: cluster.bootstrap_servers for alias, cluster in own.config.clusters.items()}
        group = f"{own.name}.g"
        assert endpoint(own, "primary").stdout.strip() == servers["primary"]
        assert endpoint(own, "--group", group).stdout.strip() == servers["primary"]  # by the store: nothing published

        with own.estate() as estate:
            plan = make_plan(estate, PlanRequest("dr"))
            assert [view.active for view in plan.directories] == [None, None]
            names = [stage.name for stage in plan.stages]
            assert (names[0], names[-2:]) == ("pre_hooks", ["post_hooks", "close"])
            result = run_failover(estate, plan, accept_unfenced=True)
        assert result.error is None
        outcomes = {stage.name: stage for stage in result.stages}
        assert outcomes["switch"].outcome is StageOutcome.OK
        assert f"clients at {servers['dr']} (dr)" in outcomes["switch"].reason
        assert outcomes["post_hooks"].outcome is StageOutcome.FAILED  # reported; nothing is undone
        assert "the pager is down" in outcomes["post_hooks"].reason
        assert result.machine.state is State.CLOSED
        there = entry(own)
        assert (there.active, there.bootstrap_servers, there.run) == ("dr", servers["dr"], result.run)
        assert entry(own, 1) == there
        (told,) = (tmp_path / "hooks").read_text().splitlines()
        assert told == f"pre_hook {result.run} dr planned {plan.digest}"
        assert load_run(own.store, result.run).machine.state is State.CLOSED

        assert endpoint(own, "--group", group, "--format", "export").stdout == (
            f"export KAFKA_BOOTSTRAP_SERVERS={servers['dr']}\n"
        )
        found = json.loads(endpoint(own, "--link", "primary->dr", "--output", "json").stdout)
        Draft202012Validator(json.loads(SCHEMA.read_text())).validate(found)
        assert found["bootstrap_servers"] == [servers["dr"]]
        assert (found["cluster"], found["basis"], found["epoch"]) == ("dr", "directory", there.epoch)
        assert endpoint(own, "mars").returncode == 2

        with own.estate() as estate:
            back = make_failback_plan(estate, "primary")
            assert [view.active for view in back.directories] == ["dr", "dr"]
            home = run_failback(
                estate,
                back,
                reading_ports(own, tmp_path / "salvage"),
                cluster_id=back.target.cluster_id,
                accept_unfenced=True,
            )
        assert home.error is None
        assert entry(own).active == entry(own, 1).active == "primary"
        assert entry(own).epoch > there.epoch
        assert (tmp_path / "hooks").read_text().splitlines()[1].startswith(f"post_hook {home.run} primary verified ")
        with pytest.raises(Refused, match="says primary"):  # a late run, waking up
            open_directories(own.config, own.link.id)[1].publish(there)


def test_a_directory_that_is_gone_stops_the_switch_and_resume_goes_on(prepare, tmp_path):
    (port,) = free_ports(1)
    extra = (
        f'[[directory]]\nurl = "etcd://127.0.0.1:{port}/kafka"\ntimeout_seconds = 1\n'
        f'[[directory]]\nurl = "file://{tmp_path}/active.json"\n'
    )
    own = prepare(extra)
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert any("does not answer" in warning and "switch stops" in warning for warning in plan.warnings)
    result = fail_over(own)
    assert isinstance(result.error, PartlyDone)
    assert "1 of 2 directories don't say dr yet" in result.error.what
    assert f"drkit resume {result.run}" in result.error.remedy
    assert result.machine.state is State.COMMITTED
    assert entry(own, 1).active == "dr", "the others have it already"
    with consul_like() as other:
        text = own.config_path.read_text().replace(f"etcd://127.0.0.1:{port}", f"consul://127.0.0.1:{other}")
        own.config_path.write_text(text)
        mended = open_link(own.config_path, own.name)
        try:
            with mended.estate() as estate:
                assert resume_run(estate, result.run, None).error is None
            assert entry(mended, 0).active == "dr"
        finally:
            mended.store.close()


def test_what_stands_in_the_way_is_found_before_anything_is_changed(prepare, tmp_path):
    own = prepare(
        f'[directory]\nurl = "file://{tmp_path}/active.json"\n'
        f"[hooks]\npre_failover = [{calls(tmp_path, 'hooks')}, "
        '["/bin/sh", "-c", "echo not on a Friday >&2; exit 1"], ["/bin/touch", "/nowhere/never"]]\n'
    )
    (directory,) = open_directories(own.config, own.link.id)
    with own.estate() as estate:
        planned = make_plan(estate, PlanRequest("dr"))
        directory.publish(Entry("primary->dr", "primary", "elsewhere:1", 0, "BEFORE", now()))
        with pytest.raises(StalePlan, match=r"active\.json now says primary, not nothing"):
            plan_again(estate, planned)
    result = fail_over(own)
    assert isinstance(result.error, Refused)
    assert "not on a Friday" in result.error.what
    assert result.machine.state is State.CANCELLED
    assert len((tmp_path / "hooks").read_text().splitlines()) == 1
    assert own.store.link_control(own.link.id) is None
    assert own.committed("dr", f"{own.name}.g") == {}
    assert directory.read().active == "primary"

    directory.publish(replace(directory.read(), epoch=50))
    with own.estate() as estate:
        (obstacle,) = standing_obstacles(make_plan(estate, PlanRequest("dr")), waived=frozenset({"--accept-unfenced"}))
    assert "says primary, epoch 50; this run would write dr with epoch 1" in obstacle.what
    assert {summary.kind for summary in own.store.runs()} == {Kind.FAILOVER}


def recover(own):
    command = [sys.executable, "-m", "drkit", "link", "recover", "primary->dr", "--config", str(own.config_path)]
    return subprocess.run([*command, "--output", "json"], capture_output=True, text=True, timeout=60, check=False)


def test_a_store_built_anew_goes_on_above_the_epochs_in_the_directories(prepare, tmp_path):
    urls = [f'[[directory]]\nurl = "file://{tmp_path}/{name}.json"' for name in ("active", "second")]
    own = prepare("\n".join(urls))
    first, second = open_directories(own.config, own.link.id)
    first.publish(Entry("primary->dr", "dr", "elsewhere:1", 6, "LOST", now()))
    second.publish(Entry("primary->dr", "primary", "elsewhere:1", 7, "LOST", now()))
    refused = recover(own)
    assert refused.returncode == 3
    assert "says that dr serves (epoch 6, run LOST); by the store primary does" in refused.stdout
    assert own.store.link_control(own.link.id) is None
    first.publish(Entry("other->dr", "primary", "elsewhere:1", 8, "LOST", now()))
    assert "holds the entry of other->dr" in recover(own).stdout
    first.publish(Entry("primary->dr", "primary", "elsewhere:1", 9, "LOST", now()))

    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert any("drkit link recover 'primary->dr'" in obstacle.remedy for obstacle in plan.obstacles)
        recovered = recover(own)
        assert recovered.returncode == 0, recovered.stderr
        assert json.loads(recovered.stdout)["version"] == 9
        with pytest.raises(StalePlan):
            plan_again(estate, plan)
    assert json.loads(recover(own).stdout)["version"] == 9, "nothing is left to do"
    own.produce("primary", own.topic("t"), texts("y", 10))
    assert mirror(own) == 20
    assert fail_over(own).error is None
    assert [(entry(own, number).active, entry(own, number).epoch) for number in (0, 1)] == [("dr", 10), ("dr", 10)]
