"""`drkit lab up --secure`: drkit with the rights of `drkit acls` alone, from the mirror to a failover and its fence."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from jsonschema import Draft202012Validator

from drkit.config import load_config
from drkit.lab import Lab
from drkit.lab.toolchain import ensure
from tests.support.clusters.guard import Guard
from tests.support.commands.running import Commands

pytestmark = pytest.mark.lab
PATIENT = ("--timeout", "30")
"""Two TLS handshakes may take more than a second on a busy machine."""
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "lab.schema.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("secured")
    lab_guard.watch(folder)
    yield folder
    if (folder / "lab.json").exists():
        Lab.open(folder).down()


def test_from_up_to_a_fenced_failover(folder: Path) -> None:
    """One story: the steps stand on each other."""
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

    loaded = drkit("lab", "load", "flights", "--limit", "2000", "--dir", str(folder), own_process=True)
    assert loaded.returncode == 0, loaded.stderr
    said = [up.stdout + up.stderr + loaded.stdout + loaded.stderr]
    for words, code in (  # 6: done, and slower than the objectives of a lab
        (("config", "check", "--connect", *PATIENT), 0),
        (("mirror", "--until-caught-up"), 0),
        (("status", *PATIENT), 0),
        (("doctor", "--to", "dr", *PATIENT), 0),
        (("failover", "--to", "dr", "--dry-run"), 0),
        (("mirror",), None),
        (("failover", "--to", "dr", "--planned", "--yes"), (0, 6)),
        (("runs",), 0),
        (("status", *PATIENT), 0),
    ):
        if code is None:
            mirror = commands.process()
            continue
        ended = drkit(*words, "--output", "json", own_process=True)
        assert ended.returncode in (code if isinstance(code, tuple) else (code,)), (
            f"{words}: {ended.stdout}{ended.stderr}"
        )
        said.append(ended.stdout + ended.stderr)
    out, err = mirror.communicate(timeout=60)  # the link is sealed: it ends by itself
    said.append(out + err)
    assert not [secret for secret in secrets if any(secret in text for text in said)]

    config = load_config(folder / "drkit.toml")
    assert _write(config.clusters["primary"].writer().properties(), lab.bootstrap("primary", listener="scram")) == (
        "TOPIC_AUTHORIZATION_FAILED"
    )
    assert _write(config.clusters["dr"].writer().properties(), lab.bootstrap("dr", listener="scram")) == "written"

    asked = _groups(lab.bootstrap("dr", listener="scram"), folder / "secure" / "app@dr.properties")
    assert "flights-live" in asked.stdout, asked.stderr


def test_up_again_says_what_it_is_and_an_open_one_is_refused(folder: Path) -> None:
    drkit = Commands(folder / "drkit.toml").drkit
    again = drkit("lab", "up", "--dir", str(folder), own_process=True)
    assert again.returncode == 0, again.stderr
    assert "up already" in again.stdout
    refused = drkit("lab", "up", "--open", "--dir", str(folder), own_process=True)
    assert refused.returncode == 3
    assert "has security" in refused.stderr


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
