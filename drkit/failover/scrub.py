"""The stages that make the old primary a fresh target: salvage, then scrub.

Only what the plan names is touched, and only while it is what the plan saw: the cluster by its id,
each topic by the id of its incarnation. A topic of another id that is empty is the one an
interrupted attempt created; one that holds records belongs to somebody, and stops the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from drkit.failover.audited_loss import complete_evidence
from drkit.failover.failback_plan import ScrubTopic
from drkit.failover.machine import Facts, Outcome
from drkit.failover.observe import mirror_at_work
from drkit.failover.quiet import differing, still_written
from drkit.failover.stage import StageContext, StageReport
from drkit.kafka.admin import ClusterAdmin, NewTopic, TopicInfo
from drkit.model.errors import DrkitError, Refused
from drkit.model.standby import ALIGNING, OWN_SETTINGS, UNCOMPACTED, is_compacted, own_note
from drkit.model.text import and_more
from drkit.model.topology import Link, LinkId, TopicPartition


@dataclass(frozen=True, slots=True)
class Salvage:
    """Keep what only the old primary holds."""

    cluster: str
    cluster_id: str
    live: str
    topics: tuple[ScrubTopic, ...]
    name: str = "salvage"

    def explain(self) -> str:
        """What it will do."""
        count = sum(topic.only_here for topic in self.topics)
        if not count:
            return f"nothing to keep: {self.cluster} holds nothing that {self.live} doesn't"
        return f"keep the {count:,} offsets that only {self.cluster} holds (Parquet and a replayable form)"

    def execute(self, context: StageContext) -> StageReport:
        """Write them out, unless there are none."""
        check_cluster(context, self.cluster, self.cluster_id)
        with suppress(Refused):  # another cluster stands there: what the failover lost can't be told any more
            complete_evidence(context.estate, context.link.reversed())
        facts, reason = keep(context, self.cluster, self.topics)
        outcome = Outcome.OK if facts.salvage_path is not None else Outcome.SKIPPED
        return StageReport(outcome, reason, facts)


@dataclass(frozen=True, slots=True)
class Scrub:
    """Delete the covered topics of the old primary and create them anew; delete the groups' offsets on them."""

    cluster: str
    cluster_id: str
    configured: LinkId
    topics: tuple[ScrubTopic, ...]
    offsets: int
    level: bool = False
    name: str = "scrub"

    def explain(self) -> str:
        """What it will do."""
        if self.level:
            return f"nothing is deleted: all that {self.cluster} holds was mirrored, so it is only brought up to date"
        records = sum(topic.records for topic in self.topics)
        return (
            f"on {self.cluster} ({self.cluster_id}) delete and recreate {len(self.topics)} topics "
            f"({records:,} offsets) and delete {self.offsets} committed offsets; nothing else"
        )

    def execute(self, context: StageContext) -> StageReport:
        """Check again, delete, create, delete offsets."""
        admin = context.estate.admin(self.cluster)
        check_cluster(context, self.cluster, self.cluster_id)
        forward = context.link.reversed()
        worker = mirror_at_work(context.estate, forward)
        if worker is not None:
            raise Refused(f"a mirror works on {self.configured}: {worker}", remedy="Stop it")
        if self.level:
            return self._spared(context)
        found = admin.topics([topic.topic for topic in self.topics])
        old = tuple(topic for topic in self.topics if _is_old(topic, found))
        _check_new(admin, self.cluster, [info for name, info in found.items() if name not in {t.topic for t in old}])
        facts = self._all_kept(context, old)
        context.lease.check()
        admin.delete_topics([topic.topic for topic in old])
        ids = recreate(admin, self.topics)
        delete_offsets(context, self.cluster, forward, set(ids))
        facts = replace(facts, scrubbed=ids, offsets_deleted=self.offsets)
        return StageReport(
            Outcome.OK, f"{len(ids)} topics deleted and created anew, {self.offsets} committed offsets gone", facts
        )

    def _spared(self, context: StageContext) -> StageReport:
        """Nothing is deleted, if it still is as the plan saw it."""
        found = context.estate.admin(self.cluster).topics([topic.topic for topic in self.topics])
        planned = {str(TopicPartition(t.topic, number)): end for t in self.topics for number, end in t.ends.items()}
        moved = differing(planned, _written(ends_now(context, self.cluster, self.topics)))
        gone = [topic.topic for topic in self.topics if not _is_old(topic, found)]
        if moved or gone:
            raise Refused(
                f"{self.cluster} is not as planned: {and_more((*gone, *moved))}",
                meaning="It was written since, or topics were made anew: what is there now has to be kept first",
                remedy="Stop what writes there, then plan the failback anew",
            )
        return StageReport(
            Outcome.SKIPPED,
            f"{self.cluster} holds nothing that isn't elsewhere: nothing is deleted",
            context.facts,
        )

    def _all_kept(self, context: StageContext, old: Sequence[ScrubTopic]) -> Facts:
        """What was salvaged still is all there is; what came since is salvaged too."""
        moved = _unsalvaged(context, self.cluster, context.facts, old)
        if not moved:
            return context.facts
        context.say(f"{self.cluster} was written after the salvage: salvaging again")
        facts, _ = keep(context, self.cluster, old)
        moved = _unsalvaged(context, self.cluster, facts, old)
        if moved:
            raise still_written(self.cluster, moved)
        return facts


def keep(context: StageContext, cluster: str, topics: Sequence[ScrubTopic]) -> tuple[Facts, str]:
    """Salvage what of these topics only the old primary holds; the facts with its ends, and what was done.

    It goes to a new folder: what an attempt before has kept is never written over.

    Raises:
        Refused: it is still written.
        DrkitError: the salvage doesn't hold all of it.
    """
    ends = ends_now(context, cluster, topics)
    through = {
        TopicPartition(topic.topic, partition): max(topic.starts.get(partition, 0), topic.through.get(partition, 0))
        for topic in topics
        for partition in range(topic.partitions)
    }
    beyond = {tp: end - through[tp] for tp, end in ends.items() if end > through[tp]}
    facts = replace(
        context.facts, salvaged_through={**context.facts.salvaged_through, **{str(tp): end for tp, end in ends.items()}}
    )
    before = facts.salvaged or 0
    if not beyond:
        return replace(facts, salvaged=before), f"{cluster} holds nothing that isn't elsewhere"
    out = _free_folder(context.rooms.salvage_root / context.run)
    kept = context.rooms.salvager.salvage(context.link.reversed(), {tp: through[tp] for tp in beyond}, out)
    moved = differing({str(tp): e for tp, e in ends.items()}, _written(ends_now(context, cluster, topics)))
    if moved:
        raise still_written(cluster, moved)
    offsets = sum(beyond.values())
    facts = replace(facts, salvaged=before + kept.records, salvage_path=kept.path)
    note = f"; {kept.note}" if kept.note else ""
    return facts, f"{kept.records:,} records of {offsets:,} offsets are kept in {kept.path}{note}"


def check_cluster(context: StageContext, alias: str, cluster_id: str) -> None:
    """Raise `Refused` unless the cluster behind the alias is the one that was confirmed."""
    found = context.estate.admin(alias).cluster_id()
    if found != cluster_id:
        raise Refused(
            f"{alias} is cluster {found}, not {cluster_id}",
            meaning="The address leads to another cluster than the one that was confirmed; nothing there is touched",
            remedy="Mend bootstrap_servers, or plan anew",
        )


def ends_now(context: StageContext, alias: str, topics: Iterable[ScrubTopic]) -> dict[TopicPartition, int]:
    """The log ends (high watermarks) of these topics on a cluster."""
    tps = [TopicPartition(topic.topic, partition) for topic in topics for partition in range(topic.partitions)]
    return context.estate.admin(alias).end_offsets(tps, committed=False)


def recreate(admin: ClusterAdmin, topics: Sequence[ScrubTopic]) -> dict[str, str]:
    """Create those that are missing, configure all as they were; their new ids by name.

    Compacted ones are made so only when they begin where the live cluster's do: by the mirror (`reverse` notes them).
    Only settings that differ from what the cluster gives a new topic are set, so that broker
    defaults stay defaults.
    """
    found = admin.topics([topic.topic for topic in topics])
    missing = [topic for topic in topics if topic.topic not in found]
    failures = admin.create_topics([NewTopic(t.topic, t.partitions, t.replication_factor) for t in missing])
    if failures:
        name, why = next(iter(failures.items()))
        raise DrkitError(
            f"topic {name} can't be created anew: {why}", remedy="Remove the cause named; nothing of it is lost"
        )
    waiting = [replace(t, config={**t.config, **UNCOMPACTED}) if is_compacted(t.config) else t for t in topics]
    restore_configs(admin, waiting)
    return {name: info.topic_id for name, info in admin.topics([topic.topic for topic in topics]).items()}


def restore_configs(admin: ClusterAdmin, topics: Sequence[ScrubTopic]) -> None:
    """Give topics the effective configuration that they had when the plan was made."""
    effective = admin.topic_configs([topic.topic for topic in topics])
    changes = {}
    for topic in topics:
        have = effective.get(topic.topic, {})
        changes[topic.topic] = {
            name: value for name, value in topic.config.items() if name in have and have[name] != value
        }
    failures = admin.set_many_topic_configs(changes)
    if failures:
        name, why = next(iter(failures.items()))
        raise DrkitError(f"topic {name} can't be configured as it was: {why}", remedy="Remove the cause named")


def to_be_aligned(context: StageContext, back: LinkId, topics: Sequence[ScrubTopic], *, for_good: bool) -> None:
    """Note the compacted ones: the mirror compacts them once they begin where the live cluster's do.

    `for_good`: nothing configures them after it, so it also gives back what `recreate` held back and its link's
    policy doesn't let follow.
    """
    store = context.estate.store
    settings = context.estate.admin(back.source).topic_configs([t.live_topic for t in topics], keys=("cleanup.policy",))
    held_back = {
        topic.live_topic: own_note(topic.config) for topic in topics if for_good and is_compacted(topic.config)
    }
    compacted = {topic.live_topic for topic in topics if is_compacted(settings.get(topic.live_topic, {}))}
    for kind, notes in ((OWN_SETTINGS, held_back), (ALIGNING, dict.fromkeys(compacted | held_back.keys(), ""))):
        store.forget_notes(back, kind, sorted(store.notes(back, kind).keys() - notes))
        store.put_notes(back, kind, notes)


def delete_offsets(context: StageContext, alias: str, link: Link, topics: set[str]) -> None:
    """Delete what covered groups have committed on these topics, and on nothing else."""
    coordinator = context.estate.groups(alias)
    groups = [
        name for name, info in coordinator.list_groups().items() if link.covers_group(name) and info.type != "share"
    ]
    by_group: dict[str, list[TopicPartition]] = {}
    for found in coordinator.committed(groups):
        if found.topic in topics:
            by_group.setdefault(found.group, []).append(found.tp)
    for group, tps in by_group.items():
        context.lease.check()
        coordinator.delete_offsets(group, tps)


def _is_old(topic: ScrubTopic, found: Mapping[str, TopicInfo]) -> bool:
    return topic.topic in found and found[topic.topic].topic_id == topic.topic_id


def _check_new(admin: ClusterAdmin, alias: str, infos: Sequence[TopicInfo]) -> None:
    """Topics of another incarnation must be those an interrupted attempt created: empty."""
    tps = [TopicPartition(info.name, partition) for info in infos for partition in range(info.partitions)]
    written = {tp: end for tp, end in admin.end_offsets(tps, committed=False).items() if end}
    if written:
        tp, end = next(iter(written.items()))
        raise Refused(
            f"{tp} on {alias} holds {end} offsets, but it is not the topic that the plan saw",
            meaning="Somebody deleted and recreated it, and writes there; it is not touched",
            remedy="Find out who; delete it by hand if nothing of it is needed",
        )


def _unsalvaged(context: StageContext, cluster: str, facts: Facts, topics: Sequence[ScrubTopic]) -> list[str]:
    ends = _written(ends_now(context, cluster, topics))
    return differing({tp: facts.salvaged_through[tp] for tp in ends if tp in facts.salvaged_through}, ends)


def _written(ends: Mapping[TopicPartition, int]) -> dict[str, int]:
    return {str(tp): end for tp, end in ends.items()}


def _free_folder(folder: Path) -> Path:
    number = 1
    free = folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free
