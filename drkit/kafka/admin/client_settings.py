"""What a cluster keeps for its clients beside topics, groups and their ACLs. No mirror copies it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.admin.acl import ACLOperation, ACLPermissionType, ACLResourcePatternType, ACLResourceType

from drkit.kafka.admin.admin_connection import AdminConnection, StepConnection, check, error_class
from drkit.kafka.admin.topic_requests import metadata
from drkit.model.errors import DrkitError, NotShown, Unreachable

_BROKER_RESOURCE = 4
_OFFSETS_RETENTION = "offsets.retention.minutes"
_LONGEST_TRANSACTION = "transaction.max.timeout.ms"
_PRODUCER_EXPIRATION = "producer.id.expiration.ms"
_MET_BY_CLIENTS = (
    _OFFSETS_RETENTION,
    "message.max.bytes",
    _LONGEST_TRANSACTION,
    "transactional.id.expiration.ms",
    "group.max.session.timeout.ms",
    "auto.create.topics.enable",
)
"""Where the clusters differ in these, groups or producers that moved fail there, or lose their offsets while idle."""
_ANSWER_SECONDS = 2.0
"""How long one of many brokers may take to tell its settings."""
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NO_USERS = kafka_errors.for_code(91)  # RESOURCE_NOT_FOUND


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Each part by the name of an entry, with its value; `hidden`: why a part can't be seen, by the part's name."""

    parts: Mapping[str, Mapping[str, str]]
    hidden: Mapping[str, str]


def client_settings(connection: AdminConnection) -> ClientSettings:
    """Read SCRAM users, quotas, the rules of transactional ids, and what brokers let clients do.

    Raises:
        Unreachable: the cluster doesn't answer.
    """
    parts, hidden = {}, {}
    for name, step in _PARTS.items():
        try:
            parts[name] = connection.call(f"read {name}", step)
        except Unreachable:
            raise
        except DrkitError as error:
            hidden[name] = error.what
    return ClientSettings(parts, hidden)


def offsets_retention(connection: AdminConnection) -> timedelta:
    """How long a cluster keeps the committed offsets of a group without members.

    Raises:
        DrkitError: it doesn't answer, or doesn't show its settings.
    """
    return timedelta(minutes=_broker_setting(connection, _OFFSETS_RETENTION))


def longest_transaction(connection: AdminConnection) -> timedelta:
    """How long a cluster's brokers let a transaction be open at most.

    Raises:
        DrkitError: it doesn't answer, or doesn't show its settings.
    """
    return timedelta(milliseconds=_broker_setting(connection, _LONGEST_TRANSACTION))


def producer_expiration(connection: AdminConnection) -> timedelta:
    """For how long a cluster's brokers remember a producer after the stamp of its newest record: the shortest time that
    one of those that answer tells.

    Raises:
        DrkitError: none does.
    """

    async def step(connection: StepConnection) -> list[float]:
        found: list[float] = []

        async def ask(node: int) -> None:
            with suppress(kafka_errors.KafkaError):  # it is down, or busy, or drkit may not see its settings
                settings = await _settings_of(connection, node, [_PRODUCER_EXPIRATION], timeout_seconds=_ANSWER_SECONDS)
                found.extend(float(value) for value in settings.values())

        brokers = (await metadata([])(connection)).brokers
        await connection.gather(ask(broker.node_id) for broker in brokers)
        return found

    found = connection.call(f"read {_PRODUCER_EXPIRATION}", step)
    if not found:
        raise NotShown(
            f"{connection.alias} doesn't show {_PRODUCER_EXPIRATION}", remedy="Ask who runs it for the value"
        )
    return timedelta(milliseconds=min(found))


def _broker_setting(connection: AdminConnection, name: str) -> float:
    found = connection.call(f"read {name}", _broker_settings).get(name)
    if found is None:
        raise NotShown(f"{connection.alias} doesn't show {name}", remedy="Ask who runs it for the value")
    return float(found)


async def _scram_users(connection: StepConnection) -> dict[str, str]:
    answer = await connection.send(DescribeUserScramCredentialsRequest(users=None))
    check(answer.error_code, answer.error_message or "read SCRAM users")
    return {
        each.user: ", ".join(sorted(_MECHANISMS.get(info.mechanism, "?") for info in each.credential_infos))
        for each in answer.results
        if error_class(each.error_code) is not _NO_USERS
    }


async def _quotas(connection: StepConnection) -> dict[str, str]:
    answer = await connection.send(DescribeClientQuotasRequest(components=[], strict=False))
    check(answer.error_code, answer.error_message or "read quotas")
    return {
        " ".join(sorted(f"{one.entity_type} {_or_default(one.entity_name)}" for one in each.entity)): ", ".join(
            sorted(f"{value.key}={value.value:,.10g}" for value in each.values)
        )
        for each in answer.entries or ()
    }


def _or_default(name: str | None) -> str:
    return "(default)" if name is None else name


async def _transactional_rules(connection: StepConnection) -> dict[str, str]:
    request = DescribeAclsRequest(
        resource_type_filter=int(ACLResourceType.TRANSACTIONAL_ID),
        resource_name_filter=None,
        pattern_type_filter=int(ACLResourcePatternType.ANY),
        principal_filter=None,
        host_filter=None,
        operation=int(ACLOperation.ANY),
        permission_type=int(ACLPermissionType.ANY),
    )
    answer = await connection.send(request)
    if error_class(answer.error_code) is kafka_errors.SecurityDisabledError:
        return {}  # whoever reaches it may use any
    check(answer.error_code, answer.error_message or "read rules of transactional ids")
    return {
        f"{rule.principal} {ACLOperation(rule.operation).name} {resource.resource_name} "
        f"({ACLResourcePatternType(resource.pattern_type).name})": ACLPermissionType(rule.permission_type).name
        for resource in answer.resources
        for rule in resource.acls
    }


async def _broker_settings(connection: StepConnection) -> dict[str, str]:
    """Of one broker: they are meant to be the same on all."""
    return await _settings_of(connection, (await metadata([])(connection)).brokers[0].node_id, _MET_BY_CLIENTS)


async def _settings_of(
    connection: StepConnection, node: int, names: Sequence[str], *, timeout_seconds: float | None = None
) -> dict[str, str]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER_RESOURCE, resource_name=str(node), configuration_keys=list(names)
    )
    request = DescribeConfigsRequest(resources=[resource], min_version=1)
    (answer,) = (await connection.send(request, node, timeout_seconds=timeout_seconds)).results
    check(answer.error_code, answer.error_message or "read broker settings")
    return {each.name: each.value for each in answer.configs if each.value is not None}


_PARTS: Mapping[str, Callable[[StepConnection], Awaitable[Any]]] = {
    "SCRAM users": _scram_users,
    "quotas": _quotas,
    "rules of transactional ids": _transactional_rules,
    "broker settings": _broker_settings,
}
