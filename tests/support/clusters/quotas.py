"""Quotas of client ids on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka.protocol.admin import AlterClientQuotasRequest

from drkit.kafka.admin.cluster_admin import ClusterAdmin


def _alter(admin: ClusterAdmin, client_id: str, key: str, value: float, *, remove: bool) -> None:
    entry = AlterClientQuotasRequest.EntryData
    entity = [entry.EntityData(entity_type="client-id", entity_name=client_id)]
    request = AlterClientQuotasRequest(
        entries=[entry(entity=entity, ops=[entry.OpData(key=key, value=value, remove=remove)])], validate_only=False
    )
    admin._connection.call("alter a quota", lambda connection: connection.send(request))


@contextmanager
def quota(admin: ClusterAdmin, client_id: str, key: str, value: float) -> Iterator[None]:
    """A quota of a client id, removed at the end."""
    _alter(admin, client_id, key, value, remove=False)
    try:
        yield
    finally:
        _alter(admin, client_id, key, value, remove=True)
