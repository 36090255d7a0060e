"""The plan of a site run: its links' plans, one digest over them, and the effects on other links."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from drkit.failover.context.evidence import Evidence, expected_evidence
from drkit.failover.context.state_machine import Kind, Mode
from drkit.failover.plan.failover_plan import (
    FailoverPlan,
    Obstacle,
    accepting,
    checksum_of,
    digest_of,
    plan_document_of,
    plan_from_json,
    plan_json,
)
from drkit.failover.plan.site_failback_plan import SiteFailbackPlan
from drkit.failover.plan.waves import Wave, WaveAssignment
from drkit.failover.snapshot.choose_links import LinkLeftOut, OtherLink
from drkit.files import write_private
from drkit.model.canonical import document_digest
from drkit.model.clock import exact_iso
from drkit.model.errors import ConfigError
from drkit.model.runs import ACCEPT_UNFENCED
from drkit.model.topology import LinkId
from drkit.model.totals import greatest, total
from drkit.model.wording import and_more, counted

FORMAT = "drkit-site-plan/1"
_LEFT_OUT = TypeAdapter(tuple[LinkLeftOut, ...])
_OTHERS = TypeAdapter(tuple[OtherLink, ...])
_WAVES = TypeAdapter(tuple[Wave, ...])


@dataclass(frozen=True, slots=True)
class SitePlan:
    """What a site run will do: each link's plan, in the order of the configuration.

    `left_out`: links that lead to `to` and are not moved. `others`: the effect on further links. `obstacles`:
    those of the run as a whole; each link's plan has its own. `waves`: the order in which groups move,
    the rest last; none: each as it can.
    """

    to: str
    mode: Mode
    made_at: datetime
    plans: tuple[FailoverPlan, ...]
    left_out: tuple[LinkLeftOut, ...] = ()
    others: tuple[OtherLink, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    waves: tuple[Wave, ...] = ()
    kind: Kind = Kind.FAILOVER

    @property
    def links(self) -> tuple[LinkId, ...]:
        """The links that are moved."""
        return tuple(plan.link for plan in self.plans)

    def of(self, link: LinkId) -> FailoverPlan:
        """The plan of one of its links."""
        return next(plan for plan in self.plans if plan.link == link)

    @property
    def anchor(self) -> str:
        """The cluster on which the run's journal is anchored."""
        return self.to

    @property
    def confirmed_by(self) -> str:
        """The word to type as confirmation: a cluster's name."""
        return self.to

    @property
    def again(self) -> str:
        """The command that plans it again, without its links."""
        return f"drkit failover --to {self.to}"

    @property
    def label(self) -> str:
        """What `drkit runs` shows of the run."""
        return f"{and_more([str(link) for link in self.links])} {self.mode} to {self.to}"

    @property
    def digest(self) -> str:
        """SHA-256 over the decision: the links' digests, in the order of their names; hexadecimal."""
        body = {
            "kind": self.kind,
            "mode": self.mode,
            "to": self.to,
            "links": sorted([str(plan.link), plan.digest] for plan in self.plans),
            **({"waves": _WAVES.dump_python(self.waves, mode="json")} if self.waves else {}),
        }
        return document_digest(body)

    @property
    def assignment(self) -> WaveAssignment:
        """Which group moves in which wave."""
        return WaveAssignment(self.waves, self.plans)

    @property
    def shared_groups(self) -> dict[str, tuple[LinkId, ...]]:
        """Groups on more than one link, with these links: their consumers may start once all have committed."""
        by_group: dict[str, list[LinkId]] = {}
        for plan in self.plans:
            for group in {position.group for position in plan.placed}:
                by_group.setdefault(group, []).append(plan.link)
        return {group: tuple(links) for group, links in sorted(by_group.items()) if len(links) > 1}

    def own_warnings(self) -> list[str]:
        """Warnings of the run as a whole; each link's plan has its own."""
        found = [f"{each.link} is left out: {each.why}" for each in self.left_out]
        shared = self.shared_groups
        if shared:
            found.append(
                f"{counted(len(shared), 'group')} on more than one link ({and_more(list(shared))}): these links switch "
                "their clients only when all of them have committed"
            )
        return found


AnySitePlan = SitePlan | SiteFailbackPlan
"""The plan of any run of several links."""


def standing(
    plan: AnySitePlan, *, waived: frozenset[str] = frozenset(), unfenced: Collection[LinkId] = ()
) -> list[tuple[LinkId | None, Obstacle]]:
    """Obstacles that the given flags don't waive; by link, None: of the run as a whole.

    `unfenced`: links of which only the missing fence is accepted.
    """
    found: list[tuple[LinkId | None, Obstacle]] = [(None, each) for each in plan.obstacles]
    found += [(each.link, obstacle) for each in plan.plans for obstacle in each.obstacles]
    return [
        (link, obstacle)
        for link, obstacle in found
        if obstacle.waived_by not in waived and not (link in unfenced and obstacle.waived_by == ACCEPT_UNFENCED)
    ]


def accepting_shown(
    plan: SitePlan, shown: Iterable[tuple[LinkId | None, Obstacle]]
) -> tuple[SitePlan, frozenset[LinkId]]:
    """The plan, and the links that move unfenced, once an operator has accepted these obstacles and nothing else."""
    of_links: dict[LinkId, list[Obstacle]] = {link: [] for link in plan.links}
    for link, obstacle in shown:
        if link is not None:
            of_links[link].append(obstacle)
    accepted = tuple(accepting(each, of_links[each.link]) for each in plan.plans)
    unfenced = [link for link, mine in of_links.items() if any(each.waived_by == ACCEPT_UNFENCED for each in mine)]
    return replace(plan, plans=accepted), frozenset(unfenced)


def refusal_of(plan: AnySitePlan, link: LinkId | None, obstacle: Obstacle) -> Obstacle:
    """The refusal for an obstacle; a link's names the link and how to leave it out."""
    if link is None or len(plan.plans) == 1:
        return obstacle
    rest = " ".join(f"--link '{each}'" for each in plan.links if each != link)
    return replace(
        obstacle,
        what=f"{link}: {obstacle.what}",
        meaning=f"{obstacle.meaning}. No link was moved".lstrip(". "),
        remedy=f"{obstacle.remedy.rstrip('. ')}. Or without it: {plan.again} {rest}",
    )


def expected_loss(plan: AnySitePlan) -> Evidence:
    """The loss of all links together, as planned; a failback's plan has none."""
    return summed(expected_evidence(each.loss if isinstance(each, FailoverPlan) else None) for each in plan.plans)


def summed(evidence: Iterable[Evidence]) -> Evidence:
    """The evidence of several links combined: records are summed, times are the maximum."""
    all_of = list(evidence)
    fenced = [each.fenced for each in all_of]
    reasons = [each.rpo_reason for each in all_of if each.rpo_reason]
    seen = [each.observed_at for each in all_of if each.observed_at is not None]
    return Evidence(
        rpo_records=total(each.rpo_records for each in all_of),
        rpo_seconds=greatest(each.rpo_seconds for each in all_of),
        rpo_basis="audited" if all_of and all(each.rpo_basis == "audited" for each in all_of) else "observed",
        observed_at=min(seen, default=None),
        rto_seconds=greatest(each.rto_seconds for each in all_of),
        fenced=None if None in fenced else all(fenced),
        rpo_lower_bound=any(each.rpo_lower_bound for each in all_of),
        rpo_reason=and_more(list(dict.fromkeys(reasons)), separator="; ") or None,
        removed_unread=total(each.removed_unread for each in all_of),
        rpo_upper_bound=any(each.rpo_upper_bound for each in all_of),
    )


def site_plan_json(plan: SitePlan) -> str:
    """The plan as JSON text, complete."""
    frame = json.dumps(_frame(plan), separators=(",", ":"))
    return f'{frame[:-1]},"plans":[{",".join(plan_json(each) for each in plan.plans)}]}}'


def site_plan_from_json(text: str) -> SitePlan:
    """The plan that `site_plan_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: it isn't one.
    """
    body = json.loads(text)
    return SitePlan(
        to=body["to"],
        mode=Mode(body["mode"]),
        made_at=datetime.fromisoformat(body["made_at"]),
        plans=tuple(plan_from_json(json.dumps(each)) for each in body["plans"]),
        left_out=_LEFT_OUT.validate_python(body["left_out"]),
        waves=_WAVES.validate_python(body["waves"]),
        others=_OTHERS.validate_python(body["others"]),
        kind=Kind(body["kind"]),
    )


def write_site_plan(plan: SitePlan, path: Path) -> None:
    """Write a plan file.

    Raises:
        ConfigError: the path can't be written.
    """
    plans = [plan_document_of(each) for each in plan.plans]
    document = {**_frame(plan), "plans": plans}
    body = {"format": FORMAT, "digest": plan.digest, "checksum": checksum_of(document), "plan": document}
    try:
        write_private(path, json.dumps(body, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"the plan can't be written to {path}: {error}", remedy="Give another --out") from error


def read_site_plan(path: Path, body: dict[str, Any]) -> SitePlan:
    """The plan of a file whose JSON is `body`.

    Raises:
        ConfigError: it is damaged, or was changed after it was written.
    """
    try:
        plan = site_plan_from_json(json.dumps(body.get("plan")))
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"the plan {path} is damaged", remedy="Make a new one with --out FILE") from None
    plan = replace(plan, plans=tuple(replace(each, digest=digest_of(each)) for each in plan.plans))
    if plan.digest != body.get("digest") or checksum_of(body["plan"]) != body.get("checksum"):
        raise ConfigError(
            f"the plan {path} was changed after it was written",
            meaning="Its digest or its checksum does not match its content",
            remedy="Make a new one with --out FILE",
        )
    return plan


def _frame(plan: SitePlan) -> dict[str, Any]:
    return {
        "kind": plan.kind.value,
        "to": plan.to,
        "mode": plan.mode.value,
        "made_at": exact_iso(plan.made_at),
        "left_out": _LEFT_OUT.dump_python(plan.left_out, mode="json"),
        "others": _OTHERS.dump_python(plan.others, mode="json"),
        "waves": _WAVES.dump_python(plan.waves, mode="json"),
    }
