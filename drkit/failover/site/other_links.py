"""What happens to links that a run doesn't move: spokes, chains, the way back of an active-active pair. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drkit.model.topology import Link, LinkId


@dataclass(frozen=True, slots=True)
class OtherLink:
    """A link that stays as it is, and what the run means for it."""

    link: LinkId
    effect: str


def other_links(links: Sequence[Link], moving: Sequence[Link], to: str) -> tuple[OtherLink, ...]:
    """The effect of moving some links to a cluster on each other link that shares a cluster with them.

    Args:
        links: all configured links.
        moving: the links that the run moves.
        to: the cluster that they lead to.
    """
    chosen = {link.id for link in moving}
    left = {link.source for link in chosen}
    return tuple(
        OtherLink(link.id, effect)
        for link in links
        if link.id not in chosen and (effect := _effect(link.id, left, to)) is not None
    )


def _effect(link: LinkId, left: set[str], to: str) -> str | None:
    source, target = link.source, link.target
    if source == to and target in left:
        return (
            f"the other way of an active-active pair: it continues while {target} answers; a fence of {target} by "
            "access rules keeps this link's mirror out of the topics that were moved, where both links carry them"
        )
    if source == to:
        return f"it continues: {to}, its source, serves; clients' writes to {to} from now on reach {target}, too"
    if target == to:
        return f"it continues: clients of {source} stay there"
    if source in left:
        return (
            f"its source {source} is left: {target} gets what {source} still gets, and nothing that clients write "
            f"to {to} from now on"
        )
    if target in left:
        return (
            f"it leads into {target}, which is left and fenced: records of {source} get no further than {target}, and "
            f"{to} gets none of them; groups that still are on {source} are not moved"
        )
    return None
