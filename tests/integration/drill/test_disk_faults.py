"""A full disk bites, on a broker of a lab of its own."""

import pytest

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.experiment.faults import FillDisk, WriteForeign
from drkit.drill.faults.inject import inject
from drkit.drill.steps import play
from drkit.drill.workload import reading
from drkit.lab import Lab
from tests.support.drills.drill_commands import link_of

pytestmark = pytest.mark.lab

FILL = FillDisk(do="fill_disk", node="primary")


@pytest.fixture
def env(unique_name, tmp_path, lab_guard):
    """A topic of one partition with 100 records of nobody's."""
    folder = tmp_path / "lab"
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite")
    try:
        experiment = Experiment.model_validate(
            {
                "title": "t",
                "hypothesis": "h",
                "steady_state": {"conditions": [{"condition": "answers", "cluster": "primary"}]},
                "method": [{"do": "workload", "topic": unique_name, "partitions": 1, "group": unique_name}],
                "checks": ["duplicated"],
            }
        )
        found = DrillEnvironment.on(lab, "drill-test", experiment, tmp_path, lambda _: None)
        reading.create_topic(found.properties["primary"], unique_name, 1, 1, 30)
        inject(found, WriteForeign(do="write_foreign", cluster="primary", records=100))
        yield found
    finally:
        lab.down()


def records(env):
    topic = link_of(env).workload.topic
    return [one.digest for one in reading.read_all(env.properties["primary"], link_of(env).drill, topic, 1, 30)]


def test_a_broker_whose_disk_is_full_ends_and_has_what_it_acknowledged_once_there_is_room(env):
    before = records(env)
    assert len(before) == 100
    assert "the disk of primary-1 is full" in inject(env, FILL)
    states = {node.name: node.state for node in env.lab.status()}
    assert states == {"primary-1": "down", "dr-1": "up"}, "by itself: nobody killed it"
    assert not reading.answers(env.properties["primary"], 1.0)
    played = play(env, FILL)
    assert (played.outcome, "was not running" in played.reason) == ("unknown", True)

    env.lab.restart("primary")
    assert records(env) == before
    inject(env, WriteForeign(do="write_foreign", cluster="primary", records=5))
    assert len(records(env)) == 105
