"""A link on the secured lab: its clients are the user `app`, whose rights are tested; drkit is a super user."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from jsonschema import Draft202012Validator

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.runs import is_mark
from drkit.model.topics.acls import Acl
from tests.support.clusters.lab import USERS
from tests.support.commands.running import Commands
from tests.support.links.estates import OwnLink, open_link
from tests.support.wait import wait_until

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def as_user(lab: Lab, alias: str, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": lab.bootstrap(alias, sasl=True),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def with_writer(mine: OwnLink, lab: Lab) -> OwnLink:
    """The same link; the user `app` proves its fences."""
    mine.store.close()
    text = mine.config_path.read_text()
    for alias in ("primary", "dr"):
        client = as_user(lab, alias, "app")
        servers = client.pop("bootstrap.servers")
        lines = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items())
        text += (
            f'\n[clusters.{alias}.fence]\nbootstrap_servers = "{servers}"\n[clusters.{alias}.fence.client]\n{lines}\n'
        )
    mine.config_path.write_text(text)
    return open_link(mine.config_path, mine.name)


def allow(name: str, resource: str, operation: str, user: str = "app") -> Acl:
    return Acl(resource, f"{name}.", "prefixed", f"User:{user}", "*", operation, "allow")


def put(own: OwnLink, alias: str, *wanted: Acl) -> None:
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        assert admin.create_acls(wanted) == {}
        wait_until(lambda: set(wanted) <= admin.acls(), what="the rules")


def denials(own: OwnLink, alias: str) -> set[Acl]:
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        return {
            rule
            for rule in admin.acls()
            if rule.name.startswith(own.name) and rule.permission == "deny" and not is_mark(rule)
        }


def write(lab: Lab, alias: str, topic: str) -> str:
    """The outcome of a record that `app` writes."""
    told: list[str] = []
    producer = Producer({**as_user(lab, alias, "app"), "log_level": 0})
    producer.produce(
        topic, b"later", partition=0, on_delivery=lambda error, _: told.append(error.name() if error else "written")
    )
    producer.flush(20)
    return told[0]


def verb(own: OwnLink, *words: str, code: int = 0, schema: str = "error", config: Path | None = None) -> dict[str, Any]:
    """Run a verb; returns its JSON document, valid by its schema. `config`: another file than the link's own."""
    ended = Commands(config or own.config_path).drkit(*words, "--output", "json")
    assert ended.returncode == code, f"{ended.returncode}: {ended.stdout}{ended.stderr}"
    found: dict[str, Any] = json.loads(ended.stdout)
    Draft202012Validator(json.loads((SCHEMAS / f"{schema}.schema.json").read_text())).validate(found)
    return found


def killed_at(own: OwnLink, action: str, boundary: tuple[str, str, str], salvage: str = "unused") -> None:
    """Execute an action that is killed at a boundary (`tests.support.killing.killed_run`)."""
    place = [sys.executable, "-m", "tests.support.killing.killed_run", str(own.config_path), own.name, action, salvage]
    ended = subprocess.run([*place, *boundary], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def fenced_problems(own: OwnLink, config: Path | None = None) -> list[str]:
    """The fences in `drkit status` on a cluster that should serve."""
    links = verb(own, "status", schema="status", config=config)["links"]
    return [problem["reason"] for link in links for problem in link["problems"] if problem["kind"] == "fenced"]
