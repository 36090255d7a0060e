"""What a cluster's version lets clients do: its finalized features (KIP-584) and the requests that its brokers take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest

from drkit.kafka.admin.admin_connection import AdminConnection, check
from drkit.kafka.admin.topic_requests import metadata


class VersionRange(NamedTuple):
    """The versions of a request, both inclusive."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class ClusterVersions:
    """What all brokers of a cluster have in common.

    `features`: the level of each finalized feature, one that isn't finalized is left out; None: brokers don't tell
    (before Kafka 2.7). `requests`: the versions of each request (by API key) that every broker takes.
    """

    features: Mapping[str, int] | None
    requests: Mapping[int, VersionRange]


def cluster_versions(connection: AdminConnection) -> ClusterVersions:
    """Ask every broker, each with one request.

    Raises:
        Unreachable: a broker that the cluster lists doesn't answer.
    """

    async def ask(connection: AdminConnection, node: int, found: list[ClusterVersions]) -> None:
        request = ApiVersionsRequest(client_software_name="drkit", client_software_version="1")
        answer = await connection.send(request, node)
        check(answer.error_code, "read versions")
        told = (answer.finalized_features_epoch or 0) >= 0 and answer.finalized_features is not None
        features = {each.name: each.max_version_level for each in answer.finalized_features or ()} if told else None
        requests = {each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys}
        found.append(ClusterVersions(features, requests))

    async def step(connection: AdminConnection) -> list[ClusterVersions]:
        found: list[ClusterVersions] = []
        nodes = [broker.node_id for broker in (await metadata([])(connection)).brokers]
        await connection.gather(ask(connection, node, found) for node in nodes)
        return found

    answers: list[ClusterVersions] = connection.call("read versions", step)
    return in_common(answers)


def in_common(brokers: list[ClusterVersions]) -> ClusterVersions:
    """What each of these brokers has: a cluster in the middle of an upgrade is as old as its oldest. Pure."""
    known = [each.features for each in brokers if each.features is not None]
    features = None
    if known and len(known) == len(brokers):
        names = set(known[0]).intersection(*known[1:])
        features = {name: min(each[name] for each in known) for name in names}
    keys = set(brokers[0].requests).intersection(*(each.requests for each in brokers[1:])) if brokers else set()
    requests = {}
    for key in keys:
        ranges = [each.requests[key] for each in brokers]
        common = VersionRange(max(each.lowest for each in ranges), min(each.highest for each in ranges))
        if common.lowest <= common.highest:
            requests[key] = common
    return ClusterVersions(features, requests)
