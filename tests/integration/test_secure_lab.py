"""`drkit lab up --secure`: drkit with the rights of `drkit acls` alone, from the mirror to a failover and back."""

from __future__ import annotations

import gzip
import json
import os
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from jsonschema import Draft202012Validator

from drkit.config import Config, load_config
from drkit.lab import Lab
from drkit.lab.secure import LISTENER, drkit_user
from drkit.lab.toolchain import ensure
from tests.support.clusters.guard import Guard
from tests.support.commands.running import Commands
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
LINK = "primary->dr"
PATIENT = ("--timeout", "30")
"""Two TLS handshakes may take more than a second on a busy machine."""
MOVED = (0, 6)
"""Done, and perhaps slower than the objectives of a lab."""
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "lab.schema.json").read_text())


@pytest.fixture
def folder(tmp_path: Path, lab_guard: Guard) -> Iterator[Path]:
    folder = tmp_path / "secured"
    lab_guard.watch(folder)
    yield folder
    if (folder / "lab.json").exists():
        Lab.open(folder).down()


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.spark])])
def test_from_up_to_a_fenced_failover_and_back(folder: Path, whole: bool) -> None:
    """One story: the steps stand on each other. `whole`: with what needs Spark, and so with the way back."""
    commands = Commands(folder / "drkit.toml")
    drkit = commands.drkit
    up = drkit("lab", "up", "--secure", "--store", "sqlite", "--dir", str(folder), "--output", "json", own_process=True)
    assert up.returncode == 0, up.stderr
    document = json.loads(up.stdout)
    Draft202012Validator(SCHEMA).validate(document)
    secrets = [path.read_text().strip() for path in (folder / "secure").glob("*.password")]
    assert len(secrets) == 3
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder / "secure").iterdir() if path.name != "ca.pem"}
    assert modes == {0o600}
    lab = Lab.open(folder)
    assert {node["bootstrap"] for node in document["nodes"]} == {
        lab.bootstrap(alias, listener="scram") for alias in lab.clusters
    }

    loaded = drkit("lab", "load", "flights", "--limit", "2000", "--dir", str(folder), "--verbose", own_process=True)
    assert loaded.returncode == 0, loaded.stderr
    said = [up.stdout + up.stderr + loaded.stdout + loaded.stderr]

    def show(*words: str, codes: tuple[int, ...] = (0,), by: Commands = commands) -> str:
        ended = by.drkit(*words, "--verbose", own_process=True)
        said.append(ended.stdout + ended.stderr)
        assert ended.returncode in codes, f"{words}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def play(*words: str, codes: tuple[int, ...] = (0,), by: Commands = commands) -> dict[str, Any]:
        stdout = show(*words, "--output", "json", "--log-format", "json", codes=codes, by=by)
        found: dict[str, Any] = json.loads(stdout.splitlines()[-1] if words[0] == "mirror" else stdout)
        return found

    _before(play, show, lab, folder, whole=whole)
    said.append(_page(folder / "drkit.toml"))
    mirror = commands.process("--verbose")
    run = play("failover", "--to", "dr", "--planned", "--yes", codes=MOVED)["run"]
    show("runs", run)
    show("evidence", "export", run, "--out", str(folder / "evidence"))
    show("status", *PATIENT)
    show("fence")
    show("reprotect", "--dry-run")
    show("failback", "--dry-run")
    out, err = mirror.communicate(timeout=60)  # the link is sealed: it ends by itself
    said.append(out + err)

    config = load_config(folder / "drkit.toml")
    assert _write(config.clusters["primary"].writer().properties(), lab.bootstrap("primary", listener="scram")) == (
        "TOPIC_AUTHORIZATION_FAILED"
    )
    assert _write(config.clusters["dr"].writer().properties(), lab.bootstrap("dr", listener="scram")) == "written"

    for user, listener in (("app", "scram"), ("admin", None)):
        asked = _groups(lab.bootstrap("dr", listener=listener), folder / "secure" / f"{user}@dr.properties")
        assert "flights-live" in asked.stdout, asked.stderr

    if whole:
        _back(play, lab, config)
    _check_secrets(secrets, said, folder)

    again = drkit("lab", "up", "--dir", str(folder), own_process=True)
    assert again.returncode == 0, again.stderr
    assert "is up already" in " ".join(again.stdout.split())
    refused = drkit("lab", "up", "--open", "--dir", str(folder), own_process=True)
    assert refused.returncode == 3
    assert "has security" in refused.stderr


def _check_secrets(secrets: list[str], said: list[str], folder: Path) -> None:
    """They are in nothing that was said or written but in their own folder; what was written is its owner's alone."""
    assert not [secret for secret in secrets if any(secret in text for text in said)]
    assert _that_holds(secrets, folder) == [folder / "secure"]
    assert _that_holds(secrets, Path(os.environ["XDG_STATE_HOME"])) == []
    made = [folder / name for name in ("drkit.toml", "made/drkit.toml", "drkit.db", "plan.json", "store.gz")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in [*made, *_files(folder / "evidence")]} == {0o600}


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


def _before(
    play: Callable[..., dict[str, Any]], show: Callable[..., str], lab: Lab, folder: Path, *, whole: bool
) -> None:
    """What is done while the primary serves: from a configuration to the plan of a failover."""
    (folder / "made").mkdir()
    proposed = play("init", *_clients_of(lab), by=Commands(folder / "made" / "drkit.toml"))
    assert "flights-live" in proposed["groups"]
    show("config", "check", "--connect", *PATIENT)
    play("mirror", "--until-caught-up")
    play("status", *PATIENT)
    play("doctor", "--to", "dr", *PATIENT)
    positions = play("translate", "--group", "flights-live")["positions"]
    assert {each["translation"] for each in positions} == {"exact"}
    show("link", "pause", LINK)
    show("link", "resume", LINK)
    show("store", "backup", "--out", str(folder / "store.gz"))
    if whole:
        assert play("audit")["verdict"] == "clean"
        play("salvage", "--out", str(folder / "kept"))
    play("failover", "--to", "dr", "--rehearse", "--yes", codes=MOVED)
    show("failover", "--to", "dr", "--dry-run", "--out", str(folder / "plan.json"))


def _back(play: Callable[..., dict[str, Any]], lab: Lab, config: Config) -> None:
    """After the failover: what else may be done about it, and the way back."""
    play("failback", "--yes", "--cluster-id", lab.cluster_id("primary"), codes=MOVED)
    assert play("endpoint", "--link", LINK)["cluster"] == "primary"
    assert _write(config.clusters["dr"].writer().properties(), lab.bootstrap("dr", listener="scram")) == (
        "TOPIC_AUTHORIZATION_FAILED"
    )
    play("mirror", "--until-caught-up")


def _clients_of(lab: Lab) -> Iterator[str]:
    """How `drkit init` is told of the clusters, and of drkit's user on each."""
    for side, alias in (("source", "primary"), ("target", "dr")):
        yield from (f"--{side}", f"{alias}={lab.bootstrap(alias, listener=LISTENER)}")
        for name, value in lab.secure_dir.client(drkit_user(alias)).items():
            yield from (f"--{side}-client", f"{name}={value if isinstance(value, str) else 'file:' + value['file']}")


def _page(config: Path) -> str:
    """What `drkit serve` says until it answers that a failover would be accepted."""
    words = ["serve", "--listen", "127.0.0.1:0", "--output", "json", "--config", str(config)]
    server = subprocess.Popen(
        [sys.executable, "-m", "drkit", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = json.loads("".join(server.stdout.readline() for _ in range(3)))["url"]

        def answered() -> str:
            with urllib.request.urlopen(f"{url}/api/summary", timeout=30) as answer:
                text: str = answer.read().decode()
            assert [each["answer"] for each in json.loads(text)["decisions"]] == ["yes"], text
            return text

        text = wait_until(answered, 120, "the page's yes")
        with urllib.request.urlopen(f"{url}/status.json", timeout=30) as answer:
            text += answer.read().decode()
        server.send_signal(signal.SIGTERM)
        rest = server.communicate(timeout=60)
        assert server.returncode == 0, rest
        return text + "".join(rest)
    finally:
        server.kill()
        server.communicate()


def _write(client: dict[str, str], bootstrap: str) -> str:
    """What comes of a record that the applications' user writes."""
    told: list[str] = []
    producer = Producer({**client, "bootstrap.servers": bootstrap, "message.timeout.ms": "10000", "log_level": 0})
    producer.produce(
        "flights", b"later", partition=0, on_delivery=lambda error, _: told.append(error.name() if error else "written")
    )
    producer.flush(20)
    return told[0]


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
