"""`drkit fence`: fencing, once it answers, what a failover had to leave unfenced; or showing once more that it is.
And `--lift`: opening a cluster that drkit closed, whatever run closed it.

Only a cluster that was failed away from is fenced this way: closing one that serves is what a failover does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from drkit.failover.estate import Estate
from drkit.failover.gate import Gate, gate_record
from drkit.failover.gate_context import GateContext, answers
from drkit.failover.gate_proof import Proof
from drkit.failover.journal import OUTCOME, PLAN, Journal, new_run_id
from drkit.failover.lease import RunLease
from drkit.failover.machine import Outcome
from drkit.failover.stage import decide_link
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused
from drkit.model.gate import GateState, serving_cluster
from drkit.model.journal import RunSummary
from drkit.model.links import Direction
from drkit.model.topology import Link

KIND = "fence"
"""Kind of these runs, and their only stage."""


def links_left(estate: Estate, wanted: list[Link]) -> list[Link]:
    """Those of the configured links that were failed away from.

    Raises:
        Refused: none was.
        Unreachable: the store doesn't answer.
    """
    found = []
    for link in wanted:
        control = estate.store.link_control(link.id)
        if control is not None and control.direction is Direction.SEALED:
            found.append(link)
    if not found:
        named = ", ".join(str(link.id) for link in wanted)
        raise Refused(
            f"{named or 'no link'} was not failed away from",
            meaning="A cluster that serves is fenced by a failover, not by hand",
            remedy="drkit failover; `drkit status` shows the links",
        )
    return found


def fence_again(estate: Estate, link: Link, say: Callable[[str], None]) -> tuple[str, Proof]:
    """Fence the source of a link that was failed away from; journaled as a run of its own: its id, and the proof.

    Raises:
        Refused: somebody else acts on the link.
        Unreachable: the store doesn't answer.
    """
    run = new_run_id()
    began = time.monotonic()
    started_at = now()
    with RunLease(estate.store, link.id, run) as lease:
        links_left(estate, [link])  # under the lease: nobody turns it round meanwhile
        journal = Journal(estate.store, run)
        journal.write(PLAN, PLAN, {"kind": KIND, "link": str(link.id), "cluster": link.id.source})
        journal.intent(KIND)
        try:
            proof = Gate(GateContext(estate, link, run, lease, say), link.id.source).close()
        except DrkitError as error:
            proof = Proof(proven=False, reason=str(error))
        body = {
            "outcome": Outcome.OK if proof.proven else Outcome.FAILED,
            "reason": proof.reason,
            "seconds": round(time.monotonic() - began, 3),
            "epoch": proof.epoch,
        }
        journal.write(KIND, OUTCOME, body)
        state = "closed" if proof.proven else "failed"
        estate.store.put_run(RunSummary(run, KIND, state, started_at, now(), str(link.id)))
    return run, proof


def lift_fence(estate: Estate, link: Link, say: Callable[[str], None], *, alone: bool = False) -> tuple[str, Proof]:
    """Open the cluster that clients of a link are to use; journaled as a run of its own: its id, and what was done.

    A run that rests on the fence goes back before it when it is resumed. Where a cluster was failed away from, it is
    opened only if the other doesn't answer, and the operator says so (`alone`): it serves again from then on.

    Returns:
        The run, and as the proof's `reason` what was done (`proven`: a fence still stands).

    Raises:
        Refused: somebody else acts on the link, or the other cluster serves.
        Unreachable: the store doesn't answer.
    """
    run = new_run_id()
    began, started_at = time.monotonic(), now()
    with RunLease(estate.store, link.id, run) as lease:
        cluster = _to_open(estate, link, alone=alone)
        journal = Journal(estate.store, run)
        journal.write(PLAN, PLAN, {"kind": KIND, "link": str(link.id), "cluster": cluster, "lift": True})
        journal.intent(KIND)
        try:
            control = estate.store.link_control(link.id)
            if control is not None and control.direction is Direction.SEALED and cluster == link.id.source:
                reason = f"{link.id.target} does not answer; {cluster} serves again"
                decide_link(estate, link.id, Direction.ACTIVE, run=run, reason=reason, allowed=_SEALED)
                say(reason)
            done = Gate(GateContext(estate, link, run, lease, say), cluster).open()
            proof = Proof(proven=False, reason=done or f"no fence of drkit's stands on {cluster}")
        except DrkitError as error:
            proof = Proof(proven=True, reason=str(error))
        record = gate_record(estate.store, link.id, cluster)
        proof = replace(proof, epoch=None if record is None else record.epoch)
        body = {
            "outcome": Outcome.FAILED if proof.proven else Outcome.OK,
            "reason": proof.reason,
            "seconds": round(time.monotonic() - began, 3),
            "epoch": proof.epoch,
        }
        journal.write(KIND, OUTCOME, body)
        state = "failed" if proof.proven else "open"
        estate.store.put_run(RunSummary(run, KIND, state, started_at, now(), f"{link.id} lift"))
    return run, proof


def cluster_to_lift(estate: Estate, link: Link) -> tuple[str, bool]:
    """The cluster that `--lift` opens, and whether it was failed away from: then the operator has to say so."""
    control = estate.store.link_control(link.id)
    direction = None if control is None else control.direction
    serving = serving_cluster(link, direction)
    record = gate_record(estate.store, link.id, serving)
    closed = record is not None and record.state is not GateState.OPEN
    if direction is Direction.SEALED and not closed and not answers(estate, serving):
        return link.id.source, True
    return serving, False


def _to_open(estate: Estate, link: Link, *, alone: bool) -> str:
    cluster, away = cluster_to_lift(estate, link)
    if away and not alone:
        raise Refused(
            f"{cluster} was failed away from, and {link.id.target} does not answer",
            meaning=f"Opened, {cluster} serves again without what was written to {link.id.target} since",
            remedy="If that is meant, give --yes",
        )
    source = gate_record(estate.store, link.id, link.id.source)
    if cluster == link.id.target and source is not None and source.state is not GateState.OPEN:
        served = gate_record(estate.store, link.id, cluster)
        control = estate.store.link_control(link.id)
        sealed = control is not None and control.direction is Direction.SEALED
        if sealed and (served is None or served.state is GateState.OPEN):
            raise Refused(
                f"{link.id.source} was failed away from: {cluster} serves, and drkit keeps nobody out of it",
                meaning="With both open, records would be written on either side that the other never gets",
                remedy=f"drkit failback --to {link.id.source} goes back; drkit reprotect makes it the standby",
            )
    return cluster


_SEALED = frozenset({Direction.SEALED})
