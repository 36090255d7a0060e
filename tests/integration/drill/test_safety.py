"""Safety rules look at the real lab: what holds lets a step pass, what doesn't is named."""

import re
import socket
import time
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from drkit.drill.conditions import broken_rule
from drkit.drill.environment.environment import DrillEnvironment, own_configuration
from drkit.drill.environment.wan_proxy import NetworkState
from drkit.drill.experiment.experiment import Experiment, Safety
from drkit.drill.experiment.faults import PurgeTopic
from drkit.drill.experiment.reader import ExperimentFile
from drkit.drill.experiment.steps import Step, struck_clusters
from drkit.drill.faults.inject import inject
from drkit.drill.results.archive import Drills
from drkit.drill.runner import run_drill
from drkit.model.errors import DrkitError, Refused

pytestmark = pytest.mark.lab
ALL = {
    "time_limit_seconds": 600.0,
    "never_both_sides": True,
    "healthy_brokers": {"primary": 1, "dr": 1},
    "abort_when": [{"condition": "silent", "cluster": "dr"}],
}
FAILOVER = {
    "do": "failover",
    "resumes": 1,
    "strikes": [{"at": "commit", "faults": [{"do": "kill", "node": "run"}, {"do": "purge_topic", "cluster": "dr"}]}],
}


def a_step(**keys):
    return TypeAdapter(Step).validate_python(keys)


def rules(**keys):
    return Safety.model_validate(keys)


@pytest.fixture
def env(lab, unique_name, tmp_path):
    experiment = Experiment.model_validate(
        {
            "title": "t",
            "hypothesis": "h",
            "steady_state": {"conditions": [{"condition": "answers", "cluster": "primary"}]},
            "method": [{"do": "workload", "topic": unique_name, "group": unique_name}],
            "checks": ["duplicated"],
        }
    )
    return DrillEnvironment.on(lab, "drill-test", experiment, tmp_path, lambda _: None)


@pytest.fixture
def away():
    """What a cluster has that isn't there: a port that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield {"bootstrap.servers": f"127.0.0.1:{taken.getsockname()[1]}"}


@pytest.mark.parametrize(
    ("step", "clusters"),
    [
        ({"do": "kill", "node": "primary-1"}, ["primary"]),
        ({"do": "resume", "node": "primary"}, []),
        ({"do": "kill", "node": "mirror"}, []),
        ({"do": "disconnect"}, []),
        ({"do": "delete_topic", "cluster": "dr"}, ["dr"]),
        ({"do": "hold", "seconds": 1.0}, []),
        (FAILOVER, ["dr"]),
    ],
)
def test_what_a_step_strikes_at(step, clusters):
    assert struck_clusters(a_step(**step)) == clusters


def test_where_every_rule_holds_a_step_passes(env):
    for step in ({"do": "kill", "node": "primary"}, {"do": "hold", "seconds": 1.0}, FAILOVER):
        assert broken_rule(env, rules(**ALL), a_step(**step), time.monotonic()) is None


def test_both_sides_are_never_away(env, away):
    env.properties["dr"] = away
    said = broken_rule(env, rules(never_both_sides=True), a_step(do="kill", node="primary"), time.monotonic())
    assert said == "it would strike primary while dr does not answer: both sides would be unavailable"
    for step in ({"do": "kill", "node": "dr"}, {"do": "kill", "node": "mirror"}, {"do": "resume", "node": "primary"}):
        assert broken_rule(env, rules(never_both_sides=True), a_step(**step), time.monotonic()) is None
    assert broken_rule(env, rules(), a_step(do="kill", node="primary"), time.monotonic()) is None


@pytest.mark.parametrize(
    ("keys", "seconds", "said"),
    [
        ({"healthy_brokers": {"primary": 1, "dr": 2}}, 0.0, "1 broker of dr healthy, at least 2 must be"),
        ({"time_limit_seconds": 30.0}, 31.0, "the drill takes longer than 30 s"),
        ({"abort_when": [{"condition": "answers", "cluster": "dr"}]}, 0.0, "answers: dr answers"),
    ],
)
def test_a_rule_that_does_not_hold_is_named(env, keys, seconds, said):
    assert broken_rule(env, rules(**keys), a_step(do="hold", seconds=1.0), time.monotonic() - seconds) == said


def test_a_rule_whose_condition_cannot_be_asked_does_not_hold(env):
    """Steps would strike on, blindly, where nobody sees what they are to stop at."""
    env.status = lambda: None
    wanted = [{"condition": "problem_told", "kind": "target_purged"}]
    said = broken_rule(env, rules(abort_when=wanted), a_step(do="hold", seconds=1.0), time.monotonic())
    assert said == "problem_told: whether it holds isn't known: drkit status gave no answer"


def test_after_a_fault_took_data_from_one_side_nothing_strikes_at_the_other(env):
    """Both answer, and both would be hurt."""
    with pytest.raises(DrkitError):
        inject(env, PurgeTopic(do="purge_topic", cluster="primary"))  # it holds nothing; another may have taken a part
    for step in ({"do": "delete_topic", "cluster": "dr"}, {"do": "kill", "node": "dr"}, FAILOVER):
        said = broken_rule(env, rules(never_both_sides=True), a_step(**step), time.monotonic())
        assert said == "it would strike dr after a fault took data from primary: both sides would be damaged"
    same_side = a_step(do="kill", node="primary")
    assert broken_rule(env, rules(never_both_sides=True), same_side, time.monotonic()) is None


def test_behind_a_line_on_which_nothing_passes_the_primary_is_away(env):
    env.wan = SimpleNamespace(state=NetworkState(blocked=("from_primary",)))
    said = broken_rule(env, rules(never_both_sides=True), a_step(do="pause", node="dr"), time.monotonic())
    assert said == "it would strike dr while nothing passes to primary: both sides would be unavailable"
    assert broken_rule(env, rules(never_both_sides=True), a_step(do="pause", node="primary"), time.monotonic()) is None


@pytest.mark.parametrize("section", ["clusters", "store", "links", "fence"])
def test_no_drill_begins_by_a_configuration_that_names_what_is_not_the_lab(lab, env, tmp_path, monkeypatch, section):
    """Somebody pointed the lab's file at an estate; every command of a drill acts by it."""
    text = lab.config_path.read_text()
    changed = tmp_path / "drkit.toml"
    if section == "clusters":
        changed.write_text(text.replace(lab.bootstrap("dr"), "kafka.example:9092"))
    elif section == "store":
        changed.write_text(re.sub(r"^url = .*$", 'url = "sqlite:////estate.db"', text, flags=re.MULTILINE))
    elif section == "fence":
        changed.write_text(f'{text}\n[clusters.dr.fence]\nbootstrap_servers = "kafka.example:9092"\n')
    else:
        estate = '[clusters.estate]\nbootstrap_servers = "kafka.example:9092"\n'
        changed.write_text(f"{text}\n{estate}")
    monkeypatch.setattr(type(lab), "config_path", changed)
    with pytest.raises(Refused, match=r"names (clusters|a store) other than those of its lab"):
        DrillEnvironment.on(lab, "drill-test", env.experiment, tmp_path, lambda _: None)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"source": "dr", "target": "primary"}, "has no link dr->primary with the policy identity"),
        ({"source": "primary", "target": "dr", "policy": "prefix"}, "has no link primary->dr with the policy prefix"),
    ],
)
def test_no_drill_begins_on_a_lab_that_has_other_links_than_the_experiment(lab, env, link, said):
    workload = {"do": "workload", "link": f"{link['source']}->{link['target']}"}
    other = {**env.experiment.model_dump(), "lab": {"links": [link]}, "method": [workload]}
    with pytest.raises(Refused, match=said) as refused:
        own_configuration(lab, Experiment.model_validate(other))
    assert "Leave --dir out" in refused.value.remedy


@pytest.mark.parametrize("marked", ["drill = false", ""])
def test_no_fault_strikes_at_a_cluster_that_is_not_marked_for_drills(lab, env, tmp_path, monkeypatch, marked):
    """Whatever the fault is of, at a stage or in a rollback, too; without a fault nobody needs the mark."""
    changed = tmp_path / "drkit.toml"
    text = lab.config_path.read_text().replace("drill = true", marked, 1)
    changed.write_text(re.sub(r"^url = .*$", f'url = "{lab.store_url()}"', text, flags=re.MULTILINE))
    monkeypatch.setattr(type(lab), "config_path", changed)
    plain = env.experiment.model_dump()
    assert own_configuration(lab, env.experiment).clusters["primary"].drill is False
    faults = (
        {"method": [*plain["method"], FAILOVER]},
        {"method": [*plain["method"], {"do": "kill", "node": "primary"}]},
        {"rollbacks": [{"do": "restart", "node": "dr"}]},
    )
    for keys in faults:
        with pytest.raises(Refused, match="does not allow faults on primary") as refused:
            own_configuration(lab, Experiment.model_validate({**plain, **keys}))
        assert "drill = true under [clusters.primary]" in refused.value.remedy
        with pytest.raises(Refused):
            run_drill(
                ExperimentFile(tmp_path / "e.yaml", Experiment.model_validate({**plain, **keys}), None),
                Drills(tmp_path / "drills"),
                lab_dir=lab.dir,
                keep_lab=True,
                say=lambda _: None,
            )
    assert not (tmp_path / "drills").exists()
