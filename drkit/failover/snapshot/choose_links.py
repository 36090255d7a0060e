"""Selects the links of a run, into or out of a cluster, by name or by pattern; and says what the move means for the
others (spokes, chains, the way back of an active-active pair).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_patterns import matching
from drkit.model.link_state import Direction
from drkit.model.topology import Link, LinkId
from drkit.state_topic.guard import check_recovered


@dataclass(frozen=True, slots=True)
class LinkLeftOut:
    """A link that matched, and why it is left out."""

    link: LinkId
    why: str


@dataclass(frozen=True, slots=True)
class ChosenLinks:
    """The links of a run, in the order of the configuration, and those left out."""

    links: tuple[Link, ...]
    left_out: tuple[LinkLeftOut, ...] = ()


def links_into(
    estate: ClusterContext, to: str, patterns: Sequence[str] = (), *, groups_named: bool = False
) -> ChosenLinks:
    """The links that a failover to a cluster moves.

    Args:
        estate: configuration and store.
        to: the cluster.
        patterns: as `--link` gives them; none: every link into the cluster that was not failed over yet.
        groups_named: groups are named: a link that was failed over may have left them behind.

    Raises:
        ConfigError: no such cluster, or a pattern matches no link that leads there.
        Refused: no link leads there.
        Unreachable: the store doesn't answer.
    """
    leading = leading_to(estate.config, to)
    if patterns:
        return ChosenLinks(tuple(matching(leading, patterns)))
    if groups_named or len(leading) == 1:
        return ChosenLinks(tuple(leading))
    left_out = tuple(found for link in leading if (found := _moved_before(estate, link.id)) is not None)
    if len(left_out) == len(leading):
        return ChosenLinks(tuple(leading))  # planning them reports the earlier runs
    before = {each.link for each in left_out}
    return ChosenLinks(tuple(link for link in leading if link.id not in before), left_out)


def links_away(estate: ClusterContext, to: str | None, patterns: Sequence[str] = ()) -> ChosenLinks:
    """The links that a failback or reprotect brings back. One that was not failed away from is left out.

    Args:
        estate: configuration and store.
        to: the old primary; None: any.
        patterns: as `--link` gives them; none: every link that leads away from `to`.

    Raises:
        ConfigError: no such cluster, or a pattern matches no link that leads away from it.
        Refused: no link leads away from it, or none of them was failed away from.
        Unreachable: the store doesn't answer.
    """
    leading = leading_away(estate.config, to)
    meant = matching(leading, patterns) if patterns else leading
    away = failed_away(estate, meant)
    left_out = tuple(
        LinkLeftOut(link.id, f"it was not failed away from: {link.id.source} is its primary")
        for link in meant
        if link not in away
    )
    return ChosenLinks(tuple(away), left_out)


def leading_to(config: Config, to: str, only: Link | None = None) -> list[Link]:
    """The configured links into a cluster; `only`: just that one.

    Raises:
        ConfigError: no such cluster.
        Refused: none leads there.
    """
    _check_cluster(config, to)
    links = _configured(config)
    leading = [link for link in links if link.id.target == to and only in {None, link}]
    if not leading:
        remedy = f"Links: {_names(links) or 'none'}"
        if any(link.id.source == to for link in links):
            remedy += f". To go back to {to}: drkit failback --to {to}"
        raise Refused(f"no link leads to {to}", meaning="Nothing was mirrored there", remedy=remedy)
    return leading


def leading_away(config: Config, to: str | None, only: Link | None = None) -> list[Link]:
    """The configured links out of a cluster (None: any); `only`: just that one.

    Raises:
        ConfigError: no such cluster, or no link at all.
        Refused: none leads away from it.
    """
    if to is not None:
        _check_cluster(config, to)
    links = config.required_links()
    leading = [link for link in links if to in {None, link.id.source} and only in {None, link}]
    if not leading:
        remedy = f"Links: {_names(links)}"
        raise Refused(f"no link leads away from {to}", meaning="It was never a primary", remedy=remedy)
    return leading


def failed_away(estate: ClusterContext, links: Sequence[Link]) -> list[Link]:
    """Those of these links that were failed away from.

    Raises:
        Refused: none of them was, or the store was filled in part only.
        Unreachable: the store doesn't answer.
    """
    for link in links:
        check_recovered(estate.store, link)  # its decision comes late in a recovery
    away = [link for link in links if was_failed_away(estate, link.id)]
    if not away:
        raise Refused(
            f"{_names(links)} {'was' if len(links) == 1 else 'were'} not failed away from",
            meaning="There is nothing to go back from: the primary is still the primary",
            remedy="`drkit status` shows the links",
        )
    return away


def was_failed_away(estate: ClusterContext, link: LinkId) -> bool:
    """Whether a link's source was failed away from, and isn't back yet."""
    control = estate.store.link_control(link)
    return control is not None and not control.direction.serves_source


def _moved_before(estate: ClusterContext, link: LinkId) -> LinkLeftOut | None:
    control = estate.store.link_control(link)
    if control is None or control.direction is not Direction.SEALED:
        return None
    by = f" by run {control.run}" if control.run else ""
    return LinkLeftOut(link, f"it was failed over already{by}")


def _check_cluster(config: Config, alias: str) -> None:
    if alias not in config.clusters:
        known = ", ".join(sorted(config.clusters))
        raise ConfigError(f"no cluster {alias!r} is configured", remedy=f"Known: {known}")


def _configured(config: Config) -> list[Link]:
    return [configured.link() for configured in config.links]


def _names(links: Sequence[Link]) -> str:
    return ", ".join(str(link.id) for link in links)


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
