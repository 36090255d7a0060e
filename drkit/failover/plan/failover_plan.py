"""The frozen plan of a failover: what it decided, why, and a digest over the decision.

The digest covers the decision (who moves where, on which clusters, in which mode), not the time of the observation: the
same snapshot gives the same digest. A plan file is JSON; reading it checks the digest, and a checksum over all of it,
so an edited file is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from drkit.failover.context.state_machine import Kind, Loss, Mode
from drkit.failover.plan.codec import Packed
from drkit.failover.plan.loss_budget import LossBudget
from drkit.failover.positions.consistent_cut import ConsistentCut
from drkit.failover.positions.position_checks import PositionCheck, what_changed
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.selection import Selection
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.files import write_private
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts
from drkit.model.clock import iso
from drkit.model.errors import ConfigError, Refused
from drkit.model.runs import ACCEPT_LOSS, FenceMethod
from drkit.model.topology import LinkId

FORMAT = "drkit-failover-plan/1"
AcceptedLoss = int | Literal["unknown"] | None
_SHOWN = 5
_decided = attrgetter(
    "group",
    "topic",
    "partition",
    "target_topic",
    "source_offset",
    "target_offset",
    "strategy",
    "translation",
    "metadata",
)
"""The fields of a position that belong to the decision."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A precondition that does not hold, in the words of the refusal.

    `waived_by` names the flag that accepts it, or None. `loss`: what `--accept-loss` has to say for that.
    """

    what: str
    meaning: str
    remedy: str
    waived_by: str | None = None
    loss: AcceptedLoss = None

    def refusal(self) -> Refused:
        """The error that says it."""
        return Refused(self.what, meaning=self.meaning, remedy=self.remedy)


@dataclass(frozen=True, slots=True)
class StagePlan:
    """A stage in the plan, described by the stage itself."""

    name: str
    explanation: str


@dataclass(frozen=True, slots=True)
class DirectoryView:
    """A cluster directory's answer; all None: it has no entry. `reason`: why it can't be asked."""

    name: str
    active: str | None = None
    bootstrap_servers: str | None = None
    epoch: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """What a failover will do. `obstacles`: why it would be refused now.

    `control`, `control_version`, `control_run`: the link's direction at planning time, its version (None: none stored)
    and the run that decided it. `places`: the records at the groups' new positions. `mirrormaker`: positions come from
    MirrorMaker 2's records, with its alias of the source.
    `cut`: with `--consistent`, the origin of `at`.
    `catch_up`: the mode wasn't given: the run waits for missing records of a source that answers when it is fenced.
    `accept_loss`: how many records may be lost although the source answers, or `budgets` allow fewer (`unknown`: any
    number).
    `rows_in_doubt`: what isn't known of the store's mapping rows, on which positions rest.
    `fence`: the `FenceMethod` for the source; if it is `none`, `fence_reason` says why.
    """

    link: LinkId
    mode: Mode
    at: Moment | None
    selection: Selection
    allow_rewind: bool
    made_at: datetime
    source: ClusterView
    target: ClusterView
    endpoint: str
    control: str
    control_version: int | None
    control_run: str | None
    positions: Packed
    loss: Loss
    fence: str = FenceMethod.NONE
    fence_reason: str = ""
    catch_up: bool = False
    accept_loss: AcceptedLoss = None
    budgets: tuple[LossBudget, ...] = ()
    places: tuple[PositionCheck, ...] = ()
    cut: ConsistentCut | None = None
    directories: tuple[DirectoryView, ...] = ()
    mirrormaker: str | None = None
    stages: tuple[StagePlan, ...] = ()
    warnings: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    rows_in_doubt: RowDoubts = NO_ROW_DOUBTS
    digest: str = ""
    kind: Kind = Kind.FAILOVER

    @property
    def waits(self) -> bool:
        """Whether the source answers, so that its missing records are waited for; else they count as lost."""
        return self.catch_up and self.source.reachable

    @property
    def placed(self) -> tuple[PlannedPosition, ...]:
        """The positions that will be committed."""
        return tuple([position for position in self.positions if position.target_offset is not None])


def accepting(plan: FailoverPlan, shown: Iterable[Obstacle]) -> FailoverPlan:
    """The plan once an operator has accepted the losses that these of its obstacles show, and no greater one."""
    losses = {each for each in shown if each.waived_by == ACCEPT_LOSS}
    left = tuple(each for each in plan.obstacles if each not in losses)
    given = [plan.accept_loss, *(each.loss for each in losses)]
    numbers = [each for each in given if isinstance(each, int)]
    return replace(plan, accept_loss="unknown" if "unknown" in given else max(numbers, default=None), obstacles=left)


_ADAPTER = TypeAdapter(FailoverPlan)
_ONE_BY_ONE = TypeAdapter(tuple[PlannedPosition, ...])


def sealed(plan: FailoverPlan) -> FailoverPlan:
    """The plan with its digest."""
    return replace(plan, digest=digest_of(plan))


def digest_of(plan: FailoverPlan) -> str:
    """SHA-256 over the canonical JSON of the decision, as hexadecimal text."""
    body = json.dumps(_decision(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(body.encode()).hexdigest()


def plan_json(plan: FailoverPlan) -> str:
    """The plan as JSON text, complete."""
    return _ADAPTER.dump_json(plan).decode()


def plan_from_json(text: str) -> FailoverPlan:
    """The plan that `plan_json` wrote; raises pydantic's ValidationError where it isn't one."""
    return _ADAPTER.validate_json(text)


def plan_document_of(plan: FailoverPlan) -> dict[str, Any]:
    """The plan as written to a file: positions one by one, for people and other programs."""
    written: dict[str, Any] = json.loads(plan_json(plan))
    return {**written, "positions": _ONE_BY_ONE.dump_python(plan.positions, mode="json")}


def write_plan(plan: FailoverPlan, path: Path) -> None:
    """Write a plan file.

    Raises:
        ConfigError: the path can't be written.
    """
    document = plan_document_of(plan)
    body = {"format": FORMAT, "digest": plan.digest, "checksum": checksum_of(document), "plan": document}
    try:
        write_private(path, json.dumps(body, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"the plan can't be written to {path}: {error}", remedy="Give another --out") from error


def plan_file(path: Path) -> dict[str, Any]:
    """Read a plan file; `format` names its kind.

    Raises:
        ConfigError: it can't be read, or holds no JSON object.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # not text, not JSON, or nested too deeply
        raise ConfigError(f"the plan {path} can't be read: {error}", remedy="Make one with --out FILE") from error
    return body if isinstance(body, dict) else {}


def checksum_of(document: Any) -> str:
    """SHA-256 over the whole plan in a file, including accepted losses and rewinds, which aren't in its digest."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_plan(path: Path) -> FailoverPlan:
    """Read a plan file.

    Raises:
        ConfigError: it can't be read, isn't a plan, or was changed after it was written.
    """
    body = plan_file(path)
    if body.get("format") != FORMAT:
        raise ConfigError(f"{path} is not a plan of this drkit ({FORMAT})", remedy="Make one with --out FILE")
    try:
        plan = _ADAPTER.validate_python(body.get("plan"))
    except ValidationError as error:
        raise ConfigError(
            f"the plan {path} is damaged: {error.error_count()} fields are wrong", remedy="Make a new one"
        ) from None
    if digest_of(plan) != body.get("digest") or checksum_of(body["plan"]) != body.get("checksum"):
        raise ConfigError(
            f"the plan {path} was changed after it was written",
            meaning="Its digest or its checksum does not match its content",
            remedy="Make a new one with --out FILE",
        )
    return replace(plan, digest=str(body["digest"]))


def what_moved(planned: FailoverPlan, now: FailoverPlan) -> list[str]:
    """The differences between a plan and the plan that the same request gives now, one sentence each."""
    moved = []
    for side, before, after in (("source", planned.source, now.source), ("target", planned.target, now.target)):
        if before.reachable != after.reachable:
            moved.append(f"the {side} {before.alias} is now {'reachable' if after.reachable else 'unreachable'}")
        elif before.cluster_id != after.cluster_id:
            moved.append(f"the {side} {before.alias} is another cluster: {after.cluster_id}, was {before.cluster_id}")
    if (planned.control, planned.control_version) != (now.control, now.control_version):
        moved.append(f"the link was {planned.control} and is {now.control} (decided again since)")
    before_positions = {(p.group, p.topic, p.partition): p for p in planned.positions}
    after_positions = {(p.group, p.topic, p.partition): p for p in now.positions}
    for key in sorted(before_positions.keys() | after_positions.keys()):
        sentence = _difference(before_positions.get(key), after_positions.get(key))
        if sentence is not None:
            moved.append(sentence)
    moved += what_changed(planned.places, now.places)
    for said, says in zip(planned.directories, now.directories, strict=False):
        if said.name == says.name and (said.active, said.epoch) != (says.active, says.epoch):
            moved.append(f"{said.name} now says {says.active or 'nothing'}, not {said.active or 'nothing'}")
    if not moved and digest_of(planned) != digest_of(now):
        moved.append("the clusters or flags differ from those the plan was made with")
    return moved


def same_decision(one: tuple[PlannedPosition, ...], other: tuple[PlannedPosition, ...]) -> bool:
    """Whether two sets of positions send the same groups to the same offsets, regardless of the time."""
    return one is other or list(map(_decided, one)) == list(map(_decided, other))


def shown(sentences: list[str]) -> str:
    """The first few sentences, and how many more there are."""
    more = f"; and {len(sentences) - _SHOWN} more" if len(sentences) > _SHOWN else ""
    return "; ".join(sentences[:_SHOWN]) + more


def _difference(before: PlannedPosition | None, after: PlannedPosition | None) -> str | None:
    if before is None and after is not None:
        return f"{after.group} now has a position on {after.topic}:{after.partition}"
    if after is None and before is not None:
        return f"{before.group} has no position on {before.topic}:{before.partition} any more"
    if before is None or after is None or _decided(before) == _decided(after):
        return None
    where = f"{after.group} on {after.topic}:{after.partition}"
    if before.target_offset != after.target_offset:
        return f"{where} would now go to {after.target_offset}, not {before.target_offset}"
    if before.source_offset == after.source_offset and before.translation != after.translation:
        why = f" ({after.reason})" if after.reason else ""
        return f"{where} is now {after.translation}, not {before.translation}{why}"
    return f"{where} is now at {after.source_offset} on the source, not {before.source_offset}"


def decided_directories(views: tuple[DirectoryView, ...]) -> list[list[Any]]:
    """The part of the directories that a digest covers."""
    return [[view.name, view.active, view.epoch] for view in views]


def _decision(plan: FailoverPlan) -> dict[str, Any]:
    return {
        "kind": plan.kind,
        "link": str(plan.link),
        "mode": plan.mode,
        "at": None if plan.at is None else iso(plan.at.instant),
        **({"basis": plan.at.basis} if plan.at is not None and plan.at.by_commits else {}),
        "groups": list(plan.selection.groups),
        "topics": [str(selector) for selector in plan.selection.topics],
        **({"places": [str(place) for place in plan.selection.places]} if plan.selection.places else {}),
        **({"edge": plan.selection.edge} if plan.selection.edge else {}),
        **({"catch_up": True} if plan.catch_up else {}),
        **({"budgets": [[*b.topics, b.records, b.seconds] for b in plan.budgets]} if plan.budgets else {}),
        **({"fence": plan.fence} if plan.fence != FenceMethod.NONE else {}),
        "source": [plan.source.alias, plan.source.reachable, plan.source.cluster_id],
        "target": [plan.target.alias, plan.target.cluster_id],
        "control": [plan.control, plan.control_version],
        "stages": [stage.name for stage in plan.stages],
        **({"mirrormaker": plan.mirrormaker} if plan.mirrormaker is not None else {}),
        **({"directories": decided_directories(plan.directories)} if plan.directories else {}),
        "positions": [_decided(position) for position in plan.positions],
    }
