"""What was decided about a link, as its mirror obeys it: run, hold some or all topics, or end."""

from __future__ import annotations

from dataclasses import dataclass

from drkit.model.errors import Refused
from drkit.model.links import Direction, LinkControl
from drkit.model.topology import Link
from drkit.store.api import LinkStore


@dataclass(frozen=True, slots=True)
class Orders:
    """What holds now. `refusal`: the mirror must end, and says why; `reason`: why it is paused."""

    paused: bool = False
    paused_topics: frozenset[str] = frozenset()
    reason: str = ""
    refusal: Refused | None = None

    def holds(self, topic: str) -> bool:
        """Whether this topic is to be held."""
        return self.paused or topic in self.paused_topics


def link_to_run(store: LinkStore, configured: Link) -> Link:
    """The direction in which a configured link flows now: itself, or its way back while it is reversed."""
    control = store.link_control(configured.id)
    if control is not None and control.direction is Direction.REVERSED:
        return configured.reversed()
    return configured


def read_orders(store: LinkStore, link: Link) -> Orders:
    """What was decided about `link`, and (for a way back) about the link it turns round."""
    own = store.link_control(link.id)
    if own is not None and own.direction in {Direction.SEALED, Direction.REVERSED}:
        return Orders(refusal=_refusal(link, own))
    if link.inverse:
        there = store.link_control(link.id.reversed())
        if there is None or there.direction not in {Direction.SEALED, Direction.REVERSED}:
            return Orders(refusal=_loop(link))
    if own is None:
        return Orders()
    return Orders(own.direction is Direction.PAUSED, own.paused_topics, own.reason)


def _refusal(link: Link, control: LinkControl) -> Refused:
    by = f" by run {control.run}" if control.run else ""
    why = f" ({control.reason})" if control.reason else ""
    if control.direction is Direction.REVERSED:
        return Refused(
            f"link {link.id} is reversed{by}{why}",
            meaning=f"Its data flows the other way now: {link.id.reversed()}",
            remedy="Start `drkit mirror` anew: it runs the way back; `drkit failback` ends it",
        )
    return Refused(
        f"link {link.id} is sealed{by}{why}",
        meaning=f"{link.id.source} was failed away from; mirroring it would overwrite what {link.id.target} holds now",
        remedy="Bring it back with `drkit failback`; `drkit runs` shows the run that sealed it",
    )


def _loop(link: Link) -> Refused:
    return Refused(
        f"link {link.id} is the way back of {link.id.reversed()}, which is not sealed or reversed",
        meaning="Mirroring both ways would send every record round for ever",
        remedy=f"Fail over or fail back first; then {link.id.reversed()} no longer runs",
    )
