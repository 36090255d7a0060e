"""The way back of a link has the id of the other direction: where that is a link of its own (active-active), a failback
would replace its record."""

from __future__ import annotations

from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.run.state_machine import Kind
from drkit.model.errors import Refused
from drkit.model.link_state import Direction
from drkit.model.topology import LinkId
from drkit.store.api import Store

_WAYS_BACK = frozenset({Kind.FAILBACK, Kind.REPROTECT})


def check_way_back_is_free(estate: ClusterContext, link: LinkId, kind: Kind, run: str | None = None) -> None:
    """Raise `Refused` where the other direction is a link of its own: configured, or mirrored according to the store.

    `run`: the run that is under way; None: nothing has begun.
    """
    back = link.reversed()
    configured = any(each.link().id == back for each in estate.config.links)
    mirrored = is_mirrored(estate.store, back)
    if not configured and not mirrored:
        return
    if kind is Kind.REPROTECT:
        remedy = f"Bring {link} back: drkit failback says how"
    else:
        remedy = (
            f"Stop every mirror, and bring {link} back in a store of its own: with a configuration of this link alone "
            f"and an empty store drkit store recover --from {link.target}, then drkit failback; then recover both "
            'links into another empty store (docs/topologies.md, "One of two regions comes back")'
        )
    if run is not None and mirrored:
        remedy = f"drkit abandon {run} ends this run. {remedy}"
    elif run is not None:
        remedy = f"Take {back} out of the configuration until the run is over; then drkit resume {run}"
    also = "" if configured else ": it isn't in the configuration now, but the store has what it mirrored"
    raise Refused(
        f"{back} is a link of its own (active-active){also}",
        meaning=f"The way back of {link} has its name, and would replace its record, so that it could never continue",
        remedy=remedy,
    )


def is_mirrored(store: Store, link: LinkId) -> bool:
    """Whether the store holds what a mirror of this link, as a link of its own, has recorded; what a failback's or a
    reprotect's way back has recorded under this id doesn't count."""
    if not store.topic_states(link) and not store.watermarks(link):
        return False
    control, forward = store.link_control(link), store.link_control(link.reversed())
    if forward is not None and forward.direction is Direction.REVERSED:
        return False  # this is its way back
    if control is None:
        return True
    if control.direction is Direction.REVERSED:
        return False  # its record was handed over to the other direction
    runs = (run for run in store.runs() if run.run == control.run)
    return not any(run.kind in _WAYS_BACK and run.detail.split(" ")[0] == str(link.reversed()) for run in runs)
