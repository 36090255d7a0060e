"""The plan of a failback or reprotect of several links: their plans, and one digest over them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from drkit.failover.context.state_machine import Kind, Mode
from drkit.failover.plan.failback_plan import FailbackPlan, failback_plan_from_json, failback_plan_json
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.snapshot.choose_links import LinkLeftOut, OtherLink
from drkit.model.canonical import document_digest
from drkit.model.clock import exact_iso
from drkit.model.topology import LinkId
from drkit.model.wording import and_more, counted

_LEFT_OUT = TypeAdapter(tuple[LinkLeftOut, ...])


@dataclass(frozen=True, slots=True)
class SiteFailbackPlan:
    """What a failback or reprotect of several links will do: each link's plan, in the order of the configuration.

    `left_out`: matching links that were not failed away from. `obstacles`: those of the run as a whole; each link's
    plan has its own.
    """

    kind: Kind
    made_at: datetime
    plans: tuple[FailbackPlan, ...]
    left_out: tuple[LinkLeftOut, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def links(self) -> tuple[LinkId, ...]:
        """The links that are brought back."""
        return tuple(plan.link for plan in self.plans)

    def of(self, link: LinkId) -> FailbackPlan:
        """The plan of one of its links."""
        return next(plan for plan in self.plans if plan.link == link)

    @property
    def mode(self) -> Mode:
        """A failback is planned."""
        return Mode.PLANNED

    @property
    def others(self) -> tuple[OtherLink, ...]:
        """None: what becomes of links that are not brought back is in the warnings of each link's plan."""
        return ()

    @property
    def old_primaries(self) -> dict[str, str]:
        """The clusters to go back to, with their ids, in the order of the links."""
        return {plan.target.alias: plan.target.cluster_id or "" for plan in self.plans}

    @property
    def deleting(self) -> dict[str, int]:
        """The old primaries on which topics are deleted, and how many."""
        found: dict[str, int] = {}
        for plan in self.plans:
            if plan.deletes:
                found[plan.target.alias] = found.get(plan.target.alias, 0) + len(plan.topics)
        return found

    @property
    def to(self) -> str | None:
        """The old primary; None: there are several."""
        names = list(self.old_primaries)
        return names[0] if len(names) == 1 else None

    @property
    def live(self) -> tuple[str, ...]:
        """The clusters that serve now."""
        return tuple(dict.fromkeys(plan.live.alias for plan in self.plans))

    @property
    def anchor(self) -> str:
        """The cluster on which the run's journal is anchored: the first link's old primary, as that link's run is."""
        return self.plans[0].target.alias

    @property
    def confirmed_by(self) -> str:
        """The word to type as confirmation: a cluster's name."""
        return self.to or self.live[0]

    @property
    def again(self) -> str:
        """The command that plans it again, without its links."""
        return f"drkit {self.kind}"

    @property
    def label(self) -> str:
        """What `drkit runs` shows of the run."""
        return f"{and_more([str(link) for link in self.links])} {self.kind} to {and_more(list(self.old_primaries))}"

    @property
    def digest(self) -> str:
        """SHA-256 over the decision: the links' digests, in the order of their names; hexadecimal."""
        body = {"kind": self.kind, "links": sorted([str(plan.link), plan.digest] for plan in self.plans)}
        return document_digest(body)

    @property
    def shared_groups(self) -> dict[str, tuple[LinkId, ...]]:
        """Groups that more than one link moves back from the same live cluster, with these links."""
        by_group: dict[tuple[str, str], list[LinkId]] = {}
        for plan in self.plans:
            for group in {position.group for position in plan.positions}:
                by_group.setdefault((group, plan.live.alias), []).append(plan.link)
        return {group: tuple(links) for (group, _), links in sorted(by_group.items()) if len(links) > 1}

    def own_warnings(self) -> list[str]:
        """Warnings of the run as a whole; each link's plan has its own."""
        found = [f"{each.link} is left out: {each.why}" for each in self.left_out]
        shared = self.shared_groups
        if shared:
            found.append(
                f"{counted(len(shared), 'group')} on more than one link ({and_more(list(shared))}): where "
                f"{and_more(list(self.live))} is fenced, they can't read there from the first of these links' fences "
                "on; so none of these links is fenced before all of them are audited"
            )
        return found


def site_failback_plan_json(plan: SiteFailbackPlan) -> str:
    """The plan as JSON text, without obstacles: a run begins only if there are none."""
    frame = json.dumps(
        {
            "kind": plan.kind.value,
            "made_at": exact_iso(plan.made_at),
            "left_out": _LEFT_OUT.dump_python(plan.left_out, mode="json"),
        },
        separators=(",", ":"),
    )
    return f'{frame[:-1]},"plans":[{",".join(failback_plan_json(each) for each in plan.plans)}]}}'


def site_failback_plan_of(body: dict[str, Any]) -> SiteFailbackPlan:
    """The plan whose JSON `site_failback_plan_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: it isn't one.
    """
    return SiteFailbackPlan(
        kind=Kind(body["kind"]),
        made_at=datetime.fromisoformat(body["made_at"]),
        plans=tuple(failback_plan_from_json(json.dumps(each)) for each in body["plans"]),
        left_out=_LEFT_OUT.validate_python(body["left_out"]),
    )
