"""Faults of the applications bite, on clusters with an authorizer: seen by what real clients keep and log."""

from itertools import groupby

import pytest

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.secured import LISTENERS, authenticates, new_users, tls_listeners
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.experiment.faults import (
    CorrectClock,
    ExpireCertificate,
    ExpireCredentials,
    RenewCertificate,
    RenewCredentials,
    SkewClock,
)
from drkit.drill.faults.inject import inject
from drkit.drill.judge.history import AttemptOutcome, RecordId
from drkit.drill.steps import play
from drkit.drill.workload import reading
from drkit.lab import Lab
from drkit.lab.layout import LabDir
from tests.support.collection.sampling import some_of
from tests.support.drills.drill_commands import link_of
from tests.support.links.log_reader import read_partition
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("faults of applications", 3)]

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
    return link_of(env).clients.count("acks", "primary")


def consumed(env):
    return link_of(env).clients.count("polls", "primary")


def refused(env, client):
    return "authentication" in (env.folder / f"{client.name}.log").read_text().lower()


@pytest.mark.parametrize(("how", "said"), [("deleted", "is deleted"), ("changed", "has another password")])
def test_clients_are_shut_out_until_their_credentials_are_taken_again(env, how, said):
    clients = [link_of(env).clients.start(kind, "primary") for kind in ("consumer", "producer")]
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
    link_of(env).clients.stop(link_of(env).clients.running())
    assert link_of(env).clients.incomplete() == {}
    workload = link_of(env).workload
    landed = reading.read_all(env.properties["primary"], link_of(env).drill, workload.topic, PARTITIONS, 30)
    acked = {each.record for each in link_of(env).clients.attempts() if each.outcome is AttemptOutcome.ACKED}
    assert acked <= {each.record for each in landed}


@pytest.fixture
def over_tls(tmp_path_factory, lab_guard, unique_name, tmp_path):
    """As `env`, on the lab of a drill with `lab.tls`."""
    folder = tmp_path_factory.mktemp("tls")
    lab_guard.watch(folder)
    certificates = LabDir(folder).secure
    certificates.make([])
    lab = Lab.up(folder, brokers=1, store="sqlite", users=new_users(), listeners=tls_listeners(certificates))
    found = environment(lab, unique_name, tmp_path, secured=True, tls=True)
    reading.create_topic(found.properties["primary"], unique_name, PARTITIONS, 1, 30)
    yield found
    found.end_processes()
    lab.down()


def distrusted(env, client):
    return "certificate verify failed" in (env.folder / f"{client.name}.log").read_text().lower()


def test_clients_refuse_a_certificate_that_has_expired_once_they_connect_again(over_tls):
    env = over_tls
    clients = [link_of(env).clients.start(kind, "primary") for kind in ("consumer", "producer")]
    wait_until(lambda: consumed(env) >= 200, SECONDS, "200 records read")

    assert "has expired" in inject(env, ExpireCertificate(do="expire_certificate", cluster="primary"))
    assert authenticates(env.applications["dr"], 60) is True, "the other cluster's is as it was"
    assert authenticates(env.properties["primary"], 60) is True, "drkit has its own way in"
    before = consumed(env)
    wait_until(lambda: consumed(env) >= before + 200, SECONDS, "records read over open connections")
    assert not any(distrusted(env, client) for client in clients)

    env.lab.restart("primary")
    wait_until(lambda: all(distrusted(env, client) for client in clients), SECONDS, "connections that clients refuse")
    assert authenticates(env.applications["primary"], 60) is False, "a restart renews nothing"

    before = acknowledged(env), consumed(env)
    inject(env, RenewCertificate(do="renew_certificate", cluster="primary"))
    wait_until(lambda: acknowledged(env) >= before[0] + 400, SECONDS, "the producer's return")
    wait_until(lambda: consumed(env) >= before[1] + 400, SECONDS, "the group's return")
    link_of(env).clients.stop(link_of(env).clients.running())
    assert link_of(env).clients.incomplete() == {}


def test_where_nothing_is_encrypted_no_certificate_can_expire(lab, unique_name, tmp_path):
    played = play(
        environment(lab, unique_name, tmp_path), ExpireCertificate(do="expire_certificate", cluster="primary")
    )
    assert played.outcome == "unknown"
    assert "don't use TLS" in played.reason


def unanswered_since_the_last_answer(env):
    answered = [each.outcome is AttemptOutcome.ACKED for each in link_of(env).clients.attempts()]
    return answered[::-1].index(True)


def test_where_nobody_authenticates_no_credentials_can_expire(lab, unique_name, tmp_path):
    found = environment(lab, unique_name, tmp_path)
    played = play(found, ExpireCredentials(do="expire_credentials", cluster="primary"))
    assert played.outcome == "unknown", "a fault that could not be made did not strike"
    assert "need no credentials" in played.reason


@pytest.fixture
def plain(lab, unique_name, tmp_path):
    """A producer on a cluster where nobody authenticates."""
    found = environment(lab, unique_name, tmp_path)
    reading.create_topic(found.properties["primary"], unique_name, PARTITIONS, 1, 30)
    link_of(found).clients.start("producer", "primary")
    wait_until(lambda: acknowledged(found) >= 100, SECONDS, "100 acknowledgements")
    yield found
    found.end_processes()


def test_records_are_stamped_by_a_clock_that_is_behind_until_it_is_corrected(plain):
    said = inject(plain, SkewClock(do="skew_clock", cluster="primary", seconds=-3600.0))
    assert said == "the timestamps of producer-2 on primary are 3600 s behind"
    for fault in (None, CorrectClock(do="correct_clock", cluster="primary")):
        if fault is not None:
            inject(plain, fault)
        before = acknowledged(plain)
        wait_until(lambda before=before: acknowledged(plain) >= before + 100, SECONDS, "further acknowledgements")
    link_of(plain).clients.stop(link_of(plain).clients.running())
    assert link_of(plain).clients.incomplete() == {}
    workload = link_of(plain).workload
    for partition in range(PARTITIONS):
        stamps = [one.timestamp for one in read_partition(plain.lab.bootstrap("primary"), workload.topic, partition)]
        late = ["late" if stamp < stamps[0] - 1_800_000 else "right" for stamp in stamps]
        assert [key for key, _ in groupby(late)] == ["right", "late", "right"]


def test_records_stamped_too_far_ahead_are_refused_by_the_broker(plain):
    """`message.timestamp.after.max.ms` is an hour by default."""
    inject(plain, SkewClock(do="skew_clock", cluster="primary", seconds=7200.0))
    (ahead,) = link_of(plain).clients.running("producer")
    wait_until(lambda: ahead.ledger.count("attempts") >= 200, SECONDS, "attempts")
    link_of(plain).clients.stop([ahead])
    assert ahead.ledger.count("acks") == 0
    workload = link_of(plain).workload
    landed = reading.read_all(plain.properties["primary"], link_of(plain).drill, workload.topic, PARTITIONS, 30)
    sent = {RecordId(str(key), int(seq)) for key, seq, *_ in ahead.ledger.attempts()}
    assert not sent & {each.record for each in landed}


def test_where_no_producer_runs_no_clock_is_wrong(plain):
    assert play(plain, SkewClock(do="skew_clock", cluster="dr")).outcome == "unknown"
