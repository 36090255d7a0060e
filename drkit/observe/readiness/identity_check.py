"""Which clusters answer, by Kafka's ids of them, and who drkit is there: what an operator compares first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drkit.kafka.admin.clusters import Clusters
from drkit.model.errors import DrkitError
from drkit.observe.link_status import LinkStatus
from drkit.observe.readiness.check import Check, CheckOutcome, asked_again

IDENTITY = "cluster ids"


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A cluster of a link.

    `cluster_id`: None: it isn't known, and `reason` says why. `principal`: drkit's, by its configuration; None: the
    cluster alone knows it (it names the client of a TLS certificate, a token or a Kerberos ticket).
    """

    alias: str
    cluster_id: str | None
    principal: str | None
    reason: str | None = None


def cluster_identities(status: LinkStatus, clusters: Clusters) -> tuple[ClusterIdentity, ...]:
    """Ask both clusters of a link, source first, with one request each; one that is silent isn't asked again."""
    ids = status.link.id
    silent = {ids.source: not status.source_reachable, ids.target: not status.target_reachable}
    found = []
    for alias, away in silent.items():
        try:
            admin = clusters.admin(alias, may_be_gone=True)
            if away and alias not in status.refused:
                found.append(ClusterIdentity(alias, None, admin.principal, f"{alias} {status.unreached(alias)}"))
            else:  # of one that isn't the link's cluster its id matters most
                found.append(ClusterIdentity(alias, admin.cluster_id(), admin.principal))
        except DrkitError as error:
            found.append(ClusterIdentity(alias, None, None, error.what))
    return tuple(found)


def identity_check(found: Sequence[ClusterIdentity]) -> Check:
    """The check of what was seen. Pure."""
    why = "; ".join(_said(each) for each in found)
    unknown = [each.alias for each in found if each.cluster_id is None]
    if unknown:
        return Check(IDENTITY, CheckOutcome.UNKNOWN, why, asked_again(" and ".join(unknown)))
    return Check(IDENTITY, CheckOutcome.OK, why)


def _said(one: ClusterIdentity) -> str:
    if one.cluster_id is None:
        return f"{one.alias}: not known, {one.reason}"
    who = "who drkit is there it alone knows" if one.principal is None else f"drkit is {one.principal} there"
    return f"{one.alias} is {one.cluster_id}, {who}"
