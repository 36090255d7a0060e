"""ACLs of topics and groups: reading, adding and removing them with the protocol's own requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kafka.protocol.admin.acl import ACLOperation, ACLPermissionType, ACLResourcePatternType, ACLResourceType

from drkit.kafka.admin.admin_connection import AdminConnection, StepConnection, check, error_class
from drkit.kafka.admin.topic_requests import every_broker, reason
from drkit.model.errors import NoAuthorizer
from drkit.model.topics.acls import Acl

_RESOURCES = {ACLResourceType.TOPIC: "topic", ACLResourceType.GROUP: "group"}
_A_REQUEST = 500


def describe_acls(connection: AdminConnection) -> frozenset[Acl]:
    """All ACLs of topics and groups.

    Raises:
        NoAuthorizer: the cluster has none.
        Refused: drkit may not read its ACLs.
    """

    async def step(connection: StepConnection) -> frozenset[Acl]:
        return await _describe(connection, None)

    found: frozenset[Acl] = connection.call("read ACLs", step)
    return found


def acls_by_broker(connection: AdminConnection) -> dict[int, frozenset[Acl]]:
    """The ACLs of topics and groups that each broker applies, by node id: a broker that lags may lack some.

    Raises:
        Refused: as `describe_acls`.
        Unreachable: a broker that the cluster lists doesn't answer.
    """

    async def step(connection: StepConnection) -> dict[int, frozenset[Acl]]:
        return {node: await _describe(connection, node) for node in await every_broker(connection)}

    found: dict[int, frozenset[Acl]] = connection.call("read ACLs of every broker", step)
    return found


async def _describe(connection: StepConnection, node: int | None) -> frozenset[Acl]:
    """The ACLs that one broker (None: any) returns (within a step)."""
    found = set()
    for kind in _RESOURCES:
        request = DescribeAclsRequest(
            resource_type_filter=int(kind),
            resource_name_filter=None,
            pattern_type_filter=int(ACLResourcePatternType.ANY),
            principal_filter=None,
            host_filter=None,
            operation=int(ACLOperation.ANY),
            permission_type=int(ACLPermissionType.ANY),
        )
        answer = await connection.send(request, node)
        if error_class(answer.error_code) is kafka_errors.SecurityDisabledError:
            raise NoAuthorizer(
                f"cluster {connection.alias} has no authorizer: it keeps no ACLs",
                remedy='Set authorizer.class.name on its brokers, or acls = "off" on the link',
            )
        check(answer.error_code, answer.error_message or "read ACLs")
        for resource in answer.resources:
            for rule in resource.acls:
                found.add(
                    Acl(
                        _RESOURCES[ACLResourceType(resource.resource_type)],
                        resource.resource_name,
                        _word(ACLResourcePatternType, resource.pattern_type),
                        rule.principal,
                        rule.host,
                        _word(ACLOperation, rule.operation),
                        _word(ACLPermissionType, rule.permission_type),
                    )
                )
    return frozenset(found)


def create_acls(connection: AdminConnection, acls: Collection[Acl]) -> dict[Acl, str]:
    """Add ACLs; returns the reason for each refused one. ACLs that already exist are fine."""

    async def ask(connection: StepConnection, chunk: Sequence[Acl]) -> Any:
        return (await connection.send(CreateAclsRequest(creations=[_creation(acl) for acl in chunk]))).results

    return _each(connection, "put ACLs", acls, ask)


def delete_acls(connection: AdminConnection, acls: Collection[Acl]) -> dict[Acl, str]:
    """Remove exactly these ACLs; returns the reason for each refused one. Absent ones are fine."""

    async def ask(connection: StepConnection, chunk: Sequence[Acl]) -> Any:
        return (await connection.send(DeleteAclsRequest(filters=[_exactly(acl) for acl in chunk]))).filter_results

    return _each(connection, "remove ACLs", acls, ask)


def _each(
    connection: AdminConnection,
    what: str,
    acls: Collection[Acl],
    ask: Callable[[StepConnection, Sequence[Acl]], Awaitable[Any]],
) -> dict[Acl, str]:
    """Send the ACLs in batches; `ask` returns a result for each."""
    wanted = sorted(acls)
    failures: dict[Acl, str] = {}

    async def step(connection: StepConnection) -> None:
        for start in range(0, len(wanted), _A_REQUEST):
            chunk = wanted[start : start + _A_REQUEST]
            _judge(chunk, await ask(connection, chunk), failures)

    if wanted:
        connection.call(what, step)
    return failures


def _judge(chunk: Sequence[Acl], results: Sequence[Any], failures: dict[Acl, str]) -> None:
    for acl, result in zip(chunk, results, strict=True):
        error = error_class(result.error_code)
        if result.error_code and (error.retriable or issubclass(error, kafka_errors.AuthorizationError)):
            raise error(result.error_message or str(acl))  # the error applies to all: `call` retries or raises it
        if result.error_code:
            failures[acl] = reason(error, result.error_message)


def _creation(acl: Acl) -> Any:
    return CreateAclsRequest.AclCreation(
        resource_type=_code(ACLResourceType, acl.resource),
        resource_name=acl.name,
        resource_pattern_type=_code(ACLResourcePatternType, acl.pattern),
        principal=acl.principal,
        host=acl.host,
        operation=_code(ACLOperation, acl.operation),
        permission_type=_code(ACLPermissionType, acl.permission),
    )


def _exactly(acl: Acl) -> Any:
    return DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=_code(ACLResourceType, acl.resource),
        resource_name_filter=acl.name,
        pattern_type_filter=_code(ACLResourcePatternType, acl.pattern),
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=_code(ACLOperation, acl.operation),
        permission_type=_code(ACLPermissionType, acl.permission),
    )


def _word(kind: Any, code: int) -> str:
    word: str = kind(code).name.lower()
    return word


def _code(kind: Any, word: str) -> int:
    return int(kind[word.upper()])
