"""Which links a failback or reprotect takes: those that were failed away from, all or as `--link` names them."""

from __future__ import annotations

from collections.abc import Sequence

from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.site.choose_links import ChosenLinks, LinkLeftOut
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_patterns import matching
from drkit.model.link_state import Direction
from drkit.model.topology import LinkId

_AWAY = frozenset({Direction.SEALED, Direction.REVERSED})


def links_away(estate: ClusterContext, to: str | None, patterns: Sequence[str] = ()) -> ChosenLinks:
    """The links to bring back. One that was not failed away from is left out.

    Args:
        estate: configuration and store.
        to: the old primary; None: any.
        patterns: as `--link` gives them; none: every link that leads away from `to`.

    Raises:
        ConfigError: no such cluster, or a pattern matches no link that leads away from it.
        Refused: no link leads away from it, or none of them was failed away from.
        Unreachable: the store doesn't answer.
    """
    if to is not None and to not in estate.config.clusters:
        raise ConfigError(
            f"no cluster {to!r} is configured", remedy=f"Known: {', '.join(sorted(estate.config.clusters))}"
        )
    links = [configured.link() for configured in estate.config.links]
    leading = [link for link in links if to in {None, link.id.source}]
    if not links:
        raise ConfigError("no link is configured", remedy="Add a [[links]] section with source and target")
    if not leading:
        known = ", ".join(str(link.id) for link in links) or "none"
        raise Refused(f"no link leads away from {to}", meaning="It was never a primary", remedy=f"Links: {known}")
    meant = matching(leading, patterns) if patterns else leading
    away = tuple(link for link in meant if _direction(estate, link.id) in _AWAY)
    if not away:
        named = ", ".join(str(link.id) for link in meant)
        raise Refused(
            f"{named} {'was' if len(meant) == 1 else 'were'} not failed away from",
            meaning="There is nothing to go back from: the primary still is the primary",
            remedy="`drkit status` shows the links",
        )
    left_out = tuple(
        LinkLeftOut(link.id, f"it was not failed away from: {link.id.source} is its primary")
        for link in meant
        if link not in away
    )
    return ChosenLinks(away, left_out)


def _direction(estate: ClusterContext, link: LinkId) -> Direction:
    control = estate.store.link_control(link)
    return Direction.ACTIVE if control is None else control.direction
