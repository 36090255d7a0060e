"""`drkit lab up --secure`: drkit with the rights of `drkit acls` alone, in all of its commands: from the mirror to
failovers and back."""

from __future__ import annotations

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from jsonschema import Draft202012Validator

from drkit.config import load_config
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.lab.secure import LISTENER, drkit_user
from drkit.lab.toolchain import ensure
from drkit.model.topics.acls import Acl
from drkit.model.topology import TopicPartition
from tests.support.clusters.guard import Guard
from tests.support.commands.every_command import command_of, every_command
from tests.support.commands.running import Commands
from tests.support.killing.killed_process import killed
from tests.support.links.estates import open_link
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
LINK = "primary->dr"
PATIENT = ("--timeout", "30")
"""Two TLS handshakes may take more than a second on a busy machine."""
MOVED = (0, 6)
"""Done, and perhaps slower than the objectives of a lab."""
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "lab.schema.json").read_text())
ELSEWHERE = {
    "config schema": "prints what a configuration may say",
    "demo": "makes a lab of its own, which is open",
    "drill coverage": "reads experiments and kept drills",
    "drill export": "writes an experiment in another form",
    "drill history": "reads kept drills",
    "drill random": "makes labs of its own, which are open",
    "drill report": "reads a kept drill",
    "drill schedule": "starts `drkit drill run` by the clock",
    "jars fetch": "fetches jars",
}
"""Commands that ask nothing of a secured cluster and its store, and why."""
OF_SPARK = {"audit", "audit group", "audit watch", "failback", "reprotect", "salvage"}
"""Commands that need Spark, but for their plans."""


class Story:
    """Runs drkit's commands on one secured lab; keeps what they said, and which of them were carried out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "drkit.toml"
        self.said: list[str] = []
        self.carried_out: set[str] = set()

    @property
    def lab(self) -> Lab:
        return Lab.open(self.folder)

    def show(self, *words: str, codes: tuple[int, ...] = (0,), config: Path | None = None) -> str:
        """Run a command to its end; returns its stdout."""
        ended = Commands(config or self.config).drkit(*words, "--verbose", own_process=True)
        return self._ended(words, ended, codes)

    def play(self, *words: str, codes: tuple[int, ...] = (0,), config: Path | None = None) -> dict[str, Any]:
        """The same; returns its document."""
        stdout = self.show(*words, "--output", "json", "--log-format", "json", codes=codes, config=config)
        found: dict[str, Any] = json.loads(stdout.splitlines()[-1] if words[0] == "mirror" else stdout)
        return found

    def quick(self, *words: str) -> None:
        """Run a command that asks no cluster in this process, which is faster and shows as much."""
        self._ended(words, Commands(self.config).drkit(*words, "--verbose"), (0,))

    def of_lab(self, *words: str) -> str:
        """A command about the lab itself."""
        return self.show("lab", *words, "--dir", str(self.folder))

    @contextmanager
    def running(
        self, *words: str, ended_by: signal.Signals | None = signal.SIGTERM, code: int = 0
    ) -> Iterator[subprocess.Popen[str]]:
        """A command that runs beside the block; at its end it ends by a signal (None: by itself) with that code."""
        command = [sys.executable, "-m", "drkit", *words, "--verbose", "--config", str(self.config)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            yield process
            if ended_by is not None:
                process.send_signal(ended_by)
            out, err = process.communicate(timeout=120)
            self._ended(words, subprocess.CompletedProcess(command, process.returncode, out, err), (code,))
        finally:
            process.kill()
            process.communicate()

    def _ended(self, words: Sequence[str], ended: subprocess.CompletedProcess[str], codes: Sequence[int]) -> str:
        self.said.append(ended.stdout + ended.stderr)
        assert ended.returncode in codes, f"{words}: {ended.stdout}{ended.stderr}"
        if "--dry-run" not in words:
            self.carried_out.add(command_of(words))
        return ended.stdout

    def administrator(self, alias: str) -> ClusterAdmin:
        """By the plain listener: a super user."""
        return ClusterAdmin(alias, ClusterConfig(bootstrap_servers=self.lab.bootstrap(alias)))

    def write(self, alias: str, topic: str = "flights") -> str:
        """What comes of a record that the applications' user writes."""
        told: list[str] = []
        client = load_config(self.config).clusters[alias].writer().properties()
        servers = self.lab.bootstrap(alias, listener=LISTENER)
        producer = Producer({**client, "bootstrap.servers": servers, "message.timeout.ms": "10000", "log_level": 0})
        producer.produce(
            topic,
            b"later",
            partition=0,
            on_delivery=lambda error, _: told.append(error.name() if error else "written"),
        )
        producer.flush(20)
        return told[0]


@pytest.fixture
def folder(tmp_path: Path, lab_guard: Guard) -> Iterator[Path]:
    folder = tmp_path / "secured"
    lab_guard.watch(folder)
    yield folder
    if (folder / "lab.json").exists():
        Lab.open(folder).down()


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.spark])])
def test_every_command_from_up_to_failovers_and_back(folder: Path, whole: bool) -> None:
    """One story: the steps stand on each other. `whole`: with what needs Spark, and so with the way back."""
    story = Story(folder)
    secrets = _up(story)
    _while_the_primary_serves(story)
    if whole:
        _compared(story)
    _given_up(story)
    _planned(story)
    if whole:
        _failed_back(story)
    else:
        story.show("fence", "--lift", "--cluster", "primary", "--yes")
    _primary_lost(story)
    if whole:
        _reprotected(story)
    _check_secrets(secrets, story)
    _down(story)
    assert story.carried_out == every_command() - set(ELSEWHERE) - (set() if whole else OF_SPARK)


def _up(story: Story) -> list[str]:
    """The lab with its data; returns its secrets."""
    folder = story.folder
    document = story.play("lab", "up", "--secure", "--store", "sqlite", "--dir", str(folder))
    Draft202012Validator(SCHEMA).validate(document)
    secrets = [path.read_text().strip() for path in (folder / "secure").glob("*.password")]
    assert len(secrets) == 3
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder / "secure").iterdir() if path.name != "ca.pem"}
    assert modes == {0o600}
    assert {node["bootstrap"] for node in document["nodes"]} == {
        story.lab.bootstrap(alias, listener=LISTENER) for alias in story.lab.clusters
    }
    story.of_lab("load", "flights", "--limit", "500")
    assert "is up already" in " ".join(story.of_lab("up").split())
    refused = Commands(story.config).drkit("lab", "up", "--open", "--dir", str(folder), own_process=True)
    assert refused.returncode == 3
    assert "has security" in refused.stderr
    story.of_lab("pause", "dr")
    story.of_lab("resume", "dr")
    assert "paused" not in story.of_lab("status")
    return secrets


def _down(story: Story) -> None:
    """Its nodes, certificates and passwords are gone; what commands were told to write stays."""
    story.of_lab("down")
    assert not list(story.folder.glob("secure*")) + list(story.folder.glob("lab.json"))
    assert (story.folder / "evidence").is_dir()


def _check_secrets(secrets: list[str], story: Story) -> None:
    """They are in nothing that was said or written but in their own folder; what was written is its owner's alone."""
    folder = story.folder
    assert not [secret for secret in secrets if any(secret in text for text in story.said)]
    assert _that_holds(secrets, folder) == [folder / "secure"]
    assert _that_holds(secrets, Path(os.environ["XDG_STATE_HOME"])) == []
    made = [folder / name for name in ("drkit.toml", "made/drkit.toml", "plan.json", "store.gz", "approver")]
    made += [*folder.glob("drkit.db*"), *_files(folder / "evidence")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _that_holds(secrets: list[str], folder: Path) -> list[Path]:
    """The files below a folder that hold a secret, packed or not; of the folder that keeps a lab's, that one alone.

    Below a lab's folder are its nodes' data and logs, the store, configurations, plans, bundles and copies.
    """
    found = {path for path in _files(folder) if any(secret.encode() in _unpacked(path) for secret in secrets)}
    kept = folder / "secure"
    return sorted({kept if kept in path.parents else path for path in found})


def _unpacked(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _while_the_primary_serves(story: Story) -> None:
    """From a configuration to the plan of a failover; the store is lost, copied and restored on the way."""
    folder = story.folder
    (folder / "made").mkdir()
    proposed = story.play("init", *_clients_of(story.lab), config=folder / "made" / "drkit.toml")
    assert "flights-live" in proposed["groups"]
    story.quick("config", "show")
    story.show("config", "check", "--connect", *PATIENT)
    for each in story.play("acls")["clusters"]:
        with story.administrator(each["cluster"]) as admin:
            there = {rule for rule in admin.acls() if rule.principal == each["principal"]}
        assert there == {rule for rule in _rules(each) if rule.resource in {"topic", "group"}}, "and no more"
    with story.administrator("primary") as admin:
        admin.create_topic("cut", partitions=1, replication_factor=1)
    assert story.write("primary", "cut") == "written"
    story.play("mirror", "--until-caught-up")
    positions = story.play("translate", "--group", "flights-live")["positions"]
    assert {each["translation"] for each in positions} == {"exact"}

    (folder / "burnt").mkdir()
    for path in folder.glob("drkit.db*"):
        path.rename(folder / "burnt" / path.name)
    (found,) = story.play("store", "recover", "--from", "dr")["links"]
    assert (found["left_out"], found["conservative"]) == ([], [])
    story.show("link", "recover", LINK)
    story.show("link", "pause", LINK)
    story.quick("store", "backup", "--out", str(folder / "store.gz"))
    story.show("store", "restore", "--from", str(folder / "store.gz"), "--replace")
    story.quick("store", "migrate")
    story.show("link", "resume", LINK)

    assert [story.write("primary", "cut") for _ in range(2)] == ["written"] * 2
    with story.administrator("primary") as admin:
        admin.delete_records({TopicPartition("cut", 0): 2})
    story.play("mirror", "--until-caught-up")
    story.show("link", "acknowledge", LINK, "retention_gap", "--topic", "cut")
    with story.running("status", "--watch", "--interval", "1", "--output", "json", ended_by=signal.SIGINT) as watching:
        assert watching.stdout is not None
        (link,) = json.loads(watching.stdout.readline())["links"]
    assert (link["problems"], link["recovery_point"]["records"]) == ([], 0)
    story.show("status", *PATIENT)
    story.play("doctor", "--to", "dr", *PATIENT)
    assert story.play("endpoint", "--link", LINK)["cluster"] == "primary"
    rehearsed = story.play("drill", "run", "--target", "estate", "--to", "dr", codes=MOVED)
    assert [each["state"] for each in rehearsed["rehearsals"]] == ["closed"]
    story.show("failover", "--to", "dr", "--dry-run", "--out", str(folder / "plan.json"))
    story.quick("evidence", "key", "--out", str(folder / "approver"))
    approved = ("--key", str(folder / "approver"), "--out", str(folder / "approval"))
    story.quick("evidence", "approve", str(folder / "plan.json"), *approved)
    _page(story)


def _clients_of(lab: Lab) -> Iterator[str]:
    """How `drkit init` is told of the clusters, and of drkit's user on each."""
    for side, alias in (("source", "primary"), ("target", "dr")):
        yield from (f"--{side}", f"{alias}={lab.bootstrap(alias, listener=LISTENER)}")
        for name, value in lab.secure_dir.client(drkit_user(alias)).items():
            yield from (f"--{side}-client", f"{name}={value if isinstance(value, str) else 'file:' + value['file']}")


def _page(story: Story) -> None:
    """`drkit serve` until it answers that a failover would be accepted."""
    with story.running("serve", "--listen", "127.0.0.1:0", "--output", "json") as server:
        assert server.stdout is not None
        url = json.loads("".join(server.stdout.readline() for _ in range(3)))["url"]

        def answered() -> str:
            with urllib.request.urlopen(f"{url}/api/summary", timeout=30) as answer:
                text: str = answer.read().decode()
            assert [each["answer"] for each in json.loads(text)["decisions"]] == ["yes"], text
            return text

        story.said.append(wait_until(answered, 120, "the page's yes"))
        with urllib.request.urlopen(f"{url}/status.json", timeout=30) as answer:
            story.said.append(answer.read().decode())


def _compared(story: Story) -> None:
    """What Spark reads while the primary serves."""
    assert story.play("audit")["verdict"] == "clean"
    words = ("--interval", "1", "--checkpoint", str(story.folder / "checkpoint"), "--log-format", "json")
    with story.running("audit", "watch", *words) as watching:
        assert watching.stderr is not None
        next(line for line in watching.stderr if "ranges are equal" in line)
    story.play("salvage", "--out", str(story.folder / "kept"))


def _given_up(story: Story) -> None:
    """A planned failover whose process is killed behind the fence, and that an operator then gives up."""
    own = open_link(story.config, "flights")
    killed(own, "planned", story.folder / "none", ("drain", "intent", "after"))
    own.store.close()
    run = story.play("runs")["runs"][0]["run"]
    done = story.play("abandon", run)
    assert (done["serves"], done["open"]) == ("primary", True)
    assert story.write("primary", "cut") == "written"


def _planned(story: Story) -> None:
    """A planned failover beside a mirror, and what is said of it afterwards."""
    evidence = str(story.folder / "evidence")
    with story.running("mirror", ended_by=None, code=3) as mirror:  # the link is sealed: it ends by itself
        assert mirror.stderr is not None
        next(line for line in mirror.stderr if "mirroring" in line)
        run = story.play("failover", "--to", "dr", "--planned", "--yes", codes=MOVED)["run"]
        story.show("runs", run)
        story.show("evidence", "export", run, "--out", evidence)
        story.quick("evidence", "verify", evidence)
        story.show("status", *PATIENT)
        story.show("fence")
        story.show("reprotect", "--dry-run")
        story.show("failback", "--dry-run")
    story.show("link", "trim", LINK)
    assert story.write("primary") == "TOPIC_AUTHORIZATION_FAILED"
    for user, listener in (("app", LISTENER), ("admin", None)):
        asked = _groups(story.lab.bootstrap("dr", listener=listener), story.folder / "secure" / f"{user}@dr.properties")
        assert "flights-live" in asked.stdout, asked.stderr


def _failed_back(story: Story) -> None:
    """The way back of a planned failover, with a record that dr has got meanwhile."""
    story.play("audit", "group", "flights-lagging")
    assert story.write("dr") == "written"
    story.play("failback", "--yes", "--cluster-id", story.lab.cluster_id("primary"), codes=MOVED)
    assert story.play("endpoint", "--link", LINK)["cluster"] == "primary"
    assert story.write("dr") == "TOPIC_AUTHORIZATION_FAILED"


def _primary_lost(story: Story) -> None:
    """The primary dies with a record that is nowhere else, the failover's process in its first stage; the primary
    comes back, and is fenced."""
    story.play("mirror", "--until-caught-up")
    assert story.write("primary", "cut") == "written"
    story.of_lab("kill", "primary")
    unfenced = ("--yes", "--accept-unfenced")
    failover = ("failover", "--to", "dr", "--unplanned", *unfenced, "--log-format", "json")
    with story.running(*failover, ended_by=signal.SIGKILL, code=-signal.SIGKILL) as failing:
        assert failing.stderr is not None
        story.said.append(next(line for line in failing.stderr if '"stage":' in line.replace(" ", "")))
    done = story.play("resume", *unfenced, codes=MOVED)
    assert (done["state"], done["evidence"]["fenced"]) == ("closed", False)
    story.of_lab("restart", "primary")
    assert [each["fenced"] for each in story.play("fence")["links"]] == [True]
    assert story.write("primary") == "TOPIC_AUTHORIZATION_FAILED"
    assert story.write("dr") == "written"
    story.show("fence", "--lift")
    story.quick("audit", "history")


def _reprotected(story: Story) -> None:
    """What only the old primary holds comes back by a topic of its own; then it is the standby for good."""
    with story.administrator("dr") as admin:
        admin.create_topic("returned", partitions=1, replication_factor=1)
    for each in story.play("acls", "--command", "salvage", "--replay-to", "returned")["clusters"]:
        with story.administrator(each["cluster"]) as admin:
            assert admin.create_acls(_rules(each)) == {}
    back = story.play("salvage", "--out", str(story.folder / "back"), "--replay-to", "returned")
    assert back["replayed"]["written"] == 1
    failover = next(each["run"] for each in story.play("runs")["runs"] if each["kind"] == "failover")
    story.play("runs", failover, "--audit")
    story.play("reprotect", "--yes", "--cluster-id", story.lab.cluster_id("primary"), codes=MOVED)
    links = story.play("status", *PATIENT)["links"]
    assert [(each["source"], each["state"]) for each in links] == [("primary", "reversed"), ("dr", "stopped")]


def _rules(printed: dict[str, Any]) -> set[Acl]:
    """The rules of what `drkit acls` prints for a principal."""
    who = printed["principal"]
    return {
        Acl(each["resource"], each["name"], each["pattern"], who, "*", each["operation"], "allow")
        for each in printed["rights"]
    }


def _groups(bootstrap: str, properties: Path) -> subprocess.CompletedProcess[str]:
    """Kafka's own tool lists the groups, as that user."""
    tools = ensure("mirrormaker")
    command = ["org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap]
    return subprocess.run(
        [
            str(tools.java),
            "-cp",
            tools.classpath("mirrormaker"),
            *command,
            "--command-config",
            str(properties),
            "--list",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
