"""The stages that cut a link: fence and drain. After them it writes nothing to the target.

The drain of a planned move compares the ends of the logs on both sides, and proves them equal before groups move. The
source's last mirrored batches are those that it holds now (`drkit.lag.batch_comparison`), whatever the link does. The
last offsets of each target partition are read, and for each record there the source record that the mapping assigns
to it; timestamps are compared, and key, value and headers by checksum. Together with the watermarks (everything below
the source's ends is recorded as mirrored) this shows that the mapping fits the logs at the groups' positions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Mode, StageOutcome
from drkit.failover.fencing.cluster_fence import ClusterFence, FenceProof
from drkit.failover.fencing.late_appends import LateAppends, refuse_late_appends
from drkit.failover.fencing.quiescence import (
    QUIET_SECONDS,
    differing,
    ends_of,
    frozen_ends,
    not_readable,
    still_written,
)
from drkit.failover.plan.failover_plan import AcceptedLoss
from drkit.failover.plan.loss import loss_at
from drkit.failover.plan.preconditions import records_of, within
from drkit.failover.snapshot.snapshot import PartitionView, Snapshot
from drkit.failover.snapshot.take_snapshot import observe
from drkit.failover.stages.stage import (
    StageContext,
    StageReport,
    check_direction,
    decide_link,
    is_sealed_by,
    sealed_before,
)
from drkit.failover.stages.target_loss import held_by_target
from drkit.kafka.client.record_probe import LogPosition
from drkit.lag.batch_comparison import compare_batches, replaced_reason, set_back_remedy
from drkit.lag.last_records import compare_records
from drkit.model.clock import now
from drkit.model.errors import Fenced, PartlyDone, Refused, Unreachable, answered, unreached
from drkit.model.link_state import STORE_OLDER, Direction, Problem
from drkit.model.runs import ACCEPT_LOSS, FenceMethod
from drkit.model.topology import TopicPartition, is_canary
from drkit.model.wording import and_more, counted
from drkit.state_topic.other_store import mirrors_of_other_stores, other_store
from drkit.store.link_notes import replace_positions
from drkit.store.workers import mirror_at_work

MIRROR_SECONDS = 60.0
DRAIN_SECONDS = 300.0
CATCH_UP_SECONDS = 60.0
SILENT_SECONDS = 10.0
"""How long a source that is waited for has to be silent, look after look, before it is given up."""
_OPEN = frozenset({Direction.ACTIVE, Direction.PAUSED})


@dataclass(frozen=True, slots=True)
class Fence:
    """Cut the old cluster off: deny its clients, prove it, seal the link (unplanned).

    `reachable`: whether the plan saw it answer; `refused`: it answered, but drkit can't work with it; `method`: its
    `FenceMethod`. `already_sealed` names the run that sealed the link before. `catch_up`: before the link is sealed,
    wait at most `seconds` until the mirror has copied everything that the source holds; `accept_loss` records may be
    missing then.
    """

    source: str
    target: str
    mode: Mode
    reachable: bool
    refused: bool = False
    already_sealed: str | None = None
    method: str = FenceMethod.NONE
    catch_up: bool = False
    accept_loss: AcceptedLoss = None
    seconds: float = CATCH_UP_SECONDS
    name: str = "fence"

    def explain(self) -> str:
        """What it will do."""
        if not self.reachable:
            denial = f"{self.source} {unreached(refused=self.refused)}: nothing can be denied there (UNFENCED)"
        elif self.method == FenceMethod.NONE:
            denial = f"drkit can't deny writes on {self.source} (UNFENCED)"
        else:
            how = "ACLs deny" if self.method == FenceMethod.ACL else "its command keeps"
            what = "writing and reading" if self.method == FenceMethod.ACL else "clients out"
            denial = (
                f"{how} {what} on {self.source}; every broker must refuse a writer, and the log ends must not move "
                f"for {QUIET_SECONDS:g} s"
            )
        if self.mode is Mode.PLANNED:
            quiet = f"show that nobody writes to {self.source} for {QUIET_SECONDS:g} s; "
            return denial if self.reachable and self.method != FenceMethod.NONE else f"{quiet}{denial}"
        if self.already_sealed:
            return f"{denial}; the link is sealed by run {self.already_sealed} already"
        wait = ""
        if self.catch_up and not self.refused:
            back = "" if self.reachable else "if it answers by then, "
            wait = f"{back}wait at most {self.seconds:g} s until the mirror has copied all that {self.source} holds; "
        return f"{denial}; {wait}seal {self.source}->{self.target}: its mirror exits"

    def execute(self, context: StageContext) -> StageReport:
        """Fence the old cluster and prove it; then seal the link, or (planned) prove that nobody writes."""
        self._check_direction(context)
        proof = ClusterFence(context, self.source).close()
        if not proof.proven and not context.facts.unfenced_accepted:
            raise Refused(
                f"{self.source} is not fenced: {proof.reason}",
                meaning="Records still written there are lost",
                remedy="Remove the cause; or make sure that nobody writes there, then give --accept-unfenced",
            )
        reason = proof.reason if proof.proven else f"UNFENCED: {proof.reason}"
        facts = replace(
            context.facts, fenced=proof.proven, fence_reason=reason, fence_epoch=proof.epoch, fenced_at=now()
        )
        if self.mode is Mode.PLANNED:
            ends = frozen_ends(context, context.link) if proof.ends is None else proof.ends
            still = f"{len(ends)} log ends of {self.source} did not move for {QUIET_SECONDS:g} s"
            said = reason if proof.proven else f"{still}; {reason}"
            return StageReport(StageOutcome.OK, said, replace(facts, ends=ends))
        if self.already_sealed:
            what = f"sealed by run {self.already_sealed} already"
        else:
            caught_up = ""
            if self._waits(context):
                again = sealed_before(context)  # once everything was copied: no mirror brings what came since
                caught_up = self._since_sealed(context, proof) if again else self._catch_up(context, proof.ends)
            decide_link(
                context,
                context.link.id,
                Direction.SEALED,
                reason=f"failed over to {self.target}",
                allowed=_OPEN,
            )
            what = f"{caught_up}link sealed"
        return StageReport(StageOutcome.OK, f"{what}; {reason}", replace(facts, sealed=True))

    def _waits(self, context: StageContext) -> bool:
        """Whether to wait for the backlog: a source that was silent when the move was planned may answer now."""
        back = not self.refused and not context.estate.reach(self.source).gone
        return self.catch_up and (self.reachable or back)

    def _check_direction(self, context: StageContext) -> None:
        """Raise `Refused` where the link was decided otherwise since the plan was made: nobody is kept out of a cluster
        that serves by a newer decision."""
        link = context.link.id
        control = context.estate.store.link_control(link)
        context.lease.check()
        if not self.already_sealed:
            if not sealed_before(context):
                check_direction(control, link, Direction.SEALED, _OPEN)
            return
        if is_sealed_by(control, {self.already_sealed}):
            return
        direction = Direction.ACTIVE if control is None else control.direction
        by = f" by run {control.run}" if control is not None and control.run else ""
        raise Refused(
            f"the link {link} is {direction}{by} by now; by the plan, run {self.already_sealed} had sealed it",
            meaning=f"Clients may use {self.source} again, and its mirror write to {self.target}; nothing was changed",
            remedy="Plan again: `drkit status` shows the link, drkit failover moves it as it is now",
        )

    def _catch_up(self, context: StageContext, fenced_ends: Mapping[str, int] | None) -> str:
        """Wait until the target has what the source held when it was closed; stop waiting if the source disappears.

        One look without an answer says nothing: a frozen broker, a slow disk, a moving leader come back.

        Raises:
            Refused: the source keeps answering, and more than is accepted is missing when the time is up.
            NotShown: it answers, but doesn't show drkit what it holds.
        """
        context.say(f"waiting until the mirror has copied everything that {self.source} holds")
        seen: list[Snapshot] = []
        left: list[str] = []
        silent: dict[TopicPartition, str] = {}
        quiet: list[float] = []
        ends = fenced_ends if fenced_ends is not None else _shown_ends(context, silent)
        gone = f"{self.source} stopped answering: records that were not mirrored are lost; "
        if ends is None:
            return gone
        unread = and_more([f"{tp} ({why})" for tp, why in sorted(silent.items())])
        if silent and self.accept_loss != "unknown":
            raise Refused(
                f"an unknown number of records of {self.source} would be lost although it answers: {unread} can't be "
                "read",
                meaning="While the source answers, nothing need be lost; nothing was changed",
                remedy=f"Bring its brokers up and try again; --unplanned, or {ACCEPT_LOSS} unknown, continues without "
                "what was not mirrored of it",
            )

        def over() -> bool:
            snapshot = observe(context.estate, context.link, groups=False)
            seen[:] = [snapshot]
            if not snapshot.source.reachable and snapshot.source.denied is None:
                quiet.append(time.monotonic())
                return quiet[-1] - quiet[0] >= SILENT_SECONDS
            quiet.clear()
            left[:] = behind(snapshot, ends)
            return not left or snapshot.mirror is None

        if not context.wait(over, self.seconds) and quiet:
            context.wait(over, 3 * SILENT_SECONDS)  # a look at a silent source takes a while, too
        snapshot = seen[0]
        if quiet and quiet[-1] - quiet[0] >= SILENT_SECONDS:
            return gone
        if not left and not quiet:
            shown = f"shows; {unread} can't be read, as accepted" if silent else "held"
            return f"the mirror has copied everything that {self.source} {shown}; "
        lost = snapshot.lag if snapshot.source.reachable else None
        if within(lost, self.accept_loss):
            return f"{and_more(left)} not copied, as accepted; "
        raise self._not_copied(snapshot, lost, left)

    def _since_sealed(self, context: StageContext, proof: FenceProof) -> str:
        """What was written since this run sealed the link, as somebody opened the fence; "" for nothing.

        Where it was accepted that there is no fence, or groups are moved already, it is lost, and counted.

        Raises:
            Refused: it is more than is accepted, and the run can still be taken back.
        """
        ours = not context.commit_begun  # else clients may have written to the target since it was settled
        snapshot = observe(context.estate, context.link, settle=ours, compare=False, groups=False)
        left = behind(snapshot, proof.ends or {}) if snapshot.source.reachable else []
        if not left:
            return ""
        if context.commit_begun or within(snapshot.lag, self.accept_loss):
            return f"{and_more(left)} came after the link was sealed, and is lost; "
        raise Refused(
            f"{records_of(snapshot.lag)} of {self.source} would be lost although it answers: {and_more(left)} came "
            "since the seal",
            meaning="No mirror brings them; no group was moved",
            remedy=f"drkit resume {context.run} --cancel takes the run back; then start the mirror and fail over again",
        )

    def _not_copied(self, snapshot: Snapshot, lost: int | None, left: list[str]) -> Refused:
        """The refusal of a loss that nobody accepted, of a source that answers."""
        why = "no mirror runs any more" if snapshot.mirror is None else f"the mirror had {self.seconds:g} s"
        if snapshot.source.denied is not None:
            why += f"; drkit can't work with it: {snapshot.source.reason}"
        held = sorted(str(tp) for tp, view in snapshot.partitions.items() if view.held)
        end_them = ""
        if held:
            why += f"; open transactions hold back {and_more(held)}"
            end_them = (
                "`kafka-transactions.sh … find-hanging` names a transaction that was left open, `abort` ends it. "
            )
        return Refused(
            f"{records_of(lost)} of {self.source} would be lost although it answers ({why}): {and_more(left)}",
            meaning="While the source answers, nothing need be lost; nothing was changed",
            remedy=f"{end_them}--planned waits longer and loses nothing; --unplanned, or {ACCEPT_LOSS} N, continues "
            "without them",
        )


def _shown_ends(context: StageContext, silent: dict[TopicPartition, str]) -> dict[str, int] | None:
    """As `ends_of`; None: the source doesn't answer for `SILENT_SECONDS`.

    Raises:
        NotShown: it answers, but doesn't show them.
    """
    found: list[dict[str, int]] = []

    def shown() -> bool:
        silent.clear()
        try:
            found.append(ends_of(context, context.link, silent=silent))
        except Unreachable as error:
            if answered(error):
                raise
        return bool(found)

    return found[0] if context.wait(shown, SILENT_SECONDS) else None


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until the link's last record is on the target, and settle the store's watermarks."""

    source: str
    target: str
    mode: Mode
    seconds: float = DRAIN_SECONDS
    mirror_seconds: float = MIRROR_SECONDS
    name: str = "drain"

    def explain(self) -> str:
        """What it will do."""
        if self.mode is Mode.PLANNED:
            return (
                f"wait until the mirror has copied all of {self.source} (at most {self.seconds:g} s), seal the "
                "link, compare the last records of both sides"
            )
        return f"wait until no mirror writes to {self.target}; at most {self.mirror_seconds:g} s"

    def execute(self, context: StageContext) -> StageReport:
        """Drain, seal (planned), wait for the mirror to stop, settle the watermarks."""
        facts = context.facts
        if self.mode is Mode.PLANNED:
            if not sealed_before(context):
                self._to_zero(context)
            decide_link(
                context,
                context.link.id,
                Direction.SEALED,
                reason=f"planned move to {self.target}",
                allowed=_OPEN,
            )
            facts = replace(facts, sealed=True)
        wait_for_mirror(context, self.mirror_seconds)
        generation = settling_generation(context)
        ours = sealed_before(context)  # else clients have written to the target since another run settled it
        late = refuse_late_appends(context.estate, context.link) if ours else LateAppends()
        snapshot = observe(context.estate, context.link, settle=ours, target_groups=False, own_ends=late.own_ends)
        held = held_by_target(context, snapshot)
        equal = ""
        if self.mode is Mode.PLANNED:  # compares what was just read
            facts = replace(facts, ends=self._still_whole(context, snapshot))
            equal = f"; {compare_tails(context.estate, snapshot)}"
        settled = settle_watermarks(context, snapshot, generation) if ours else 0
        keep_problems(context, snapshot)
        if news := snapshot.news():  # the newest ones, in case the source disappears before they are translated
            replace_positions(context.estate.store, context.link.id, snapshot.stored, news)
        facts = replace(
            facts,
            mirror_stopped=True,
            captured_at=snapshot.observed_at if snapshot.positions_live else None,
            lacking=bool(snapshot.lacking),
            lag=snapshot.lag,
            loss=loss_at(snapshot.partitions.values(), facts.fenced_at or now()),
            held=held,
        )
        return StageReport(StageOutcome.OK, f"{_drained(snapshot, settled)}{equal}{late.said(self.target)}", facts)

    def _to_zero(self, context: StageContext) -> None:
        """Wait until every partition's watermark reaches its frozen end."""
        left: list[str] = []

        def drained() -> bool:
            snapshot = observe(context.estate, context.link, groups=False)
            if not snapshot.source.reachable:
                raise Refused(
                    f"{self.source} stopped answering: {snapshot.source.reason}",
                    meaning="A planned move needs both clusters; nothing was changed",
                    remedy="Bring it back, or fail over with --unplanned",
                )
            left[:] = behind(snapshot, self._ends(context))
            if left and snapshot.mirror is None:
                raise Refused(
                    f"no mirror runs on {context.link.id}, and {counted(len(left), 'partition')} "
                    f"{'lags' if len(left) == 1 else 'lag'}: {and_more(left)}",
                    meaning="Nothing was changed",
                    remedy=f"Run drkit mirror --link '{context.link.id}', then try again",
                )
            return not left

        if not context.wait(drained, self.seconds):
            raise Refused(
                f"the lag of {context.link.id} did not drain to zero in {self.seconds:g} s: {and_more(left)}",
                meaning="Nothing was changed",
                remedy="Stop the producers, let the mirror catch up (drkit status), then try again",
            )
        moved = [] if context.facts.fenced else differing(context.facts.ends, ends_of(context, context.link))
        if moved:
            raise still_written(self.source, moved)

    def _ends(self, context: StageContext) -> Mapping[str, int]:
        """The ends to drain to. A fenced cluster still gets the markers of transactions: they count too."""
        return ends_of(context, context.link) if context.facts.fenced else context.facts.ends

    def _still_whole(self, context: StageContext, snapshot: Snapshot) -> dict[str, int]:
        """The ends up to which everything is copied. Records written just before the seal would be lost: if there are
        any, or some can't be read any more, activate the link again."""
        ends = ends_of(context, context.link)
        moved = [] if context.facts.fenced else differing(context.facts.ends, ends)
        late = moved or behind(snapshot, ends)
        gone = unread_since(context.facts.ends, ends)
        if not late and not gone:
            return ends
        decide_link(
            context,
            context.link.id,
            Direction.ACTIVE,
            reason="a planned move found late writes and gave up",
            allowed=frozenset({Direction.SEALED}),
        )
        raise not_readable(self.source, gone) if gone else still_written(self.source, late)


def unread_since(before: Iterable[str], now_shown: Collection[str]) -> list[str]:
    """Partitions (`topic:partition`) that the source showed when it was fenced, and shows no more."""
    left = set(before) - set(now_shown)
    return sorted(tp for tp in left if not is_canary(tp.rpartition(":")[0]))


def behind(snapshot: Snapshot, ends: Mapping[str, int], *, gaps: bool = True) -> list[str]:
    """Partitions whose mirrored part doesn't reach their end, as `topic:partition (offsets missing)`.

    The end is the high watermark: records held by open transactions count too. `gaps`: what is missing below what was
    mirrored last counts, too, though no mirror brings it.
    """
    missing = []
    for tp, end in ends.items():
        view = snapshot.partitions.get(TopicPartition.parse(tp))
        through = None
        if view is not None:
            through = view.missing.mirrored_through if gaps else view.missing.through
        if through is None and view is not None and view.watermark is None:
            through = view.source_start
        if through is None or through < end:
            missing.append(f"{tp} ({'all' if through is None else end - through})")
    return missing


def wait_for_mirror(context: StageContext, seconds: float) -> None:
    """Wait until no mirror holds the link: its lease was released, or expired.

    Raises:
        PartlyDone: a mirror keeps renewing it.
    """
    holder: list[str] = []

    def gone() -> bool:
        found = mirror_at_work(context.estate.store, context.link.id)
        holder[:] = [found] if found else []
        return found is None

    if mirror_at_work(context.estate.store, context.link.id) is not None:
        context.say("waiting for the mirror to stop")
    if not context.wait(gone, seconds):
        raise PartlyDone(
            f"a mirror is still running on {context.link.id} after {seconds:g} s: {holder[0]}",
            meaning="It could write below the positions that will be committed",
            remedy=f"Stop that process, then drkit resume {context.run}",
        )
    estate = context.estate
    try:
        groups = estate.groups(context.link.id.target)
        elsewhere = mirrors_of_other_stores(groups, context.link, estate.store, estate.config.store.plain_url)
    except Unreachable:
        return  # nothing is committed there either
    if elsewhere:
        why = other_store(context.link, elsewhere)
        raise PartlyDone(why.what, meaning=why.meaning, remedy=f"Stop that process, then drkit resume {context.run}")


def keep_problems(context: StageContext, snapshot: Snapshot) -> None:
    """Record newly seen problems: what counts as lost now must count as lost later."""
    store, link = context.estate.store, snapshot.link.id
    known = {_said(problem) for problem in store.problems(link)}
    seen: dict[tuple[object, ...], Problem] = {}
    for problem in snapshot.problems:
        if problem.kind == STORE_OLDER:  # each look compares the store with its copy again
            continue
        place = problem.kind, problem.topic, problem.partition  # the store has one of each, whatever ranges are missing
        before = seen.get(place) if problem.missing else None
        seen[place] = problem if before is None else before.with_another(problem)
    for problem in seen.values():
        if _said(problem) not in known:
            store.put_problem(link, problem)


def _said(problem: Problem) -> tuple[object, ...]:
    return problem.kind, problem.topic, problem.partition, problem.unsure_from, problem.unsure_until


def settling_generation(context: StageContext) -> int:
    """A generation to settle watermarks with, taken before the logs are looked at: a mirror that begins after that look
    has a greater one, so that a run that stood still meanwhile settles nothing beneath it."""
    generation = context.estate.store.next_generation(context.link.id)
    context.lease.check()  # afterwards: who stood still before it may have a greater one than a mirror that runs
    return generation


def settle_watermarks(context: StageContext, snapshot: Snapshot, generation: int) -> int:
    """Set the watermarks to where the copy ends in the target's logs; returns how many changed.

    From then on they are final: the log ends belong to the target's new writers. All partitions are claimed first, so
    that a stopped mirror that wakes up changes nothing. `generation`: see `settling_generation`.

    Raises:
        PartlyDone: a mirror has claimed a partition since: another process has taken the run over.
    """
    store, link = context.estate.store, snapshot.link.id
    kept = store.watermarks(link)
    settled = {
        tp: (view.epoch, view.watermark, view.target_end)
        for tp, view in snapshot.partitions.items()
        if view.watermark is not None and view.target_end is not None and tp in kept
    }
    if not settled:
        return 0
    context.lease.check()
    places = {(tp, known) for tp, (epoch, mark, _) in settled.items() for known in (epoch, mark.epoch)}
    claims = dict.fromkeys(settled, generation)
    moved = [mark for tp, (_, mark, _) in settled.items() if mark != kept[tp]]
    try:
        store.claim(link, sorted(places), generation)
        for tp, (epoch, _, target_end) in settled.items():
            store.supersede_mappings(link, tp, epoch, target_end, claims)
        store.put_watermarks(link, moved, claims)
    except Fenced as error:
        raise PartlyDone(
            f"{link} is mirrored again: a mirror has claimed {and_more([str(tp) for tp in error.partitions])}",
            meaning="Somebody has taken this run over since; what the mirror has recorded stays",
            remedy=f"`drkit runs {context.run}` shows how far it came",
        ) from error
    return len(moved)


def _drained(snapshot: Snapshot, settled: int) -> str:
    if snapshot.lag is None:
        lag = "lag not known"
    else:
        more = "" if snapshot.source.reachable and not snapshot.silent else " or more"
        lag = f"{counted(snapshot.lag, 'record')}{more} not on {snapshot.target.alias}"
    corrected = f"; {settled} watermarks set from the logs' ends" if settled else ""
    return f"no mirror is running; {lag}{corrected}"


OFFSETS = 100
"""How many of a partition's last offsets are compared."""
_SECONDS = 20.0


def compare_tails(estate: ClusterContext, snapshot: Snapshot) -> str:
    """Compare; returns what was shown, in words.

    Raises:
        Refused: they differ, or could not all be read.
        Unreachable: a cluster doesn't answer.
    """
    link = snapshot.link
    source = estate.admin(link.id.source)
    marks = [view.watermark for view in snapshot.partitions.values() if view.watermark is not None]
    batches = compare_batches(source, marks)
    for tp, batch in sorted(batches.replaced.items()):
        raise Refused(
            replaced_reason(link.id.source, link.id.target, tp, batch),
            meaning="A planned move proves that both sides hold the same before it moves",
            remedy=set_back_remedy(link.id, tp.topic),
        )
    if batches.silent:
        raise Refused(
            f"the last mirrored batches of {and_more(sorted(map(str, batches.silent)))} can't be read on "
            f"{link.id.source}",
            meaning="A planned move proves that both sides hold the same before it moves",
            remedy="Try again once all brokers answer",
        )
    if link.alters or link.shares_target:
        why = "the link alters records" if link.alters else "its target has other writers"
        return f"records are not compared ({why}); the last mirrored batches are those of {link.id.source}"
    views = [view for view in snapshot.partitions.values() if view.rows and view.target_end]
    target = estate.admin(link.id.target)
    compared = compare_records(source, target, last_places(views), seconds=_SECONDS)
    if compared.unread:
        why = and_more([reason for _, reason in compared.unread], separator="; ")
        raise Refused(
            f"{counted(len(compared.unread), 'record')} at the logs' ends can't be read: {why}",
            meaning="A planned move proves that both sides hold the same before it moves",
            remedy="Try again once all brokers answer",
        )
    if compared.differ:
        wrong = [
            f"{there.tp} at {there.offset} differs from {here.tp} at {here.offset}" for here, there in compared.differ
        ]
        raise Refused(
            f"{len(wrong)} records on {link.id.target} are not those of {link.id.source}: "
            f"{and_more(wrong, separator='; ')}",
            meaning="Somebody else wrote there, or the mapping doesn't fit the logs",
            remedy=f"Run drkit audit --link '{link.id}' to see what deviates",
        )
    gone = f", {compared.gone:,} are gone from {link.id.source} since" if compared.gone else ""
    return f"the last {compared.equal:,} records of {counted(len(views), 'partition')} are equal by checksum{gone}"


def last_places(views: Iterable[PartitionView]) -> dict[LogPosition, LogPosition]:
    """The last offsets of each target partition that exist and have a row in force, with the source offsets that the
    mapping assigns to them."""
    places = {}
    for view in views:
        end, below = view.target_end or 0, 0
        for offset in range(max(view.target_start or 0, view.rows[0].target_offset, end - OFFSETS), end):
            while below + 1 < len(view.rows) and view.rows[below + 1].target_offset <= offset:
                below += 1
            places[LogPosition(view.target_tp, offset)] = LogPosition(view.tp, offset - view.rows[below].delta)
    return places
