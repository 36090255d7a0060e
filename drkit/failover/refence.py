"""`drkit fence`: fencing, once it answers, what a failover had to leave unfenced; or showing once more that it is.

Only a cluster that was failed away from is fenced this way: closing one that serves is what a failover does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from drkit.failover.estate import Estate
from drkit.failover.gate import Gate
from drkit.failover.gate_proof import Proof
from drkit.failover.journal import OUTCOME, PLAN, Journal, new_run_id
from drkit.failover.lease import RunLease
from drkit.failover.machine import Outcome
from drkit.failover.stage import wait_for
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused
from drkit.model.journal import RunSummary
from drkit.model.links import Direction
from drkit.model.topology import Link

KIND = "fence"
"""Kind of these runs, and their only stage."""


@dataclass(frozen=True, slots=True)
class Hand:
    """What a gate is worked with outside a run's stages."""

    estate: Estate
    link: Link
    run: str
    lease: RunLease
    say: Callable[[str], None]

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Poll until `done`, at most for `seconds`; whether it came true. Keeps the right to run."""
        return wait_for(self.lease, done, seconds)


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


def answers(estate: Estate, cluster: str) -> bool:
    """Whether a cluster answers now."""
    try:
        estate.admin(cluster, may_be_gone=True).brokers()
    except DrkitError:
        return False
    estate.reach(cluster).gone = False
    return True


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
            proof = Gate(Hand(estate, link, run, lease, say), link.id.source).close()
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
