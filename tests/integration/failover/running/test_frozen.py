"""A primary whose process is frozen: its kernel takes connections, nobody answers, not even with TLS."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drkit.kafka.client.data_client import DataClient
from drkit.lab import Lab
from tests.support.clusters.lab import USERS
from tests.support.clusters.tls import Pem
from tests.support.links.estates import OwnLink, mirror, open_link, own_link, texts

pytestmark = pytest.mark.lab

ENDLESS = 100.0
"""A command that isn't bounded continues for ten minutes and more."""


def ended(own: OwnLink, *words: str) -> tuple[int, dict[str, Any]]:
    """A verb's exit code and JSON document."""
    command = [sys.executable, "-m", "drkit", *words, "--config", str(own.config_path), "--output", "json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=ENDLESS, check=False, stdin=subprocess.DEVNULL
    )
    return done.returncode, json.loads(done.stdout)


def over_tls(own: OwnLink, lab: Lab, pem: Pem) -> OwnLink:
    """The same link, whose primary is reached by TLS with a user and password."""
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "mirror",
        "sasl.password": USERS["mirror"],
        "ssl.ca.location": str(pem.ca),
    }
    table = [f'bootstrap_servers = "{lab.bootstrap("primary", listener="tls")}"', "[clusters.primary.client]"]
    table += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
    text = own.config_path.read_text()
    own.config_path.write_text(text.replace(f'bootstrap_servers = "{lab.bootstrap("primary")}"', "\n".join(table)))
    own.store.close()
    return open_link(own.config_path, own.name)


def test_a_frozen_tls_primary_holds_nothing_up(secure_lab: Lab, pem: Pem, tmp_path: Path, unique_name: str) -> None:
    own = own_link(secure_lab, tmp_path, unique_name)
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 30))
    groups = [own.commit("primary", f"g{number}", topic, {0: 20, 1: number}) for number in range(15)]
    mirror(own)
    own = over_tls(own, secure_lab, pem)
    secure_lab.pause("primary")
    try:
        code, status = ended(own, "status", "--timeout", "5")
        (link,) = status["links"]
        assert code == 0
        assert {each["mirrored_through"] for each in link["partitions"]} == {30}

        code, doctor = ended(own, "doctor")
        said = {check["check"]: check for check in doctor["links"][0]["checks"]}
        assert said["clusters"]["outcome"] == "warn"
        assert "does not answer" in said["clusters"]["reason"]

        code, planned = ended(own, "failover", "--to", "dr", "--dry-run")
        assert (code, planned["needs"]) == (0, ["--accept-unfenced"])

        code, done = ended(own, "failover", "--to", "dr", "--yes", "--accept-unfenced")
        assert (code, done["state"], done["evidence"]["fenced"]) == (0, "closed", False)
        assert len({position["group"] for position in done["groups"]}) == len(groups)
        assert own.committed("dr", groups[7]) == {(topic, 0): 20, (topic, 1): 7}
    finally:
        secure_lab.resume("primary")
        own.store.close()


def test_a_frozen_tls_broker_that_never_takes_its_leave_holds_no_mirror_up(
    secure_lab: Lab, pem: Pem, tmp_path: Path, unique_name: str
) -> None:
    """TLS waits for the other side's goodbye, 30 s by default; a failover waits for the mirror to go."""
    own = over_tls(own_link(secure_lab, tmp_path, unique_name), secure_lab, pem)
    topic = own.topic("t")

    async def leave() -> None:
        client = DataClient("primary", own.config.clusters["primary"], timeout_seconds=60)
        await client.connect()
        waiting = client.track([topic])
        assert waiting is not None
        await waiting
        secure_lab.pause("primary")
        await asyncio.wait_for(client.close(), 15)

    try:
        asyncio.run(leave())
    finally:
        secure_lab.resume("primary")
        own.store.close()
