"""The stages that bring the old primary up to date and reverse the link: reverse, reseed, and the planned
move back's own fence, drain and turn.

    dr->primary (the way back)     primary->dr (the configured link)
      paused, its old data gone      sealed
      active  ── reverse ─────────▶  reversed
      sealed  ── drain                 │
        └─────── turn ────────────▶  active, new epoch: the way back's rows, exchanged
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from drkit.failover.context.interfaces import PATIENCE_SECONDS
from drkit.failover.context.state_machine import Facts, Kind, Mode, StageOutcome
from drkit.failover.failback.removing_settings import GroupPlace, kept_for_unread
from drkit.failover.failback.way_back import (
    FormerDirection,
    check_way_back_is_free,
    forget_record,
    reverse_record,
    save_reversed,
)
from drkit.failover.fencing.cluster_fence import ClusterFence
from drkit.failover.fencing.late_appends import refuse_late_appends
from drkit.failover.fencing.quiescence import QUIET_SECONDS, differing, ends_of, frozen_ends, still_written
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.plan.loss import loss_at
from drkit.failover.snapshot.snapshot import PartitionView, Snapshot
from drkit.failover.snapshot.take_snapshot import observe
from drkit.failover.stages.audit_stage import TORN, AuditFailed, refuse_missing, seed_anew
from drkit.failover.stages.directory_update import publish
from drkit.failover.stages.failover_stages import publication
from drkit.failover.stages.fence_stages import behind, settle_watermarks, settling_generation, wait_for_mirror
from drkit.failover.stages.late_writes import find_late_writes
from drkit.failover.stages.promote_topics import release
from drkit.failover.stages.remove_filler import trimmed_again
from drkit.failover.stages.salvage_stage import check_cluster, free_folder, unreadable_places
from drkit.failover.stages.scrub_stage import restore_configs, to_be_aligned
from drkit.failover.stages.stage import (
    StageContext,
    StageReport,
    check_decided_by,
    check_direction,
    decide_link,
    sealed_before,
)
from drkit.failover.stages.target_loss import held_by_target
from drkit.lag.diverged_logs import compare_logs
from drkit.lag.divergence_check import tail_below
from drkit.lag.problems_now import link_sides
from drkit.lag.unmirrored_tail import seconds_for
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts, translate_by_rows
from drkit.model.clock import now, to_millis
from drkit.model.errors import DrkitError, PartlyDone, Refused, Unreachable
from drkit.model.link_state import Direction, Problem, TopicState
from drkit.model.offsets import GroupPosition
from drkit.model.runs import ACCEPT_UNFENCED
from drkit.model.topics.removing import REMOVING
from drkit.model.topics.standby import SOURCE_SETTINGS, read_note
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.model.totals import total
from drkit.model.wording import and_more, counted
from drkit.store.link_notes import note_clusters
from drkit.store.workers import mirror_at_work

MIRROR_SECONDS = 60.0
CATCH_UP_SECONDS = 3600.0
FENCED_PATIENCE_SECONDS = 15.0
"""Behind the fence both clusters turn clients away: how long to wait for one that is down."""
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Reverse:
    """Let data flow the way back: the old primary becomes the target.

    `level`: the old primary holds all mirrored records of these topics: their record is reversed, not started anew.
    Other topics were scrubbed: the mirror treats the new ones as its own, so that their offsets are preserved.
    `for_good`: the way back becomes the link of the configuration: its versions (the epochs of directory entries)
    continue above those of the link that it replaces. `rows_in_doubt`: what the plan couldn't tell of the record's
    rows.
    """

    configured: LinkId
    topics: tuple[ScrubTopic, ...]
    level: bool = False
    for_good: bool = False
    rows_in_doubt: RowDoubts = NO_ROW_DOUBTS
    name: str = "reverse"

    def explain(self) -> str:
        """What it will do."""
        back = self.configured.reversed()
        record = "with the record reversed, too" if self.level else "with a fresh record"
        return f"reverse the flow of data: {self.configured} is reversed, {back} becomes active {record}"

    def execute(self, context: StageContext) -> StageReport:
        """Forget the way back's old record, then decide both links."""
        store = context.estate.store
        back = self.configured.reversed()
        moves = Kind.REPROTECT if self.for_good else Kind.FAILBACK
        check_way_back_is_free(context.estate, self.configured, moves, context.run)  # a mirror may have begun since
        control = store.link_control(self.configured)  # reversed last but one: what is reset below holds data since
        reset_before = control is not None and control.run == context.run and control.direction is Direction.REVERSED
        admitted = ClusterFence(context, self.configured.source).admit_mirror()
        filler = trimmed_again(context, self.configured).removeprefix("; ")  # or it would be mirrored back as records
        if not reset_before:
            decide_link(context, back, Direction.PAUSED, reason="being reset", allowed=_ANY_DIRECTION)
            context.lease.check()  # another run may mirror it by now
            forget_record(store, back)
            ids = {alias: context.estate.admin(alias).cluster_id() for alias in (back.source, back.target)}
            context.lease.check()
            note_clusters(store, back, source=ids[back.source], target=ids[back.target])
            if self.level:  # for other topics the mirror starts a new record
                to_be_aligned(context, back, (), for_good=self.for_good)
                forward = context.link.reversed()
                before = {
                    topic.live_topic: FormerDirection(topic.epoch, created_by_drkit=False) for topic in self.topics
                }
                reason = f"reversed by failback {context.run}"
                # the audit compares what is below the batches that this reads
                live = context.estate.admin(back.source)
                turned_record = reverse_record(
                    store, live, forward, before, reason, only_known=True, in_doubt=self.rows_in_doubt
                )
                context.lease.check()
                save_reversed(store, back, turned_record)
            else:
                made = self._made_anew(context)
                names = {state.topic for state in made}
                topics = [topic for topic in self.topics if topic.live_topic in names]
                to_be_aligned(context, back, topics, for_good=self.for_good)
                context.lease.check()
                store.put_topic_states(back, made)
        kind = "reversed for good" if self.for_good else "failback"
        turned = decide_link(
            context,
            self.configured,
            Direction.REVERSED,
            reason=f"{kind}: data flows {back}",
            allowed=frozenset({Direction.SEALED, Direction.REVERSED}),  # reversed by a failback that was given up
        )
        decide_link(
            context,
            back,
            Direction.ACTIVE,
            reason=f"{kind}: {self.configured}",
            allowed=frozenset({Direction.PAUSED}),
            above=turned.version if self.for_good else 0,
        )
        what = "; ".join(filter(None, (f"data flows {back}", admitted, filler)))
        return StageReport(StageOutcome.OK, what, replace(context.facts, reversed=True))

    def _made_anew(self, context: StageContext) -> list[TopicState]:
        """The scrubbed topics as the way back's own; one that is gone from the live cluster isn't mirrored."""
        ids = context.facts.scrubbed or {}
        scrubbed = {topic.live_topic: topic for topic in self.topics if topic.topic in ids}
        live = context.estate.admin(self.configured.target).topics(scrubbed)
        return [
            TopicState(
                topic=name,
                target_topic=scrubbed[name].topic,
                source_topic_id=info.topic_id,
                target_topic_id=ids[scrubbed[name].topic],
                epoch=1,
                partitions=info.partitions,
                created_by_drkit=True,
                reason=f"recreated by failback {context.run}",
            )
            for name, info in live.items()
        ]


@dataclass(frozen=True, slots=True)
class Reseed:
    """Mirror the way back until the old primary has everything that the live cluster held at the start.

    `by_spark`: Spark's tasks copy the content at the start, the mirror copies the rest.
    """

    live: str
    cluster: str
    cluster_id: str
    by_spark: bool = False
    name: str = "reseed"

    def explain(self) -> str:
        """What it will do."""
        way = f"{self.live}->{self.cluster}"
        how = f"copy {way} by Spark, then mirror it" if self.by_spark else f"mirror {way}"
        return f"{how} until it has caught up; {self.live} keeps serving"

    def execute(self, context: StageContext) -> StageReport:
        """Catch up."""
        check_cluster(context, self.cluster, self.cluster_id)
        return StageReport(StageOutcome.OK, catch_up(context, by_spark=self.by_spark), context.facts)


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the way back as it is: the live cluster stays the source permanently."""

    configured: LinkId
    name: str = "close"

    def explain(self) -> str:
        """What it will do."""
        return f"leave it so for good: groups and clients stay on {self.configured.target}"

    def execute(self, context: StageContext) -> StageReport:
        """Check that data still flows the way back; say what remains to be changed in the configuration."""
        back = self.configured.reversed()
        check_decided_by(context, self.configured, frozenset({Direction.REVERSED}), {context.run})
        return StageReport(
            StageOutcome.OK,
            f"{self.configured.target} is the primary for good; in the configuration, give this link "
            f'source = "{back.source}" and target = "{back.target}"',
            context.facts,
        )


@dataclass(frozen=True, slots=True)
class QuietFence:
    """Close the live cluster to clients if possible, and show that nobody writes there."""

    live: str
    name: str = "fence"

    def explain(self) -> str:
        """What it will do."""
        return (
            f"deny writing and reading on {self.live} where that can be done; show that nobody writes there for "
            f"{QUIET_SECONDS:g} s (stop its producers now)"
        )

    def execute(self, context: StageContext) -> StageReport:
        """Fence it, and check twice that nobody writes."""
        since = now()  # from here on, at the latest, the live cluster has no writers
        proof = ClusterFence(context, self.live).close()
        if context.facts.mode is Mode.UNPLANNED:
            facts = replace(context.facts, fenced=proof.proven, fence_epoch=proof.epoch, fenced_at=since)
            reason = f"UNFENCED: {proof.reason}"
            return StageReport(StageOutcome.OK, reason, replace(facts, fence_reason=reason))
        if not proof.proven and not context.facts.unfenced_accepted:
            raise PartlyDone(
                f"{self.live} is not fenced: {proof.reason}",
                meaning="Records written there once groups move are lost; nothing has moved yet",
                remedy=f"Remove the cause, then drkit resume {context.run}; or make sure that nobody writes there, "
                f"then drkit resume {context.run} {ACCEPT_UNFENCED}",
            )
        ends = frozen_ends(context, context.link) if proof.ends is None else proof.ends
        still = f"UNFENCED: its {len(ends)} log ends do not move; {proof.reason}"
        reason = proof.reason if proof.proven else still
        facts = replace(
            context.facts,
            fenced=proof.proven,
            fence_reason=reason,
            fence_epoch=proof.epoch,
            fenced_at=since,
            ends=ends,
        )
        return StageReport(StageOutcome.OK, reason, facts)


@dataclass(frozen=True, slots=True)
class DrainBack:
    """Copy the last records, then stop the way back permanently."""

    live: str
    cluster: str
    cluster_id: str
    name: str = "drain"

    def explain(self) -> str:
        """What it will do."""
        return f"copy the rest to {self.cluster}, show that nothing came meanwhile, seal {self.live}->{self.cluster}"

    def execute(self, context: StageContext) -> StageReport:
        """Catch up until nothing is left, seal, check again."""
        check_cluster(context, self.cluster, self.cluster_id)
        link = context.link
        if context.facts.mode is Mode.UNPLANNED:
            self._refuse_if_back(context)
            return self._as_it_is(context)
        ends = self._level(context) if not sealed_before(context) else ends_of(context, link)
        decide_link(
            context,
            link.id,
            Direction.SEALED,
            reason="failback: all of it is back",
            allowed=_FLOWING,
        )
        wait_for_mirror(context, MIRROR_SECONDS)
        generation = settling_generation(context)
        fenced = refuse_late_appends(context.estate, link)
        snapshot = observe(context.estate, link, settle=True, target_groups=False, own_ends=fenced.own_ends)
        ends_now = ends_of(context, link)
        late = ([] if context.facts.fenced else differing(ends, ends_now)) or behind(snapshot, ends_now, gaps=False)
        cut = self._cut(context, snapshot, ends_now)
        if late or cut:
            decide_link(
                context,
                link.id,
                Direction.ACTIVE,
                reason="failback: late writes are brought over",
                allowed=frozenset({Direction.SEALED}),
            )
            raise still_written(self.live, late) if late else self._written_anew(context, cut)
        gone = refuse_missing(context, snapshot.problems)
        settle_watermarks(context, snapshot, generation)
        left = [view for view in snapshot.partitions.values() if not _given_up(context.facts, view)]
        facts = replace(
            context.facts,
            mirror_stopped=True,
            ends=ends_now,
            lag=total(view.lag for view in left),
            loss=loss_at(left, context.facts.fenced_at or now()),
            held=held_by_target(context, snapshot),
        )
        said = f"all of {self.live} is on {self.cluster}{gone}; the way back is sealed{fenced.said(self.cluster)}"
        return StageReport(StageOutcome.OK, said, facts)

    def _refuse_if_back(self, context: StageContext) -> None:
        """Raise `Refused` if the live cluster shows all its logs: it was slow, not gone, and the rest can be copied."""
        try:
            ends_of(context, context.link)
        except DrkitError:
            return
        raise Refused(
            f"{self.live} answers again",
            meaning=f"Its last records can be copied: without them they would be left behind on {self.live}",
            remedy=f"drkit resume {context.run}",
        )

    def _as_it_is(self, context: StageContext) -> StageReport:
        """The live cluster is gone: what was copied is all there is."""
        decide_link(
            context,
            context.link.id,
            Direction.SEALED,
            reason=f"failback: {self.live} is gone",
            allowed=_FLOWING,
        )
        wait_for_mirror(context, MIRROR_SECONDS)
        generation = settling_generation(context)
        fenced = refuse_late_appends(context.estate, context.link)
        snapshot = observe(context.estate, context.link, settle=True, target_groups=False, own_ends=fenced.own_ends)
        settle_watermarks(context, snapshot, generation)
        loss = loss_at(snapshot.partitions.values(), context.facts.fenced_at or now())
        held = held_by_target(context, snapshot)
        facts = replace(context.facts, mirror_stopped=True, lag=snapshot.lag, loss=loss, held=held)
        left = "what was written there since" if loss.records is None else f"{counted(loss.records, 'record')} or more"
        keeps = f"once it is back, drkit salvage --link '{context.link.id}' --out DIR keeps what only it holds"
        return StageReport(
            StageOutcome.OK,
            f"{self.live} does not answer: {left} stayed there ({keeps}){fenced.said(self.cluster)}",
            facts,
        )

    def _level(self, context: StageContext) -> dict[str, int]:
        """Mirror until the ends don't move and nothing lags; returns the ends."""
        late: list[str] = []
        for _ in range(_ROUNDS):
            ends = ends_of(context, context.link)
            if _behind(context, ends):
                catch_up(context, patience_seconds=FENCED_PATIENCE_SECONDS)
            snapshot = observe(context.estate, context.link, settle=False, groups=False)
            if snapshot.left:
                raise Refused(
                    f"{', '.join(snapshot.left[:3])} left the topics of the link during the failback",
                    meaning=f"Scrubbed on {self.cluster} and not seeded again: it would be empty there",
                    remedy="Put it back into the link's topics, run the mirror, then drkit resume",
                )
            late = differing(ends, ends_of(context, context.link)) or behind(snapshot, ends, gaps=False)
            if not late:
                if cut := self._cut(context, snapshot, ends):
                    raise self._written_anew(context, cut)
                return ends
        raise still_written(self.live, late)

    def _cut(self, context: StageContext, snapshot: Snapshot, ends: Mapping[str, int]) -> list[str]:
        """Where the live cluster lost what was brought back (a power cut, older disks, a recreated topic) and holds
        other records in its place: an end that the mirror had reached before says nothing then.

        A cluster that was set back as a whole gives out the same leader epochs again: where a log ends below what was
        brought back, or its last batch doesn't tell, its last records are compared with those of the old primary.

        Raises:
            PartlyDone: that can't be found out now.
        """
        views = {view.tp: view for view in snapshot.partitions.values() if str(view.tp) in ends}
        marks = {tp: view.watermark for tp, view in views.items() if view.watermark is not None}
        logs = compare_logs(context.estate.admin(self.live), marks.values())
        found = {
            tp: f"offsets {begin} to {ends[str(tp)] - 1}"
            for tp, begin in logs.diverged.items()
            if ends[str(tp)] > begin
        }
        doubtful = {
            tp: min(ends[str(tp)], mark.source_through)
            for tp, mark in marks.items()
            if tp not in found and (tp in logs.unproven or ends[str(tp)] < mark.source_through)
        }
        # all that is left of such a log begins below what was brought back
        below = {tp for tp, end in doubtful.items() if (views[tp].source_start or 0) < end <= marks[tp].source_start}
        found |= {tp: f"below offset {doubtful.pop(tp)}" for tp in below}
        unknown = {
            tp: "no mapping row says where its records are"
            for tp, end in doubtful.items()
            if (views[tp].source_start or 0) < end
            and translate_by_rows(end, views[tp].rows, marks[tp]).target_offset is None
        }
        store = context.estate.store
        tail = tail_below(
            doubtful,
            marks,
            link=context.link.id,
            store=store,
            sides=lambda: link_sides(context.estate, context.link, store, left=False),
            seconds=seconds_for(len(doubtful)),
        )
        found |= {tp: f"from offset {tail.same_until[tp]} on" for tp in tail.first}
        unknown |= tail.unread
        if unknown and not found:
            raise self._not_known(context, unknown)
        return [f"{tp} ({what})" for tp, what in sorted(found.items())]

    def _not_known(self, context: StageContext, unknown: Mapping[TopicPartition, str]) -> PartlyDone:
        return PartlyDone(
            f"whether {self.live} still holds what was brought back isn't known of "
            f"{and_more([f'{tp} ({why})' for tp, why in sorted(unknown.items())])}",
            meaning=f"It may hold other records in their place, which {self.cluster} doesn't have; no group has moved",
            remedy=f"Once all brokers answer: drkit resume {context.run}. {seed_anew(context, self.cluster)}",
        )

    def _written_anew(self, context: StageContext, cut: Sequence[str]) -> AuditFailed:
        return AuditFailed(
            f"{self.live} lost the end of its logs after that was brought back, and holds other records there: "
            f"{and_more(cut)}",
            meaning=f"{self.cluster} doesn't have them, and no group moves back without them",
            remedy=seed_anew(context, self.cluster),
        )


@dataclass(frozen=True, slots=True)
class ReverseLink:
    """Activate the configured link again: its new epoch has the way back's rows, exchanged."""

    configured: LinkId
    endpoint: str
    cluster: str
    topics: tuple[ScrubTopic, ...]
    directories: tuple[str, ...] = ()
    name: str = "switch"

    def explain(self) -> str:
        """What it will do."""
        return f"{self.configured} becomes active again in a new epoch; " + publication(
            self.directories, self.cluster, self.endpoint
        )

    def execute(self, context: StageContext) -> StageReport:
        """Write the new epoch, activate, then tell clients."""
        store = context.estate.store
        forward = context.link.reversed()
        control = store.link_control(self.configured)
        facts = context.facts
        # once it serves, its record is its own again, also where an operator has paused it since
        turned_before = control is not None and control.run == context.run and control.direction.serves_source
        if not turned_before:
            check_direction(control, self.configured, Direction.ACTIVE, _FROM_REVERSED)  # before anything is forgotten
            facts = replace(self._late(context), settings_said=self._restore_settings(context))
            context.establish(facts, context.carried)  # once the link is active nothing of this is done, or told, again
            before = {topic.topic: FormerDirection(topic.epoch, topic.created_by_drkit) for topic in self.topics}
            reason = f"reversed by failback {context.run}"
            gone = facts.mode is Mode.UNPLANNED
            old = context.estate.admin(self.cluster)
            turned = reverse_record(store, old, context.link, before, reason, only_known=False, source_is_gone=gone)
            placed, cluster_id = _group_positions(context, forward), old.cluster_id()
            context.lease.check()  # reading the record takes long: its mirror may run for another run by now
            forget_record(store, self.configured)
            context.lease.check()
            store.put_group_positions(self.configured, placed)
            save_reversed(store, self.configured, turned)
            note_clusters(store, self.configured, source=cluster_id)
            control = decide_link(
                context,
                self.configured,
                Direction.ACTIVE,
                reason=f"failed back to {self.cluster}",
                allowed=_FROM_REVERSED,
            )
        mine = partial(check_decided_by, context, self.configured, _FLOWING, {context.run})
        mine()
        # in this order: where the old primary can be written again, the cluster left behind can't be
        lifted = ClusterFence(context, self.cluster).open()
        own = frozenset(topic.topic for topic in self.topics)  # they have their settings back
        links = [each.link().id for each in context.estate.config.links]
        rules = release(store, context.link, context.estate.admin(self.cluster), mine, settled=own, links=links)
        admitted = self._admit_mirror(context)
        facts = replace(facts, endpoint=self.endpoint)
        published = publish(context, self.configured, self.cluster, self.endpoint, "source")
        paused = control is not None and control.direction is Direction.PAUSED
        resumes = f"is paused (drkit link resume '{self.configured}' resumes its mirror)"
        what = f"{self.configured} {resumes if paused else 'is active again'}{facts.late_said}"
        said = filter(None, (what, *facts.settings_said, lifted, str(rules), admitted, published.reason))
        return StageReport(StageOutcome.OK, "; ".join(said), facts)

    def _restore_settings(self, context: StageContext) -> tuple[str, ...]:
        """Give the topics their own settings back; says what they keep of the live cluster's instead, as groups have
        not read what their own ones would remove."""
        old = context.estate.admin(self.cluster)
        places = [
            GroupPlace(each.group, TopicPartition(each.target_topic, each.partition), each.target_offset)
            for each in context.positions
        ]
        live, unseen = self._live_settings(context)
        kept = kept_for_unread(
            old,
            {topic.topic: topic.config for topic in self.topics},
            live,
            places,
            context.link.reversed().settings_policy,
            at_ms=to_millis(now()),
        )
        stays: dict[str, dict[str, str]] = {}
        for each in kept:
            stays.setdefault(each.tp.topic, {})[each.name] = each.live
        topics = [replace(topic, config={**topic.config, **stays.get(topic.topic, {})}) for topic in self.topics]
        restore_configs(context, old, topics)
        return tuple(filter(None, (*map(str, kept), unseen)))

    def _live_settings(self, context: StageContext) -> tuple[dict[str, dict[str, str]], str]:
        """What removes records on the live cluster, by the old primary's names; as noted last, if it doesn't answer,
        and a clause that says so. Only one that is known to be gone isn't waited for."""
        names, unseen = {topic.live_topic: topic.topic for topic in self.topics}, ""
        try:
            live = context.estate.admin(self.configured.target, may_be_gone=context.facts.mode is Mode.UNPLANNED)
            found = live.topic_configs(names, keys=REMOVING)
        except Unreachable:
            notes = context.estate.store.notes(context.link.id, SOURCE_SETTINGS)
            found = {name: read_note(text) for name, text in notes.items() if name in names}
            unseen = f"{self.configured.target} does not answer: its settings count as they were noted last"
            if unknown := sorted(names.keys() - found.keys()):
                unseen += f", and nothing is noted of {and_more(unknown)}, which have their own settings back"
        return {names[name]: settings for name, settings in found.items()}, unseen

    def _admit_mirror(self, context: StageContext) -> str:
        """Let the mirror write to the cluster left behind; don't wait for it if it is gone."""
        left = self.configured.target
        try:
            return ClusterFence(context, left).admit_mirror()
        except Unreachable as error:
            lift = "the mirror can't write there before its fence is narrowed, which drkit failover does"
            return f"{left} does not answer ({error.what}); {lift}"

    def _late(self, context: StageContext) -> Facts:
        """Salvage records written to the live cluster after everything was brought back; the facts say what was done.

        Done here, before the mirror of the link may write there again; the close checks once more.
        """
        facts, said = find_late_writes(context, turned=False)
        if facts.late == context.facts.late:
            # an interrupted attempt kept them, and has said so
            return replace(facts, late_said=(facts.late and facts.late_said) or said)
        topics = sorted({tp.rpartition(":")[0] for tp in facts.late})
        kept = context.required_ports.salvager.salvage(
            context.link,
            topics,
            (),
            free_folder(context.salvage_folder.with_name(f"{context.run}-late")),
            context.say,
        )
        said = (
            f"{said}; {counted(sum(kept.records.values()), 'record')} of these topics kept in {kept.path} "
            f"(drkit salvage --out {kept.path} --replay-to TOPIC writes them to {self.cluster})"
        )
        if hidden := unreadable_places(kept):
            said += f", not what can't be read: {and_more(hidden)}"
        if kept.uncommitted and facts.loss is not None:
            ends = and_more([f"{place} up to {end:,}" for place, end in sorted(kept.uncommitted.items())])
            said += f", not what transactions hold that are still open there: {ends}"
            why = f"transactions are open on {self.configured.target}: what they abort of it is no loss"
            known = f"{facts.loss.reason}; " if facts.loss.reason else ""
            facts = replace(facts, loss=replace(facts.loss, upper_bound=True, reason=f"{known}{why}"))
        facts = replace(facts, late_said=said)
        context.establish(facts, context.carried)
        return facts


def _given_up(facts: Facts, view: PartitionView) -> bool:
    """Whether a partition vanished from the live cluster before anything was brought back, and that was accepted."""
    vanished = any((each.topic, each.why) == (view.target_topic, TORN) for each in facts.gone)
    return vanished and view.source_end is None and view.watermark is None


def catch_up(context: StageContext, *, by_spark: bool = False, patience_seconds: float = PATIENCE_SECONDS) -> str:
    """Let the way back catch up with its source, in this process, or wait for the mirror that is already running;
    returns what was done, in words.

    `patience_seconds`: how long nothing may move while a cluster is down.
    """
    ends = ends_of(context, context.link)
    while (worker := mirror_at_work(context.estate.store, context.link.id)) is not None:
        # A killed mirror's lease and note outlive it for a while.
        context.say(f"{worker} mirrors {context.link.id}: waiting until it has caught up, or has stopped")
        said: set[str] = set()
        begun = now()
        over = partial(_caught_up_or_gone, context, ends, said, begun)
        in_time = context.wait(over, CATCH_UP_SECONDS)
        halted = _halted(context, begun)
        if halted and _behind(context, ends):
            raise PartlyDone(
                f"{worker} does not catch up on {context.link.id}: {halted[0].reason}",
                remedy=f"{halted[0].remedy.rstrip('.')}. Then drkit resume {context.run}",
            )
        if not in_time:
            raise PartlyDone(
                f"{worker} did not catch up on {context.link.id} in {CATCH_UP_SECONDS:g} s",
                remedy=f"See `drkit status`, then drkit resume {context.run}",
            )
        if not _behind(context, ends):
            return f"{worker} has caught up"
    required_ports = context.required_ports
    mirror = required_ports.seeder if by_spark and required_ports.seeder is not None else required_ports.mirror
    return mirror.catch_up(context.link, context.say, patience_seconds=patience_seconds)


def _behind(context: StageContext, ends: Mapping[str, int]) -> bool:
    return bool(behind(observe(context.estate, context.link, settle=False, groups=False), ends, gaps=False))


def _caught_up_or_gone(context: StageContext, ends: Mapping[str, int], said: set[str], begun: datetime) -> bool:
    for problem in context.estate.store.problems(context.link.id):
        if problem.halted and problem.reason not in said:
            said.add(problem.reason)
            context.say(f"{context.link.id} waits: {problem.reason}. {problem.remedy}")
    over = mirror_at_work(context.estate.store, context.link.id) is None or bool(_halted(context, begun))
    return over or not _behind(context, ends)


def _halted(context: StageContext, begun: datetime) -> list[Problem]:
    """Problems that have halted partitions of the way back for so long that waiting is pointless."""
    if now() - begun < timedelta(seconds=MIRROR_SECONDS):
        return []
    since = now() - timedelta(seconds=MIRROR_SECONDS)
    return [each for each in context.estate.store.problems(context.link.id) if each.halted and each.since <= since]


def _group_positions(context: StageContext, forward: Link) -> list[GroupPosition]:
    """The groups' current positions on the old primary, as the configured link's captured positions."""
    at = now()
    placed = [p for p in context.positions if p.target_offset is not None and forward.covers_group(p.group)]
    topics = context.estate.admin(forward.id.source).topics({p.target_topic for p in placed})
    return [
        GroupPosition(
            p.group, p.target_topic, p.partition, p.target_offset, p.metadata, at, topics[p.target_topic].topic_id
        )
        for p in placed
        if p.target_offset is not None and p.target_topic in topics
    ]


_ANY_DIRECTION = frozenset(Direction)
_FROM_REVERSED = frozenset({Direction.REVERSED})
_FLOWING = frozenset({Direction.ACTIVE, Direction.PAUSED})
"""Of the way back, as long as this run hasn't sealed it: an operator may have paused it."""
