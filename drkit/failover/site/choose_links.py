"""Which links a site run takes: those that lead to a cluster, those that are named or match a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drkit.failover.run.cluster_context import ClusterContext
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_patterns import matching
from drkit.model.link_state import Direction
from drkit.model.topology import Link, LinkId


@dataclass(frozen=True, slots=True)
class LinkLeftOut:
    """A link that would have been meant, and why it is left as it is."""

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
        patterns: as `--link` gives them; none: every link that leads there, except for those that were failed over.
        groups_named: groups are named: a link that was failed over may have left them behind.

    Raises:
        ConfigError: no such cluster, or a pattern matches no link that leads there.
        Refused: no link leads there.
        Unreachable: the store doesn't answer.
    """
    if to not in estate.config.clusters:
        raise ConfigError(
            f"no cluster {to!r} is configured", remedy=f"Known: {', '.join(sorted(estate.config.clusters))}"
        )
    links = [configured.link() for configured in estate.config.links]
    leading = [link for link in links if link.id.target == to]
    if not leading:
        back = any(link.id.source == to for link in links)
        remedy = f"Links: {_names(links) or 'none'}"
        if back:
            remedy += f". To go back to {to}: drkit failback --to {to}"
        raise Refused(f"no link leads to {to}", meaning="Nothing was mirrored there", remedy=remedy)
    if patterns:
        return ChosenLinks(tuple(matching(leading, patterns)))
    if groups_named or len(leading) == 1:
        return ChosenLinks(tuple(leading))
    left_out = tuple(found for link in leading if (found := _moved_before(estate, link.id)) is not None)
    if len(left_out) == len(leading):
        return ChosenLinks(tuple(leading))  # planning them says by which runs
    before = {each.link for each in left_out}
    return ChosenLinks(tuple(link for link in leading if link.id not in before), left_out)


def _moved_before(estate: ClusterContext, link: LinkId) -> LinkLeftOut | None:
    control = estate.store.link_control(link)
    if control is None or control.direction is not Direction.SEALED:
        return None
    by = f" by run {control.run}" if control.run else ""
    return LinkLeftOut(link, f"it was failed over already{by}")


def _names(links: Sequence[Link]) -> str:
    return ", ".join(str(link.id) for link in links)
