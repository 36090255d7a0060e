"""The plan of a failback: what is kept, what is deleted, who moves back. Frozen, with a digest.

`link` is the configured link. `target` is its source, the old primary, to which the failback goes back. `live` is the
cluster that serves now, the configured link's target.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from drkit.failover.context.live_log import Lacking
from drkit.failover.context.state_machine import PATHS, Kind, Mode, Run, next_step
from drkit.failover.plan.failover_plan import DirectoryView, Obstacle, StagePlan, decided_directories
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts
from drkit.model.canonical import document_digest
from drkit.model.topology import LinkId


@dataclass(frozen=True, slots=True)
class ScrubTopic:
    """A topic of the old primary that is deleted and recreated.

    `topic_id` is the incarnation that may be deleted; another one is never touched. `config` is its
    effective configuration. `epoch` is the configured link's epoch of it. `starts`, `ends`: of its log, and
    `live_starts` of the live cluster's, when the plan was made. `only`: by partition, how many of its offsets the live
    log can't hold. `gap`: why the live topic lacks even mirrored records ("": it doesn't), `missing`: how much of these
    (`Lacking`). `live_topic` is its name on
    the live cluster, `live_topic_id` the id of the mirrored topic. `way_back`: a failback that was given up created
    this topic, from that one.
    """

    topic: str
    topic_id: str
    live_topic: str
    partitions: int
    replication_factor: int
    epoch: int
    created_by_drkit: bool
    config: dict[str, str] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    live_topic_id: str = ""
    live_starts: dict[int, int] = field(default_factory=dict)
    only: dict[int, int] = field(default_factory=dict)
    gap: str = ""
    missing: dict[str, int] = field(default_factory=dict)
    way_back: bool = False

    @property
    def records(self) -> int:
        """Offsets that the scrub deletes."""
        return sum(max(0, end - self.starts.get(partition, 0)) for partition, end in self.ends.items())

    @property
    def only_here(self) -> int:
        """Offsets that only the old primary holds: they are salvaged first."""
        return sum(self.only.values())

    @property
    def lacking(self) -> Lacking:
        """What the live cluster lacks of what was mirrored, where there is a gap."""
        return Lacking(self.topic, self.gap, self.missing)


@dataclass(frozen=True, slots=True)
class FailbackPlan:
    """What a failback will do. `positions` are the groups' on the live cluster; their new positions are known only once
    the old primary is seeded again. `carried`: how many of them exist on the old primary only. `inherited`: those
    that an abandoned run kept, and that its scrub deleted. `offsets` counts, by
    group, the committed offsets that are deleted there. `failover_run` is the run that failed the link away.
    `level`: the old primary holds nothing that the live cluster lacks, so nothing is deleted there.
    `by_spark`: Spark's tasks seed the old primary. `pause_before_fence`: the run stops there once, also where it was
    resumed before. `rows_in_doubt`: what isn't known of the store's mapping rows, by
    the old primary's names.
    """

    link: LinkId
    made_at: datetime
    target: ClusterView
    live: ClusterView
    endpoint: str
    control: str
    control_version: int | None
    failover_run: str | None
    topics: tuple[ScrubTopic, ...]
    offsets: dict[str, int]
    positions: tuple[PlannedPosition, ...]
    carried: int = 0
    inherited: tuple[PlannedPosition, ...] = ()
    directories: tuple[DirectoryView, ...] = ()
    level: bool = False
    by_spark: bool = False
    pause_before_fence: bool = False
    stages: tuple[StagePlan, ...] = ()
    warnings: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    rows_in_doubt: RowDoubts = NO_ROW_DOUBTS
    digest: str = ""
    kind: Kind = Kind.FAILBACK
    mode: Mode = Mode.PLANNED

    @property
    def only_here(self) -> int:
        """Offsets that only the old primary holds."""
        return sum(topic.only_here for topic in self.topics)

    @property
    def deletes(self) -> bool:
        """Whether anything is deleted on the old primary."""
        return bool(self.topics) and not self.level

    @property
    def gaps(self) -> tuple[Lacking, ...]:
        """What the live cluster lacks of what was mirrored: only the salvage will have it."""
        return tuple(topic.lacking for topic in self.topics if topic.gap)


def will_pause(plan: FailbackPlan, machine: Run | None) -> bool:
    """Whether the run, resumed, stops before it closes the live cluster: it was told to, and has not come there yet.

    `machine`: None where it was not begun.
    """
    if machine is None:
        return plan.pause_before_fence
    step, _why = next_step(machine)
    stages = [each.stage for each in PATHS[machine.kind]]
    return plan.pause_before_fence and step is not None and stages.index(step.stage) < stages.index("fence")


_ADAPTER = TypeAdapter(FailbackPlan)


def failback_plan_json(plan: FailbackPlan) -> str:
    """The plan as JSON text, complete."""
    return _ADAPTER.dump_json(plan).decode()


def failback_plan_from_json(text: str) -> FailbackPlan:
    """The plan that `failback_plan_json` wrote; raises pydantic's ValidationError where it isn't one."""
    return _ADAPTER.validate_json(text)


def with_digest(plan: FailbackPlan) -> FailbackPlan:
    """The plan with the SHA-256 of its decision: what is deleted where, and in which stages."""
    return replace(plan, digest=document_digest(_decision(plan)))


def _decision(plan: FailbackPlan) -> dict[str, Any]:
    return {
        "kind": plan.kind,
        "link": str(plan.link),
        "target": [plan.target.alias, plan.target.cluster_id],
        "live": [plan.live.alias, plan.live.cluster_id],
        "control": [plan.control, plan.control_version, plan.failover_run],
        "topics": [
            [t.topic, t.topic_id, t.live_topic, t.partitions, sorted(t.only.items()), sorted(t.ends.items()), t.gap]
            for t in plan.topics
        ],
        "offsets": sorted(plan.offsets.items()),
        "stages": [stage.name for stage in plan.stages],
        **({"level": True} if plan.level else {}),
        **({"by_spark": True} if plan.by_spark else {}),
        **({"directories": decided_directories(plan.directories)} if plan.directories else {}),
    }
