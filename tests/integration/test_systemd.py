"""deploy/systemd on a host with a systemd of its own, set up by the commands of docs/deploy.md."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from drkit.lab import Lab
from tests.support.clusters.systemd_host import ROOT, SOURCE, SystemdHost, systemd_host
from tests.support.clusters.topics import create_topic
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

SECONDS = 120.0
CONFIG = "/etc/drkit/drkit.toml"
RUNNING = ("drkit-mirror.service", "drkit-serve.service")
ANY_PORT = "[Service]\nExecStart=\nExecStart=/opt/drkit/bin/drkit mirror --metrics-port 0\n"
"""What is the test's own of the units: a port that nobody on this machine has."""


def documented() -> str:
    """The commands by which docs/deploy.md sets a host up."""
    section = (ROOT / "docs" / "deploy.md").read_text().partition("## Hosts: systemd")[2].partition("\n## ")[0]
    (commands,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[:1]
    return str(commands)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SystemdHost]:
    """A host that has drkit, and nothing of it that runs."""
    with systemd_host(tmp_path_factory.mktemp("host")) as host:
        yield host


def configuration(lab: Lab, topics: str) -> str:
    clusters = "".join(
        f'[clusters.{alias}]\nbootstrap_servers = "{lab.bootstrap(alias)}"\n' for alias in ("primary", "dr")
    )
    return f"""\
{clusters}
[serve]
listen = "127.0.0.1:0"
[store]
url = "sqlite:////var/lib/drkit/drkit.db"
[[links]]
source = "primary"
target = "dr"
topics = ["{topics}"]
"""


def create(lab: Lab, topic: str) -> None:
    create_topic(
        {"bootstrap.servers": lab.bootstrap("primary")}, NewTopic(topic, num_partitions=1, replication_factor=1)
    )


def write(lab: Lab, topic: str, count: int, alias: str = "primary") -> None:
    producer = Producer({"bootstrap.servers": lab.bootstrap(alias)})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0


def mirrored(host: SystemdHost, topic: str, count: int) -> bool:
    """Whether the page, at the address that its journal has last, says so of the topic."""
    addresses = re.findall(r"http://127\.0\.0\.1:\d+", host.journal("drkit-serve"))
    assert addresses, "it listens"
    try:
        with urllib.request.urlopen(f"{addresses[-1]}/status.json", timeout=30) as answer:
            (link,) = json.load(answer)["links"]
    except OSError:  # that of the process before
        return False
    return any(each["topic"] == topic and each["mirrored_through"] == count for each in link["partitions"])


@pytest.fixture(scope="module")
def deployed(host: SystemdHost, lab: Lab) -> SystemdHost:
    """The same, after the documented commands."""
    host.write("/root/drkit.toml", configuration(lab, "none"))
    host.done("ln", "-s", f"{SOURCE}/deploy", "/root/deploy")
    host.write("/etc/systemd/system/drkit-mirror.service.d/port.conf", ANY_PORT)
    host.done("sh", "-ec", documented(), folder="/root")
    return host


@pytest.fixture
def topic(deployed: SystemdHost, lab: Lab, unique_name: str) -> str:
    """A topic that both run with by now, and that is mirrored."""
    create(lab, unique_name)
    write(lab, unique_name, 500)
    deployed.write(CONFIG, configuration(lab, f"{unique_name}.*"))
    for unit in RUNNING:
        deployed.done("systemctl", "restart", unit)
    wait_until(lambda: mirrored(deployed, unique_name, 500), SECONDS, "all of the topic on dr")
    return unique_name


def test_the_documented_commands_make_a_host_that_mirrors(deployed: SystemdHost, topic: str) -> None:
    assert topic
    for unit in (*RUNNING, "drkit-audit.timer", "drkit-drill.timer"):
        found = deployed.unit(unit)
        assert (found["ActiveState"], found["UnitFileState"]) == ("active", "enabled"), unit
    written = deployed.done("find", "/var/lib/drkit", "/var/cache/drkit", "-printf", "%u %m %p\n")
    assert {line.split()[0] for line in written.splitlines()} == {"drkit"}
    assert "drkit 700 /var/lib/drkit\n" in written


def test_a_reload_takes_over_what_changed_and_nothing_of_a_broken_file(
    deployed: SystemdHost, lab: Lab, topic: str
) -> None:
    for unit in RUNNING:
        before = deployed.unit(unit)["MainPID"]
        deployed.write(CONFIG, "nonsense = [")
        deployed.done("systemctl", "reload", unit)
        wait_until(lambda unit=unit: "the configuration is not reloaded" in deployed.journal(unit), SECONDS, "its log")
        deployed.write(CONFIG, configuration(lab, f"{topic}.*|later-{topic}"))
        deployed.done("systemctl", "reload", unit)
        wait_until(lambda unit=unit: "is reloaded; changed: links.0.topics" in deployed.journal(unit), SECONDS, "it")
        assert deployed.unit(unit)["MainPID"] == before
    create(lab, f"later-{topic}")
    write(lab, f"later-{topic}", 10)
    wait_until(lambda: mirrored(deployed, f"later-{topic}", 10), SECONDS, "what the new pattern names")


def test_a_mirror_that_is_killed_starts_again_where_it_was(deployed: SystemdHost, lab: Lab, topic: str) -> None:
    deployed.done("systemctl", "kill", "--signal=KILL", "drkit-mirror")
    wait_until(lambda: deployed.unit("drkit-mirror")["NRestarts"] == "1", SECONDS, "another start")
    write(lab, topic, 500)
    wait_until(lambda: mirrored(deployed, topic, 1_000), SECONDS, "the rest of the topic")


def test_a_wrong_configuration_is_not_tried_again(deployed: SystemdHost, topic: str) -> None:
    assert topic
    deployed.write(CONFIG, "nonsense = [")
    for unit in RUNNING:
        deployed.done("systemctl", "restart", unit)
        wait_until(lambda unit=unit: deployed.unit(unit)["ActiveState"] == "failed", SECONDS, "its end")
        found = deployed.unit(unit)
        assert (found["SubState"], found["ExecMainStatus"], found["NRestarts"]) == ("failed", "2", "0"), unit


@pytest.mark.spark
def test_an_audit_runs_within_its_unit_and_fails_it_where_records_deviate(
    deployed: SystemdHost, lab: Lab, topic: str
) -> None:
    deployed.done("systemctl", "stop", "drkit-mirror")
    write(lab, topic, 1, alias="dr")
    assert deployed.run("systemctl", "start", "drkit-audit").returncode != 0
    said = deployed.journal("drkit-audit")
    assert deployed.unit("drkit-audit")["ExecMainStatus"] == "5", said
    assert "deviated  500 source and 501 target records" in said


def test_a_stop_is_no_failure_whenever_it_comes(deployed: SystemdHost, topic: str) -> None:
    assert topic
    for unit in RUNNING:
        deployed.done("systemctl", "stop", unit)
        found = deployed.unit(unit)
        assert (found["ActiveState"], found["Result"], found["ExecMainStatus"]) == ("inactive", "success", "0"), unit
    assert "primary->dr: ended in order" in deployed.journal("drkit-mirror")
    for unit in RUNNING:
        deployed.done("systemctl", "start", unit)
        wait_until(lambda unit=unit: begun(deployed, unit), SECONDS, "drkit to answer signals")
        deployed.done("systemctl", "stop", unit)
        found = deployed.unit(unit)
        assert (found["ActiveState"], found["Result"]) == ("inactive", "success"), f"{unit}: {found['ExecMainStatus']}"


def begun(host: SystemdHost, unit: str) -> bool:
    """Whether drkit answers signals by now, which it does some time before it listens or leads."""
    status = host.done("cat", f"/proc/{host.unit(unit)['MainPID']}/status")
    (caught,) = re.findall(r"^SigCgt:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
