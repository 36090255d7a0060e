"""Safety rules look at the real lab: what holds lets a step pass, what doesn't is named."""

import socket
import time

import pytest
from pydantic import TypeAdapter

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.experiment import Experiment, Safety, Step
from drkit.drill.safety import broken_rule, struck_clusters

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
    assert said == "it would strike at primary while dr does not answer: both sides would be away"
    for step in ({"do": "kill", "node": "dr"}, {"do": "kill", "node": "mirror"}, {"do": "resume", "node": "primary"}):
        assert broken_rule(env, rules(never_both_sides=True), a_step(**step), time.monotonic()) is None
    assert broken_rule(env, rules(), a_step(do="kill", node="primary"), time.monotonic()) is None


@pytest.mark.parametrize(
    ("keys", "seconds", "said"),
    [
        ({"healthy_brokers": {"primary": 1, "dr": 2}}, 0.0, "1 broker of dr healthy, 2 must be"),
        ({"time_limit_seconds": 30.0}, 31.0, "the drill takes longer than 30 s"),
        ({"abort_when": [{"condition": "answers", "cluster": "dr"}]}, 0.0, "answers: dr answers"),
    ],
)
def test_a_rule_that_does_not_hold_is_named(env, keys, seconds, said):
    assert broken_rule(env, rules(**keys), a_step(do="hold", seconds=1.0), time.monotonic() - seconds) == said
