"""The stages that move groups: translate, commit, switch, verify, close. Failover and failback share them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter

from drkit.failover.context.state_machine import Facts, Loss, Mode, StageOutcome
from drkit.failover.failback.carried_offsets import as_committed_there, as_stands, with_carried
from drkit.failover.fencing.cluster_fence import ClusterFence, FenceSuperseded, close_topics_outside
from drkit.failover.fencing.late_appends import copy_ends
from drkit.failover.fencing.quiescence import ends_of, not_readable, still_written, topic_ids_of
from drkit.failover.plan.failover_plan import AcceptedLoss
from drkit.failover.plan.loss import loss_at
from drkit.failover.plan.loss_budget import LossBudget, OverBudget, accepted, flag_for, over_budget
from drkit.failover.plan.preconditions import AS_THEY_ARE, vanished_groups, vanished_says
from drkit.failover.plan.shared_preconditions import older_positions, store_age
from drkit.failover.plan.waves import WantedGroups
from drkit.failover.positions.group_commands import CONSUMER_GROUPS, group_command
from drkit.failover.positions.mirrormaker_positions import (
    LOSS_UNKNOWN,
    captured,
    positions_by_mirrormaker,
    read_mirrormaker,
)
from drkit.failover.positions.positions import PlannedPosition, choose_positions, removed_unread
from drkit.failover.positions.target_positions import compare_checks, read_checks
from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.selection import GROUP_TOPIC_PARTITION, Selection
from drkit.failover.snapshot.snapshot import Snapshot
from drkit.failover.snapshot.take_snapshot import observe
from drkit.failover.stages.audit_stage import seed_anew
from drkit.failover.stages.directory_update import publish
from drkit.failover.stages.fence_stages import keep_problems, unread_since
from drkit.failover.stages.late_groups import find_late_groups
from drkit.failover.stages.late_writes import find_late_writes
from drkit.failover.stages.promote_topics import release
from drkit.failover.stages.remove_filler import trim_filler, trimmed_again
from drkit.failover.stages.stage import StageContext, StageReport, check_still_decided, sealed_before
from drkit.failover.stages.target_loss import held_by_target, target_loss, with_target_loss
from drkit.kafka.client.record_probe import LogPosition
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.mapping.translate import NO_ROW_DOUBTS, RowDoubts
from drkit.model.clock import now
from drkit.model.errors import DrkitError, NotShown, PartlyDone, Refused, Unreachable
from drkit.model.offsets import GroupPosition
from drkit.model.topology import TopicPartition, is_canary
from drkit.model.totals import total
from drkit.model.wording import and_more, bounds, counted
from drkit.state_topic.store_age import LOOK_SECONDS, NOT_OLDER, StoreAge
from drkit.store.link_notes import replace_positions

_GROUPS_AT_ONCE = 500
_MOMENT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Translate:
    """Compute the final positions, now that the logs don't move.

    An unplanned move that would lose more than `budgets` allow, and than `accept_loss` accepts, stops here. `back`: it
    is a failback's. `rows_in_doubt`: what the plan couldn't tell of the store's mapping rows. Here the store is
    compared with its copy again; but by now the copy may have been written from that very store.
    """

    source: str
    target: str
    at: Moment | None
    selection: Selection
    allow_rewind: bool
    expected: int
    mirrormaker: str | None = None
    budgets: tuple[LossBudget, ...] = ()
    accept_loss: AcceptedLoss = None
    back: bool = False
    rows_in_doubt: RowDoubts = NO_ROW_DOUBTS
    name: str = "translate"

    def explain(self) -> str:
        """What it will do."""
        how = "by mapping"
        if self.at is not None:
            how = f"by time ({self.at.local}), never past unread records"
            if self.at.by_commits:
                how = f"by mapping from where each group had committed at {self.at.local}"
        if self.mirrormaker is not None:
            how = "by MirrorMaker 2's records"
        return f"compute the final positions {how}; {self.expected} as of now"

    def execute(self, context: StageContext) -> StageReport:
        """Remove leftover filler, observe again, choose the positions, update the store's."""
        estate, link = context.estate, context.link
        trimmed = trim_filler(context)
        offsets = None if self.mirrormaker is None else read_mirrormaker(estate, link, self.mirrormaker)
        carried = _as_read_there(context)
        seen = as_stands(carried) if offsets is None else captured(link, offsets)
        ids = self._topic_ids(context)
        unplanned = context.facts.mode is Mode.UNPLANNED
        snapshot = self._look(context, seen, by_rows=offsets is None)
        if not snapshot.target.reachable:
            raise DrkitError(
                f"{self.target} {snapshot.target.unreached}: {snapshot.target.reason}",
                remedy=f"{snapshot.target.denied or 'Bring it back'}, then drkit resume",
            )
        late = [] if unplanned else self._since_drained(context, snapshot)
        # the drain has just stored all but these
        replace_positions(context.estate.store, context.link.id, snapshot.stored, snapshot.news())
        if unplanned and not link.inverse:
            keep_problems(context, snapshot)  # the source may have come back since the drain
        final = bool(context.facts.fenced) and context.facts.captured_at is not None
        final = final and (snapshot.positions_live or not context.facts.lacking)
        if offsets is None:
            chosen = choose_positions(snapshot, self.selection, self.at, final=final)
            positions = with_carried(chosen, carried, _gone(snapshot))
        else:
            positions = positions_by_mirrormaker(snapshot, offsets, self.selection, final=final)
        positions = _as_read_on(context, positions)
        placed = [position for position in positions if position.target_offset is not None]
        if context.facts.mode is Mode.PLANNED:
            self._refuse_captured(context, snapshot, placed)
        self._refuse_rewinds(context, placed)
        loss = by_now = LOSS_UNKNOWN
        if offsets is None:
            loss = loss_at(snapshot.partitions.values(), context.facts.fenced_at or now())
            # a client that isn't kept out may have written ever since, and the run may have been stopped for long
            by_now = loss if context.facts.fenced else loss_at(snapshot.partitions.values(), now())
        if late:  # the close counts it
            loss = context.facts.loss or loss
        if ids is None and loss.records is not None and not loss.lower_bound:  # it came back between the two looks
            loss = _without_last_look(loss, self.source)
        beyond = self._within_budget(context, by_now)
        removed = removed_unread(placed, snapshot.partitions)
        held = context.facts.held  # a planned move has just been compared with it
        if unplanned:
            held = held_by_target(context, snapshot, held)
        facts = replace(context.facts, placed=len(placed), loss=loss, removed_unread=removed.offsets, held=held)
        if unplanned:
            facts = replace(facts, ends=_ends_counted(snapshot) if ids else {}, topic_ids=ids or {})
        places = read_checks(context.estate, self.target, placed, context.places)
        left = len(positions) - len(placed)
        unplaced = f"; {left} have no place, each with its reason" if left else ""
        moved = "" if len(placed) == self.expected else f" (the plan had {self.expected})"
        said = "; ".join(filter(None, (f"{counted(len(placed), 'position')}{moved}", removed.sentence(self.target))))
        return StageReport(StageOutcome.OK, f"{said}{unplaced}{trimmed}{beyond}", facts, positions, places)

    def _since_drained(self, context: StageContext, snapshot: Snapshot) -> list[str]:
        """What was written to the source since a planned move had drained it, for the close to count.

        Raises:
            Refused: there is some, a partition can't be read any more, or the target has lost some of what it was
                drained to, and the run can still go back, or is a failback: it loses nothing, or does nothing.
        """
        late = written_since(context.facts, snapshot)
        if context.commit_begun and not self.back:
            return late
        if late:
            raise still_written(self.source, late)
        shown = {str(tp) for tp, view in snapshot.partitions.items() if view.source_end is not None}
        if snapshot.source.reachable and (unread := unread_since(context.facts.ends, shown)):
            raise not_readable(self.source, unread)
        found = target_loss(context, context.facts)
        if (found.unknown or found.unsure) and not found.certain:
            may = f"{self.target} may have lost {found.offsets()} since it was drained to: {and_more(found.told)}"
            anew = f"drkit resume {context.run} --cancel takes the run back; then fail over again"
            raise PartlyDone(
                "; ".join((*found.unknown, *([may] if found.unsure else ()))),
                meaning="A planned move loses nothing or does nothing, and no group has moved",
                remedy=f"Once all brokers of {self.source} and {self.target} answer, and drkit has the rights named: "
                f"drkit resume {context.run}. If it stays so: {seed_anew(context, self.target) if self.back else anew}",
            )
        if not found.lost:
            return []
        again = seed_anew(context, self.target) if self.back else "Then run the mirror, and fail over again"
        raise Refused(
            f"{self.target} has lost {found.offsets()} since it was drained to: {and_more(found.told)}",
            meaning=f"{self.source} still holds them, and no group has moved",
            remedy=f"See what removed them ({self.target}'s disks, DeleteRecords, a deleted topic). {again}",
        )

    @staticmethod
    def _topic_ids(context: StageContext) -> dict[str, str] | None:
        """The source's topics before an unplanned move's loss is counted; None if it doesn't answer."""
        if context.facts.mode is not Mode.UNPLANNED:
            return context.facts.topic_ids
        try:
            return topic_ids_of(context, context.link, may_be_gone=True)
        except DrkitError:
            return None

    def _look(self, context: StageContext, seen: Sequence[GroupPosition], *, by_rows: bool) -> Snapshot:
        """The logs and groups now, behind the fence; `seen`: positions that the store doesn't have.

        Raises:
            Refused: the store has become older than its copy.
        """
        estate, link, facts = context.estate, context.link, context.facts
        # a planned move has compared in the drain; after another run clients write to the target
        compare = False if facts.mode is Mode.PLANNED else True if sealed_before(context) else None
        with ThreadPoolExecutor(1, "drkit-store") as pool:
            compared = by_rows and not link.inverse  # the way back has no copy
            asked = pool.submit(store_age, estate, link, LOOK_SECONDS) if compared else None

            def age() -> StoreAge:
                return NOT_OLDER if asked is None else asked.result()

            snapshot = observe(
                estate,
                link,
                at=self.at,
                selection=self.selection,
                settle=False,
                compare=compare,
                seen=seen,
                source_groups=not (_just_captured(facts) and facts.fenced and not facts.lacking),
                own_ends=copy_ends(estate, link) if sealed_before(context) else None,
                age=age,
                rows_in_doubt=self.rows_in_doubt,
            )
            self._refuse_older(context, age())
        return snapshot

    def _refuse_older(self, context: StageContext, age: StoreAge) -> None:
        """Raise `Refused` if the store has become older than its copy, or has lost rows, since the plan was made; once
        groups were moved, the run goes on by the rows of both."""
        if age.older is None or context.commit_begun:
            return
        older = older_positions(context.link, age.older)
        raise Refused(
            older.what,
            meaning=f"{older.meaning}. It wasn't when the plan was made; no group was moved",
            remedy=f"{self._taken_back(context)}{older.remedy}; then fail over again",
        )

    def _refuse_captured(self, context: StageContext, snapshot: Snapshot, placed: Sequence[PlannedPosition]) -> None:
        """Raise `DrkitError` if groups of a planned move weren't read on the source. A failback takes groups that the
        live cluster lost from where they were seen last: nothing else leads on behind its scrub."""
        if not snapshot.positions_live:
            silent = f"{self.source} {snapshot.source.unreached}: {snapshot.source.reason}"
            unread = f"groups of {self.source} can't all be read: {snapshot.unread_reason}"
            raise DrkitError(
                silent if snapshot.unread_reason is None else unread,
                meaning=AS_THEY_ARE,
                remedy=snapshot.source.denied
                or f"Bring {self.source} back, its coordinators too, and grant drkit DESCRIBE on its groups",
            )
        vanished = vanished_groups(snapshot, placed)
        if vanished and not self.back:
            what, remedy = vanished_says(self.source, vanished)
            then = f"drkit resume {context.run}" if context.commit_begun else "fail over again"  # else it is taken back
            raise DrkitError(what, meaning=AS_THEY_ARE, remedy=f"{remedy}; then {then}")

    @staticmethod
    def _taken_back(context: StageContext) -> str:
        """What takes a run back that has moved nothing; a planned one is taken back by itself."""
        unplanned = context.facts.mode is Mode.UNPLANNED
        return f"drkit resume {context.run} --cancel takes the run back. Then: " if unplanned else ""

    def _refuse_rewinds(self, context: StageContext, placed: Sequence[PlannedPosition]) -> None:
        """Raise `Refused` if groups would be moved back, unless that was accepted; from where this run itself had put
        them before its fence was gone, they may be.
        """
        moved_back = (each for each in placed if each.rewinds and _place(each) not in context.committed)
        rewound = sorted(moved_back, key=GROUP_TOPIC_PARTITION)
        if not rewound or self.allow_rewind:
            return
        remedy = (
            f"Decide what is right for them. {self._taken_back(context)}"
            "drkit failover moves them back with --allow-rewind, or only others with --group"
        )
        if self.back or context.commit_begun:  # it can't be taken back any more
            remedy = (
                f"{_without_offsets(rewound, self.source, self.target, context.estate.endpoint(self.target))}. Or, if "
                f"they are done with the records in between, put them as far on {self.source}. Then drkit resume "
                f"{context.run}"
            )
        since = "topics there were made anew" if self.back else "plan was made"
        raise _moved_back(self.target, rewound, since, remedy)

    def _within_budget(self, context: StageContext, loss: Loss) -> str:
        """Raise `OverBudget` if more is lost by now than is allowed and accepted. Once groups were moved, the run can
        only go on: then a clause says so.
        """
        found = list(over_budget(loss, self.budgets)) if context.facts.mode is Mode.UNPLANNED else []
        if found and not accepted(loss, self.accept_loss):
            if context.commit_begun:
                return f"; {and_more(found, separator='; ')}: groups are moved already, so the run goes on"
            raise OverBudget(
                and_more(found, separator="; "),
                meaning="The configuration limits what a failover may lose ([objectives], [[waves]]), and this is only "
                "known now; no group was moved",
                remedy=f"Plan again and give {flag_for(loss)}",
            )
        return ""


def _moved_back(target: str, rewound: Sequence[PlannedPosition], since: str, remedy: str) -> Refused:
    """The refusal to move groups back. `rewound`: their positions, with what they have committed on the target."""
    groups = and_more(sorted({position.group for position in rewound}))
    places = [f"{each.group} on {each.target_tp} from {each.existing} to {each.target_offset}" for each in rewound]
    return Refused(
        f"{groups} would be moved back on {target}: {and_more(places)}",
        meaning=f"They committed further on {target} since the {since}",
        remedy=remedy,
    )


def _without_offsets(rewound: Sequence[PlannedPosition], source: str, target: str, servers: str) -> str:
    """How to have groups continue from where they are on the cluster that they leave; `servers`: of the target."""
    commands = [
        group_command(mine, servers, "--delete-offsets")
        for _, mine in groupby(sorted(rewound, key=GROUP_TOPIC_PARTITION), key=attrgetter("group"))
    ]
    return (
        f"Stop their consumers on {target}. To have them continue from where they are on {source}: "
        f"{and_more(commands, separator='; ')}"
    )


def _as_read_on(context: StageContext, positions: Sequence[PlannedPosition]) -> tuple[PlannedPosition, ...]:
    """The positions; groups that this run had committed before its fence was gone stay where they read on since. On a
    partition where the run has put a group nowhere, others did.
    """

    def stays(position: PlannedPosition) -> bool:
        before = context.committed.get(_place(position))
        return position.rewinds and before is not None and position.existing != before

    why = "this run had committed it before, and its consumers have read on since"
    return tuple(
        replace(each, target_offset=each.existing, reread=0, reread_at_most=None, why=why) if stays(each) else each
        for each in positions
    )


def _place(position: PlannedPosition) -> tuple[str, TopicPartition]:
    """The group and the partition of the target that a position concerns."""
    return position.group, position.target_tp


def written_since(facts: Facts, snapshot: Snapshot) -> list[str]:
    """Partitions of the source that have grown since its ends were shown not to move, as `topic:partition (before →
    after)`; none where no ends are known."""
    ends = {
        view.tp: view.source_end + view.held for view in snapshot.partitions.values() if view.source_end is not None
    }
    before = {tp: facts.ends.get(str(tp), 0) for tp in ends if facts.ends and not is_canary(tp.topic)}
    return [f"{tp} ({begin} → {ends[tp]})" for tp, begin in sorted(before.items()) if ends[tp] > begin]


def _ends_counted(snapshot: Snapshot) -> dict[str, int]:
    """Up to where the loss was counted, if the source answered for all: what comes later is found before the close."""
    views = [view for view in snapshot.partitions.values() if view.source_end is not None]
    whole = snapshot.source.reachable and len(views) == len(snapshot.partitions)
    return {str(view.tp): (view.source_end or 0) + view.held for view in views} if whole else {}


def _without_last_look(loss: Loss, source: str) -> Loss:
    """A loss counted on a source of which no topic ids were known: what is written there later isn't looked for."""
    why = f"{source} answered only while the loss was counted: what was written there since isn't counted"
    return replace(loss, lower_bound=True, reason=f"{loss.reason}; {why}" if loss.reason else why)


def _as_read_there(context: StageContext) -> tuple[PlannedPosition, ...]:
    """The carried offsets; of groups that have committed on the cluster that groups leave, that. They may be none of
    the link's, which are read anyway.

    Raises:
        Refused: a planned move can't read what one of them has committed there.
        Unreachable: in a planned move, that cluster doesn't answer. An unplanned one goes by what is carried.
    """
    groups, left = sorted({each.group for each in context.carried}), context.link.id.source
    if not groups:
        return ()
    planned = context.facts.mode is Mode.PLANNED
    try:
        fetched = context.estate.groups(left, may_be_gone=not planned).fetch(groups)
    except Unreachable:
        if planned:
            raise
        return context.carried
    if fetched.failures and planned:
        why = [f"{group} ({reason})" for group, reason in sorted(fetched.failures.items())]
        raise Refused(
            f"what groups have committed on {left} can't be read: {and_more(why)}",
            meaning="They would be put where they had been before the failover, behind what they have read since",
            remedy="Bring their coordinators back, or grant drkit's principal DESCRIBE on these groups; then drkit "
            f"resume {context.run}",
        )
    return as_committed_there(chain.from_iterable(fetched.offsets.values()), context.carried)


def _gone(snapshot: Snapshot) -> dict[TopicPartition, int]:
    """Partitions that a responsive source lacks, and the begin of the target's logs of them."""
    views = snapshot.partitions.values() if snapshot.source.reachable else ()
    return {view.tp: view.target_start for view in views if view.source_end is None and view.target_start is not None}


@dataclass(frozen=True, slots=True)
class _SeenGroups:
    """Groups right before they are committed: `todo`, the positions that are left to commit, by group; `further`, those
    of them whose group has committed further on since they were chosen, with where it stands as `existing`; `unread`,
    the reason for each group that can't be read."""

    todo: dict[str, list[PlannedPosition]] = field(default_factory=dict)
    further: dict[str, list[PlannedPosition]] = field(default_factory=dict)
    unread: dict[str, DrkitError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the positions on the target, several groups at a time.

    `sealed_before_by`: the earlier run that sealed the link, as the plan says. `allow_rewind`: groups may be moved back
    from where they have committed since their positions were chosen.
    """

    target: str
    groups: int
    positions: int
    cluster_id: str | None = None
    sealed_before_by: str | None = None
    allow_rewind: bool = False
    name: str = "commit"

    def explain(self) -> str:
        """What it will do."""
        return f"commit {counted(self.positions, 'position')} of {counted(self.groups, 'group')} on {self.target}"

    def look_first(self, context: StageContext) -> None:
        """See once more that nobody has written to the cluster that groups leave since it was drained. One that doesn't
        answer by now was drained to its end.

        Raises:
            Refused: somebody has, or partitions can't be read any more, of a planned move: it loses nothing, or does
                nothing.
            NotShown: it answers, and shows nothing.
        """
        facts, link = context.facts, context.link
        if facts.mode is not Mode.PLANNED or not facts.ends:
            return
        try:
            found = ends_of(context, link, may_be_gone=True, silent={})
        except NotShown:
            raise
        except Unreachable:
            return
        after = {tp: end for tp, end in found.items() if not is_canary(tp.rpartition(":")[0])}
        late = [f"{tp} ({facts.ends.get(tp, 0)} → {end})" for tp, end in after.items() if end > facts.ends.get(tp, 0)]
        if late:
            raise still_written(link.id.source, late)
        if unread := unread_since(facts.ends, after):
            raise not_readable(link.id.source, unread)

    def execute(self, context: StageContext) -> StageReport:
        """Commit group by group; groups that an earlier attempt committed stay, also where consumers went on since.

        Each portion's groups are looked at right before it: its turn may come hours after the positions were chosen.
        """
        check_still_decided(context, sealed_before_by=self.sealed_before_by)
        _same_cluster(context, self.target, self.cluster_id)
        wanted = by_group(context.positions)
        coordinator = context.estate.groups(self.target)
        failures: dict[str, DrkitError] = {}
        done = begun = 0
        strayed: list[str] = []
        for portion in context.in_order(wanted):
            seen = self._look(context, portion)
            failures = {} if self.allow_rewind else self._refused(context, seen.further)
            strayed += sorted(seen.further)
            failures |= seen.unread
            todo = {group: positions for group, positions in seen.todo.items() if group not in failures}
            done += len(portion) - len(seen.todo)
            begun += len(portion)
            failures |= commit_groups(coordinator, todo, context.lease.check, context.note_committed)
            if failures:
                break
        if failures:
            group, first = next(iter(failures.items()))
            left = begun - len(failures)
            are = "is" if len(failures) == 1 else "are"
            others = (
                f"The other {left} {'is' if left == 1 else 'are'}"
                if left
                else f"None is: nothing moved on {self.target}"
            )
            raise PartlyDone(
                f"{len(failures)} of {counted(len(wanted), 'group')} {are} not committed, {group}: {first.what}",
                meaning=". ".join(filter(None, (others, first.meaning))),
                remedy=f"{first.remedy}; then drkit resume {context.run}",
            )
        count = sum(len(positions) for positions in wanted.values())
        kept = f"; {counted(done, 'group')} committed before" if done else ""
        if strayed:
            kept += f"; committed further since their places were chosen, and set back: {and_more(strayed)}"
        facts = replace(context.facts, committed=count)
        return StageReport(
            StageOutcome.OK, f"{counted(count, 'position')} of {counted(len(wanted), 'group')}{kept}", facts
        )

    def _look(self, context: StageContext, portion: WantedGroups) -> _SeenGroups:
        """Where a portion's groups stand now. A position that an interrupted attempt has committed is done, also where
        the group has read on from it since."""
        fetched = context.estate.groups(self.target).fetch(sorted(portion))
        found = {(each.group, each.tp): each.offset for each in chain.from_iterable(fetched.offsets.values())}
        seen = _SeenGroups()
        for group, why in fetched.failures.items():
            seen.unread[group] = Refused(
                f"what {group} has committed on {self.target} can't be read: {why}",
                remedy="Bring its coordinator back, or grant drkit's principal DESCRIBE on it and its topics",
            )
        for group, positions in portion.items():
            for position in positions:
                stands = found.get(_place(position))
                kept = stands == position.target_offset if context.again else False
                if kept or (_place(position) in context.committed and _read_on(position, stands)):
                    continue
                seen.todo.setdefault(group, []).append(position)
                if _beyond(position, stands) and stands != position.existing:
                    seen.further.setdefault(group, []).append(replace(position, existing=stands))
        return seen

    def _refused(
        self, context: StageContext, further: Mapping[str, Sequence[PlannedPosition]]
    ) -> dict[str, DrkitError]:
        """The refusal to move these groups back, by group."""
        if not further:
            return {}
        rewound = list(chain.from_iterable(further[group] for group in sorted(further)))
        source, servers = context.link.id.source, context.estate.endpoint(self.target)
        remedy = (
            f"{_without_offsets(rewound, source, self.target, servers)}. To have one continue from where it stands, "
            f"put it there again once the run is closed ({CONSUMER_GROUPS} --reset-offsets --to-offset N)"
        )
        error = _moved_back(self.target, rewound, "positions of the run were chosen", remedy)
        return dict.fromkeys(sorted(further), error)


@dataclass(frozen=True, slots=True)
class Switch:
    """Make the target's topics its own, then point clients at it: by the directories, or by naming the address.

    `sealed_before_by`: as `Commit`'s.
    """

    target: str
    endpoint: str
    directories: tuple[str, ...] = ()
    sealed_before_by: str | None = None
    name: str = "switch"

    def explain(self) -> str:
        """What it will do."""
        return f"put the source's settings and ACLs on the topics of {self.target}; " + publication(
            self.directories, self.target, self.endpoint
        )

    def execute(self, context: StageContext) -> StageReport:
        """Release the topics, publish the address, read it back."""
        check = partial(check_still_decided, context, sealed_before_by=self.sealed_before_by)
        check()
        lifted = ClusterFence(context, self.target).open()
        links = [each.link().id for each in context.estate.config.links]
        released = release(context.estate.store, context.link, context.estate.admin(self.target), check, links=links)
        facts = replace(context.facts, endpoint=self.endpoint)
        published = publish(context, context.link.id, self.target, self.endpoint, "target")
        outcome = StageOutcome.OK if published.configured else StageOutcome.SKIPPED
        return StageReport(outcome, "; ".join(filter(None, (lifted, str(released), published.reason))), facts)


@dataclass(frozen=True, slots=True)
class Verify:
    """Read back every committed offset and the record there, and compare both with the plan.

    `source`: the fenced cluster, where topics may have been created since; None: don't check.
    """

    target: str
    source: str | None = None
    name: str = "verify"

    def explain(self) -> str:
        """What it will do."""
        return f"read every position back from {self.target}, and the record there, and compare"

    def execute(self, context: StageContext) -> StageReport:
        """Compare; a group that has read on is correct."""
        wanted = by_group(context.positions)
        found = committed_offsets(context, self.target, wanted)
        wrong = []
        read_on = set()
        standing = set()
        count = 0
        for group, positions in wanted.items():
            for position in positions:
                tp = position.target_tp
                stands = found.get((group, tp))
                if stands != position.target_offset and not _read_on(position, stands):
                    wrong.append(f"{group} {tp}: {stands}, not {position.target_offset}")
                    continue
                count += 1
                if stands != position.target_offset:
                    read_on.add(group)
                elif stands is not None:
                    standing.add((tp, stands))
        if wrong:
            raise DrkitError(
                f"{len(wrong)} positions on {self.target} are not as committed: {and_more(wrong, separator='; ')}",
                meaning=f"Another program committed there, {self.target} lost it, or its consumers have read on to "
                "where the group had stood before, which looks the same",
                remedy=f"Stop the consumers of those groups and reset them (drkit runs {context.run} shows their "
                f"positions); then drkit resume {context.run}, and start them again",
            )
        compared = compare_checks(
            context.estate, self.target, {LogPosition(*each) for each in standing}, context.places
        )
        if compared.wrong:
            raise DrkitError(
                f"{len(compared.wrong)} places on {self.target} don't hold what was planned: "
                f"{and_more(compared.wrong, separator='; ')}",
                meaning="Records were lost or replaced there since the positions were chosen",
                remedy=f"Check these with drkit audit; move the groups that are there "
                f"(drkit runs {context.run} lists them) by hand, then drkit resume",
            )
        facts = replace(context.facts, verified=count, verified_at=now(), places=compared.seen)
        more = f"; {counted(len(read_on), 'group')} read on already" if read_on else ""
        here = f"; {compared.seen}" if standing else ""
        facts, closed = self._still_fenced(context, facts)
        return StageReport(
            StageOutcome.OK, f"{counted(count, 'position')} read back, all as committed{more}{here}{closed}", facts
        )

    def _still_fenced(self, context: StageContext, facts: Facts) -> tuple[Facts, str]:
        """Extend the fence to topics created after it, or opened since; returns what was done, "" for nothing.

        Raises:
            PartlyDone: it can't be proven.
        """
        if self.source is None or not facts.fenced:
            return facts, ""
        try:
            found = close_topics_outside(context, self.source)
        except FenceSuperseded:
            raise
        except (Unreachable, Refused) as error:
            return facts, f"; whether {self.source} is closed as it was by its fence is unknown: {error.what}"
        if found is None:
            return facts, ""
        if not found.proof.proven and not facts.unfenced_accepted:
            raise PartlyDone(
                f"{self.source} is not fenced any more: {found.proof.reason}",
                meaning=f"{found}; records written there are lost",
                remedy=f"Remove the cause, then drkit resume {context.run}",
            )
        proof = found.proof
        facts = replace(facts, fenced=proof.proven, fence_reason=proof.reason, fence_epoch=proof.epoch)
        return facts, f"; {found}"


@dataclass(frozen=True, slots=True)
class Close:
    """Journal the evidence. `turned`: it is a failback's, whose link is active again; `selection`: of the groups that
    move.

    The cluster that groups left is looked at again: records written there since the loss was counted are lost and
    counted, too; groups that first committed there since aren't moved, and named.
    """

    turned: bool = False
    selection: Selection = field(default_factory=Selection)
    name: str = "close"

    def explain(self) -> str:
        """What it will do."""
        return "journal the evidence: what was lost, what is read again, how long it took"

    def execute(self, context: StageContext) -> StageReport:
        """Sum up."""
        facts, late = find_late_writes(context, turned=self.turned)
        facts, gone = with_target_loss(context, facts)
        positions, more = find_late_groups(context, self.selection)
        filler = trimmed_again(context, context.link.id)
        loss = facts.loss
        lost = "loss not known"
        if loss is not None and loss.records is not None:
            lost = f"{counted(loss.records, 'record')}{bounds(lower=loss.lower_bound, upper=loss.upper_bound)} lost"
        if loss is not None and loss.reason:
            lost += f" ({loss.reason})"
        said = f"{lost}; {_read_again(context)}{late}{gone}{more}{filler}"
        all_of = (*context.positions, *positions) if positions else None
        return StageReport(StageOutcome.OK, said, facts, all_of, context.places)


def _read_again(context: StageContext) -> str:
    """What groups read again, as far as it is known, and the age of the positions at the fence."""
    placed = [position for position in context.positions if position.target_offset is not None]
    again = sum(position.reread or 0 for position in placed)
    unsure = [position for position in placed if position.reread is None]
    if not unsure:
        return f"{counted(again, 'record')} {'is' if again == 1 else 'are'} read again"
    most = total(position.reread_bound for position in placed)
    bound = "" if most is None else f", at most {most:,}"
    captured = [position.captured_at for position in unsure if position.captured_at is not None]
    age = ""
    if captured and context.facts.fenced_at is not None:
        seconds = max(0.0, (context.facts.fenced_at - min(captured)).total_seconds())
        age = f", captured up to {seconds:,.1f} s before the fence"
    return f"{again:,} or more records are read again{bound} ({counted(len(unsure), 'position')} not certain{age})"


def _just_captured(facts: Facts) -> bool:
    """Whether an unplanned move's drain has just stored all positions: it waits for nobody, so they are current."""
    at = facts.captured_at
    return facts.mode is Mode.UNPLANNED and at is not None and abs((now() - at).total_seconds()) < _MOMENT_SECONDS


def _same_cluster(context: StageContext, alias: str, planned: str | None) -> None:
    """Raise `Refused` if another cluster answers at the alias than when the plan was made (None: unknown)."""
    found = None if planned is None else context.estate.admin(alias).cluster_id()
    if found != planned:
        raise Refused(
            f"{alias} is another cluster now: its id is {found}, the plan was made on {planned}",
            meaning="Positions of one cluster mean nothing on another",
            remedy=f"Correct the address of {alias} in the configuration",
        )


def publication(directories: Sequence[str], cluster: str, endpoint: str) -> str:
    """What a switch will do about clients."""
    if not directories:
        return f"no cluster directory is configured: point clients at {endpoint} ({cluster})"
    return f"publish {cluster} ({endpoint}) in {', '.join(directories)} and read it back"


def commit_groups(
    coordinator: GroupAdmin,
    wanted: Mapping[str, Sequence[PlannedPosition]],
    check: Callable[[], None],
    note: Callable[[Sequence[str]], None],
) -> dict[str, DrkitError]:
    """Commit positions by group, many groups at once; returns the reason for each group that failed.

    A slow cluster gets the time that it needs: groups for which a call had no time are committed by the next one, as
    long as each call commits some. `check` is called before each lot, and raises to stop; `note` after it, with the
    groups that it committed.
    """
    failures: dict[str, DrkitError] = {}
    left = deque(wanted)
    while left:
        check()
        lot = [left.popleft() for _ in range(min(_GROUPS_AT_ONCE, len(left)))]
        failed = coordinator.commit_many({group: _offsets(wanted[group]) for group in lot})
        if taken := [group for group in lot if group not in failed]:
            note(taken)
        late = [group for group, error in failed.items() if isinstance(error, Unreachable)]
        if len(late) < len(lot):
            left.extend(late)
            failed = {group: error for group, error in failed.items() if group not in late}
        failures.update(failed)
    return failures


def _offsets(positions: Sequence[PlannedPosition]) -> dict[TopicPartition, tuple[int, str]]:
    return {p.target_tp: (p.target_offset, p.metadata) for p in positions if p.target_offset is not None}


def by_group(positions: Sequence[PlannedPosition]) -> dict[str, list[PlannedPosition]]:
    """The placed positions by group."""
    groups: dict[str, list[PlannedPosition]] = defaultdict(list)
    for position in positions:
        if position.target_offset is not None:
            groups[position.group].append(position)
    return dict(groups)


def committed_offsets(
    context: StageContext, alias: str, groups: Mapping[str, object]
) -> dict[tuple[str, TopicPartition], int]:
    """These groups' committed offsets on a cluster, by its own partitions."""
    return {(found.group, found.tp): found.offset for found in context.estate.groups(alias).committed(sorted(groups))}


def _beyond(position: PlannedPosition, stands: int | None) -> bool:
    """Whether committing the position would move a group back that stands there."""
    return stands is not None and position.target_offset is not None and stands > position.target_offset


def _read_on(position: PlannedPosition, stands: int | None) -> bool:
    """Whether consumers continued from the position: further on, and not where the group was before."""
    return (
        stands is not None
        and position.target_offset is not None
        and stands >= position.target_offset
        and (stands == position.target_offset or stands != position.existing)
    )
