"""Grants the user `exact` of the secure lab exactly the rights that `drkit acls` prints, and revokes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.lab import Lab
from tests.support.clusters.secured import as_user
from tests.support.links.estates import OwnLink, open_link
from tests.support.wait import wait_until

USER = "exact"
PRINCIPAL = f"User:{USER}"
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
_SECONDS = 15.0
_PATIENCE = 120.0
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


def as_exact(own: OwnLink, lab: Lab) -> OwnLink:
    """The same link and store, with the user `exact`."""
    text = own.config_path.read_text()
    for alias in ("primary", "dr"):
        client = as_user(lab, alias, USER)
        lines = [f'bootstrap_servers = "{client.pop("bootstrap.servers")}"', f"[clusters.{alias}.client]"]
        lines += [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
        plain = f'bootstrap_servers = "{lab.bootstrap(alias)}"'
        assert plain in text
        text = text.replace(plain, "\n".join(lines))
    path = own.config_path.with_name("exact.toml")
    path.write_text(text, encoding="utf-8")
    return open_link(path, own.name)


def printed(own: OwnLink, *words: str) -> dict[str, list[dict[str, Any]]]:
    """The rights that `drkit acls` prints, by cluster."""
    document = run("acls", own, *words, schema="acls")
    assert {each["principal"] for each in document["clusters"]} == {PRINCIPAL}
    return {each["cluster"]: each["rights"] for each in document["clusters"]}


def run(verb: str, own: OwnLink, *words: str, code: int = 0, schema: str | None = None) -> dict[str, Any]:
    """A verb's JSON document, in this process."""
    command = [verb, *words, "--config", str(own.config_path), "--output", "json"]
    done = CliRunner().invoke(application((verb,)), command)
    assert done.exit_code == code, f"{done.exit_code}: {done.output}"
    document: dict[str, Any] = json.loads(done.stdout)
    name = "error" if "error" in document else schema or verb
    Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text())).validate(document)
    return document


class Grants:
    """The rights of the user `exact` on the clusters of a lab; none at first, and at the end."""

    def __init__(self, lab: Lab) -> None:
        self._admins = {alias: AdminClient({"bootstrap.servers": lab.bootstrap(alias)}) for alias in ("primary", "dr")}
        self.clear()

    def give(self, rights: dict[str, list[dict[str, Any]]]) -> None:
        for alias, wanted in rights.items():
            bindings = [_binding(right) for right in wanted]
            _carry_out(partial(self._admins[alias].create_acls, bindings))
            wait_until(partial(self._has, alias, bindings), _PATIENCE, what="the rights")

    def take(self, alias: str, rights: Iterable[dict[str, Any]]) -> None:
        taken = [_binding(right) for right in rights]
        assert taken, "no such right was given"
        _carry_out(partial(self._admins[alias].delete_acls, [_exactly(each) for each in taken]))
        wait_until(lambda: not set(taken) & self._there(alias), _PATIENCE, what="the rights' end")

    def clear(self) -> None:
        for alias, admin in self._admins.items():
            _carry_out(partial(admin.delete_acls, [_OF_USER]))
            wait_until(partial(self._has_none, alias), _PATIENCE, what="no right")

    def has_exactly(self, alias: str, rights: Iterable[dict[str, Any]]) -> bool:
        """Whether the user gets exactly these rights on a cluster."""
        wanted = {_binding(right) for right in rights}
        wait_until(lambda: self._there(alias) >= wanted, _PATIENCE, what="the rights")
        return self._there(alias) == wanted

    def _has(self, alias: str, wanted: Sequence[AclBinding]) -> bool:
        return set(wanted) <= self._there(alias)

    def _has_none(self, alias: str) -> bool:
        return not self._there(alias)

    def _there(self, alias: str) -> set[AclBinding]:
        try:
            return set(self._admins[alias].describe_acls(_OF_USER).result(_SECONDS))
        except (KafkaException, TimeoutError) as error:
            raise AssertionError(str(error)) from error  # not yet


def _carry_out(ask: Callable[[], Mapping[Any, Future[Any]]]) -> None:
    """Make every change: the lab's clusters are shared, and an earlier test may just have frozen one."""

    def done() -> bool:
        try:
            for change in ask().values():
                change.result(_SECONDS)
        except (KafkaException, TimeoutError) as error:
            raise AssertionError(str(error)) from error  # not yet
        return True

    wait_until(done, _PATIENCE, what="a change of rights")


def _binding(right: dict[str, Any]) -> AclBinding:
    return AclBinding(
        _TYPES[right["resource"]],
        right["name"],
        ResourcePatternType[right["pattern"].upper()],
        PRINCIPAL,
        "*",
        AclOperation[right["operation"].upper()],
        AclPermissionType.ALLOW,
    )


def _exactly(rule: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


_OF_USER = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, PRINCIPAL, None, AclOperation.ANY, AclPermissionType.ALLOW
)
