"""The status snapshot as the contract's JSON (docs/schemas/status.schema.json)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from drkit.model.clock import now
from drkit.observe.drill_history import DrillKind, drills_document
from drkit.observe.status import LinkStatus


def status_document(statuses: Sequence[LinkStatus], drills: Sequence[DrillKind] | None = None) -> dict[str, Any]:
    """`drkit status --output json`. `drills`: those in the store; None: it wasn't asked."""
    known = None if drills is None else drills_document(drills, now())
    return {"links": [_link(status) for status in statuses], "drills": known}


def _link(status: LinkStatus) -> dict[str, Any]:
    return {
        "source": status.link.id.source,
        "target": status.link.id.target,
        "state": status.state,
        "reason": status.reason,
        "source_reachable": status.source_reachable,
        "target_reachable": status.target_reachable,
        "worker": status.worker,
        "workers": [
            {"worker": each.owner, "leads": each.leads, "partitions": each.partitions, "seen_at": each.seen_at}
            for each in status.workers
        ],
        "statistics": [each.document() for each in status.statistics],
        "observed_at": status.observed_at,
        "partitions": [asdict(partition) for partition in status.partitions],
        "groups": [asdict(group) for group in status.groups],
        "problems": [asdict(problem) for problem in status.problems],
        "recovery_point": asdict(status.recovery_point),
    }
