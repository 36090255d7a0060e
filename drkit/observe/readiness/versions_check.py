"""Whether the target's version takes the clients of the source: what it lacks they meet after a failover."""

from __future__ import annotations

from typing import NamedTuple

from drkit.kafka.admin.cluster_versions import ClusterVersions
from drkit.kafka.admin.clusters import Clusters
from drkit.model.topology import LinkId
from drkit.observe.readiness.check import Check, CheckOutcome

NAME = "versions"
_METADATA_VERSION = "metadata.version"
_REMEDY = "Upgrade {target} and its features (kafka-features.sh upgrade), or see that no client needs them"


class _Feature(NamedTuple):
    """A finalized feature that clients meet. `without`: what happens on a target where its level is lower."""

    name: str
    without: str


class _Request(NamedTuple):
    """A request that clients send. `without`: what fails where the target doesn't take it."""

    key: int
    name: str
    without: str


_FEATURES = (
    _Feature("group.version", "consumers with group.protocol=consumer (KIP-848) can't join their groups"),
    _Feature("share.version", "share groups (KIP-932) don't work"),
    _Feature("streams.version", "Streams applications with group.protocol=streams (KIP-1071) don't work"),
    _Feature("transaction.version", "transactions lack the defence against hanging ones (KIP-890)"),
    _Feature(
        "eligible.leader.replicas.version", "a leader that lacks acknowledged records is elected sooner (KIP-966)"
    ),
)
_REQUESTS = (
    _Request(22, "InitProducerId", "idempotent and transactional producers fail"),
    _Request(68, "ConsumerGroupHeartbeat", "consumers with group.protocol=consumer (KIP-848) can't join their groups"),
    _Request(76, "ShareGroupHeartbeat", "share groups (KIP-932) don't work"),
    _Request(88, "StreamsGroupHeartbeat", "Streams applications with group.protocol=streams (KIP-1071) don't work"),
)
_OLD_CLIENTS = (
    _Request(0, "Produce", ""),
    _Request(1, "Fetch", ""),
    _Request(2, "ListOffsets", ""),
    _Request(3, "Metadata", ""),
    _Request(8, "OffsetCommit", ""),
    _Request(9, "OffsetFetch", ""),
    _Request(11, "JoinGroup", ""),
)
"""Requests of which newer brokers don't take the oldest versions any more (KIP-896)."""


def versions_check(link: LinkId, clusters: Clusters) -> Check:
    """Compare what both clusters tell of their versions, with a request to each broker.

    Raises:
        Unreachable: a broker doesn't answer.
    """
    source, target = (clusters.admin(each, may_be_gone=True).versions() for each in (link.source, link.target))
    return compared(link, source, target)


def compared(link: LinkId, source: ClusterVersions, target: ClusterVersions) -> Check:
    """The check of what both clusters tell. Pure."""
    levels = f"{_METADATA_VERSION} {_level(source)} on {link.source}, {_level(target)} on {link.target}"
    lacking = _lacking(link, source, target)
    if lacking:
        why = f"{'; '.join(lacking)} ({levels})"
        return Check(NAME, CheckOutcome.WARN, why, _REMEDY.format(target=link.target))
    refused = [
        f"{each.name} before version {target.requests[each.key].lowest}"
        for each in _OLD_CLIENTS
        if each.key in source.requests
        and each.key in target.requests
        and source.requests[each.key].lowest < target.requests[each.key].lowest
    ]
    if refused:
        why = (
            f"{link.target} is newer and refuses old clients that {link.source} takes: {', '.join(refused)} ({levels})"
        )
        return Check(NAME, CheckOutcome.WARN, why, "Upgrade clients older than Kafka 2.1 (KIP-896) before a failover")
    unknown = [alias for alias, each in ((link.source, source), (link.target, target)) if each.features is None]
    if unknown:
        why = (
            f"{link.target} takes the requests that clients need, but brokers of {' and '.join(unknown)} don't tell "
            "the features of their cluster"
        )
        return Check(NAME, CheckOutcome.UNKNOWN, why, "Compare both clusters' versions yourself")
    return Check(NAME, CheckOutcome.OK, f"{link.target} takes what clients of {link.source} use: {levels}")


def _lacking(link: LinkId, source: ClusterVersions, target: ClusterVersions) -> list[str]:
    """What clients of the source may use and the target lacks: by features, and where these don't tell it, by
    requests."""
    told: dict[str, str] = {}
    if source.features is not None and target.features is not None:
        for feature in _FEATURES:
            here, there = source.features.get(feature.name, 0), target.features.get(feature.name, 0)
            if there < here:
                told[feature.without] = f"{feature.name} is {there} on {link.target}, {here} on {link.source}"
    for request in _REQUESTS:
        if request.key in source.requests and request.key not in target.requests:
            told.setdefault(request.without, f"{link.target} doesn't take {request.name}, {link.source} does")
    return [f"{why}: {without}" for without, why in told.items()]


def _level(versions: ClusterVersions) -> str:
    level = None if versions.features is None else versions.features.get(_METADATA_VERSION)
    return "not told" if level is None else str(level)
