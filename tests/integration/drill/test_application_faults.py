"""Faults of the applications bite, on clusters with an authorizer: seen by what real clients keep and log."""

import pytest

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.secured import LISTENERS, authenticates, new_users
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.experiment.faults import ExpireCredentials, RenewCredentials
from drkit.drill.faults.inject import inject
from drkit.drill.judge.history import AttemptOutcome
from drkit.drill.steps import play
from drkit.drill.workload import reading
from drkit.lab import Lab
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

PARTITIONS = 2
SECONDS = 90.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory, lab_guard):
    """The lab of a drill with `lab.secured`."""
    folder = tmp_path_factory.mktemp("applications")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite", users=new_users(), listeners=LISTENERS)
    yield lab
    lab.down()


def environment(lab, name, folder, **own):
    experiment = Experiment.model_validate(
        {
            "title": "t",
            "hypothesis": "h",
            "lab": own,
            "steady_state": {"conditions": [{"condition": "answers", "cluster": "primary"}]},
            "method": [{"do": "workload", "topic": name, "partitions": PARTITIONS, "group": name, "keys": 10}],
            "checks": ["duplicated"],
        }
    )
    return DrillEnvironment.on(lab, "drill-test", experiment, folder, lambda _: None)


@pytest.fixture
def env(secured, unique_name, tmp_path):
    found = environment(secured, unique_name, tmp_path, secured=True)
    reading.create_topic(found.properties["primary"], unique_name, PARTITIONS, 1, 30)
    yield found
    found.end_processes()


def acknowledged(env):
    return env.clients.count("acks", "primary")


def consumed(env):
    return env.clients.count("polls", "primary")


def refused(env, client):
    return "authentication" in (env.folder / f"{client.name}.log").read_text().lower()


@pytest.mark.parametrize(("how", "said"), [("deleted", "is deleted"), ("changed", "has another password")])
def test_clients_are_shut_out_until_their_credentials_are_taken_again(env, how, said):
    clients = [env.clients.start(kind, "primary") for kind in ("consumer", "producer")]
    wait_until(lambda: consumed(env) >= 200, SECONDS, "200 records read")
    assert not any(refused(env, client) for client in clients)

    assert said in inject(env, ExpireCredentials(do="expire_credentials", cluster="primary", how=how))
    assert authenticates(env.applications["primary"], 60) is False
    assert authenticates(env.applications["dr"], 60) is True, "the other cluster's are as they were"
    assert authenticates(env.properties["primary"], 60) is True, "drkit has its own way in"
    wait_until(lambda: all(refused(env, client) for client in clients), SECONDS, "connections that were there, refused")
    wait_until(lambda: unanswered_since_the_last_answer(env) >= 400, SECONDS, "sends into nothing")

    before = acknowledged(env), consumed(env)
    inject(env, RenewCredentials(do="renew_credentials", cluster="primary"))
    wait_until(lambda: acknowledged(env) >= before[0] + 400, SECONDS, "the producer's return")
    wait_until(lambda: consumed(env) >= before[1] + 400, SECONDS, "the group's return")
    env.clients.stop(env.clients.running())
    assert env.clients.incomplete() == {}
    workload = env.experiment.workload
    landed = reading.read_all(env.properties["primary"], "drill-test", workload.topic, PARTITIONS, 30)
    acked = {each.record for each in env.clients.attempts() if each.outcome is AttemptOutcome.ACKED}
    assert acked <= {each.record for each in landed}


def unanswered_since_the_last_answer(env):
    answered = [each.outcome is AttemptOutcome.ACKED for each in env.clients.attempts()]
    return answered[::-1].index(True)


def test_where_nobody_authenticates_no_credentials_can_expire(lab, unique_name, tmp_path):
    found = environment(lab, unique_name, tmp_path)
    played = play(found, ExpireCredentials(do="expire_credentials", cluster="primary"))
    assert played.outcome == "unknown", "a fault that could not be made did not strike"
    assert "need no credentials" in played.reason
