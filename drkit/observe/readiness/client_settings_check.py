"""Whether the target has what the source keeps for its clients and no mirror copies."""

from __future__ import annotations

from drkit.kafka.admin.client_settings import ClientSettings
from drkit.kafka.admin.clusters import Clusters
from drkit.model.topology import LinkId
from drkit.model.wording import and_more
from drkit.observe.readiness.check import Check, CheckOutcome

NAME = "client settings"
_REMEDY = "Clients meet the difference after a failover: set it up on {target}, too (kafka-configs.sh, kafka-acls.sh)"


def client_settings_check(link: LinkId, clusters: Clusters) -> Check:
    """Compare SCRAM users, quotas and rules of transactional ids. What drkit isn't shown is named, not called equal.

    Raises:
        Unreachable: a cluster doesn't answer.
    """
    source, target = (clusters.admin(each, may_be_gone=True).client_settings() for each in (link.source, link.target))
    return compared(link, source, target)


def compared(link: LinkId, source: ClientSettings, target: ClientSettings) -> Check:
    """The check of what both clusters show. Pure."""
    hidden = sorted(source.hidden.keys() | target.hidden.keys())
    missing = []
    for part, there in source.parts.items():
        here = target.parts.get(part)
        if here is None:
            continue
        lacking = sorted(there.keys() - here.keys())
        both = sorted(there.keys() & here.keys())
        other = [f"{name} ({there[name]}; there {here[name]})" for name in both if there[name] != here[name]]
        if lacking:
            missing.append(f"{part} that {link.target} lacks: {and_more(lacking)}")
        if other:
            missing.append(f"{part} that are different there: {and_more(other)}")
    unseen = f"not compared, since drkit isn't shown them: {', '.join(hidden)}" if hidden else ""
    if missing:
        why = "; ".join(filter(None, (*missing, unseen)))
        return Check(NAME, CheckOutcome.WARN, why, _REMEDY.format(target=link.target))
    if hidden:
        why = source.hidden.get(hidden[0]) or target.hidden[hidden[0]]
        grants = "drkit acls --command doctor prints the ACLs"
        return Check(NAME, CheckOutcome.UNKNOWN, f"{unseen} ({why})", grants)
    names = ", ".join(source.parts)
    return Check(NAME, CheckOutcome.OK, f"{link.target} has those of {link.source}: {names}")
