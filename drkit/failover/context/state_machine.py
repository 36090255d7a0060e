"""The state machine of a run: which stage comes next, and which invariants must hold then. Pure, no I/O.

    failover   planned → fenced → drained → translated → committed → switched → verified → closed

    failback   planned → salvaged → scrubbed → reversed → reseeded → audited
                       → fenced → drained → translated → committed → switched → verified → closed

    reprotect  planned → salvaged → scrubbed → reversed → reseeded → audited → closed

    any        up to the point of no return (commit; a failback's: scrub) → cancelled
               while it can neither continue nor be rolled back → abandoned
               fenced, drained, translated, committed → back before the fence, where the fence is no longer in place

A stage reaches exactly one state. The runner asks `next_step`, executes the stage, and passes its findings
(`Facts`) to `advance`, which moves on only if every invariant of the new state holds:

 I1  Order: a state is entered only from the one before it on its path.
 I2  Fence: from FENCED on, the old cluster is fenced, or an operator accepted that it is not (then it is checked
     that its log ends don't move: at the fence, after the drain, and before the run is closed).
 I3  Nothing arrives late: from DRAINED on, the link is sealed (failover) or reversed (failback) and
     no mirror runs on it, so the target's logs of the link don't move during the translation.
 I4  A planned move loses nothing: from DRAINED on, its lag is 0.
 I5  All or nothing is committed: from COMMITTED on, as many positions are committed as were translated.
 I6  Trust only what was read back: from VERIFIED on, as many were verified as were committed.
 I7  Nothing is destroyed before it is kept: from SCRUBBED on, the records that only the old cluster held are
     salvaged (or shown not to exist) and the cluster's id was confirmed.
 I8  No move back onto unproven data: from AUDITED on, the audit's verdict is clean.
 I9  A run can be cancelled only before its point of no return, and when it has no remaining effect: the
     link isn't sealed by it, its fence is lifted.
 I10 Findings behind a fence count only while that fence is in place: without it the run goes back to before
     its fence, until clients were switched.

`advance` raises `InvariantBroken` naming the invariant; then there is a bug or the clusters have changed, and
the runner stops with the run resumable.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from drkit.failover.context.live_log import HeldLog, Lacking, TopicKept
from drkit.model.errors import DrkitError


class State(StrEnum):
    """A run's state; the contract's `state`."""

    PLANNED = "planned"
    SALVAGED = "salvaged"
    SCRUBBED = "scrubbed"
    REVERSED = "reversed"
    RESEEDED = "reseeded"
    AUDITED = "audited"
    FENCED = "fenced"
    DRAINED = "drained"
    TRANSLATED = "translated"
    COMMITTED = "committed"
    SWITCHED = "switched"
    VERIFIED = "verified"
    CLOSED = "closed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


FINAL_STATES = frozenset({State.CLOSED, State.CANCELLED, State.ABANDONED})


class StageOutcome(StrEnum):
    """How a stage ended; the contract's `outcome`."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """The kind of a run."""

    FAILOVER = "failover"
    FAILBACK = "failback"
    REPROTECT = "reprotect"  # the cluster failed over to becomes the source permanently


class Mode(StrEnum):
    """Planned: both sides are alive, nothing may be lost. Unplanned: save what is there."""

    PLANNED = "planned"
    UNPLANNED = "unplanned"


class InvariantBroken(DrkitError):
    """A stage reported a fact that its state does not allow."""


@dataclass(frozen=True, slots=True)
class Step:
    """A stage by name, and the state that it reaches."""

    stage: str
    reaches: State


_MOVE = (
    Step("fence", State.FENCED),
    Step("drain", State.DRAINED),
    Step("translate", State.TRANSLATED),
    Step("commit", State.COMMITTED),
    Step("switch", State.SWITCHED),
    Step("verify", State.VERIFIED),
    Step("close", State.CLOSED),
)
_BRING_BACK = (
    Step("salvage", State.SALVAGED),
    Step("scrub", State.SCRUBBED),
    Step("reverse", State.REVERSED),
    Step("reseed", State.RESEEDED),
    Step("audit", State.AUDITED),
)
PATHS: dict[Kind, tuple[Step, ...]] = {
    Kind.FAILOVER: _MOVE,
    Kind.FAILBACK: _BRING_BACK + _MOVE,
    Kind.REPROTECT: (*_BRING_BACK, _MOVE[-1]),
}
POINT_OF_NO_RETURN = {Kind.FAILOVER: "commit", Kind.FAILBACK: "scrub", Kind.REPROTECT: "scrub"}
"""The stage from which a run isn't taken back by itself. A scrub that has deleted nothing is taken back on request."""


@dataclass(frozen=True, slots=True)
class TopicLoss:
    """What of one topic is not on the target; None: unknown."""

    topic: str
    records: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Loss:
    """What is not on the target: source offsets, and the age of the oldest at the given moment.

    `basis` is `observed` (by the last look at the source) or `audited` (counted when it was back).
    `observed_at`: the oldest observation used. `lower_bound`: the source could not be asked, so `records` is a minimum,
    and `seconds` a maximum. `upper_bound`: some of `records` may be on the target (from before their topic was accepted
    as a new one, or of open transactions), or gone from a source that had lost records before; with `lower_bound`, too,
    it may be off either way. `reason`: why something is unknown. `unjudged`: offsets
    missing on the target of which no later count can say whether they were lost.
    """

    records: int | None
    seconds: float | None
    observed_at: datetime | None
    by_topic: tuple[TopicLoss, ...] = ()
    reason: str | None = None
    basis: str = "observed"
    lower_bound: bool = False
    unjudged: tuple[str, ...] = ()
    upper_bound: bool = False


@dataclass(frozen=True, slots=True)
class PlacesSeen:
    """How many of the groups' distinct positions were read again, by outcome.

    See `drkit.failover.positions.position_checks`.
    """

    same: int = 0
    end: int = 0
    new: int = 0
    gone: int = 0
    different: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        words = (
            (self.same, "hold the record planned"),
            (self.end, "are at the log's end"),
            (self.new, "were at the log's end and have new records"),
            (self.gone, "lost their record to retention or compaction since"),
            (self.unknown, "could not be compared"),
        )
        looked = self.same + self.end + self.new + self.gone + self.different + self.unknown
        return f"of {looked} places " + (", ".join(f"{count} {what}" for count, what in words if count) or "none")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run has established so far; None: not yet. Journaled with every outcome.

    `ends`: log ends that were shown not to move, or up to which an unplanned move's loss was counted, by
    `topic:partition` of the link's source; `topic_ids`: of an unplanned move, its topics then, by name.
    `salvage_root`: the folder for salvages that was named when the run began.
    `kept`: by topic of the old primary, its newest salvage; `salvaged`: the records in them. `salvage_only`: what
    the live cluster lacks of what was mirrored, which an operator accepted to have in the salvage only; `gone`: what
    went from the live cluster since, before it was brought back, which was accepted, too; `asked`: what the stage that
    stopped last named, to be accepted.
    `commits_from`: the ends of the coordinators' log on the old primary, by partition, before topics are deleted there;
    None: what groups committed until then has been kept. `deleting`: the scrub has begun to delete topics there,
    and not each request to do so was answered that nothing is deleted.
    `unseen`: topics of the fenced cluster that it didn't show drkit when late writes were looked for: nothing shows
    that nobody wrote there.
    `late`: offsets written after the last look, unfenced or because somebody opened the fence: from and to, by
    `topic:partition`. `late_said`, `settings_said`: what a failback's switch did about these, and about the settings of
    the old primary's topics, in words: once it has activated the link it does neither again.
    `scrubbed`: topics of the new incarnation on the scrubbed cluster, by name, with their ids.
    `captured_at`: when all groups' positions were read on the source and stored, during the drain; `lacking`: of some
    stored ones the source had no commit any more.
    `held`: the logs of the cluster that groups move to, when the loss was counted, by `topic:partition` of the link's
    source, without empty ones.
    `removed_unread`: the offsets that groups had not read, and that the target no longer holds.
    `places`: how many of the groups' positions were seen to hold the planned record.
    """

    mode: Mode
    unfenced_accepted: bool = False
    cluster_confirmed: str | None = None
    salvaged: int | None = None
    salvage_path: str | None = None
    salvage_root: str | None = None
    kept: dict[str, TopicKept] = field(default_factory=dict)
    salvage_only: tuple[Lacking, ...] = ()
    gone: tuple[Lacking, ...] = ()
    asked: tuple[Lacking, ...] = ()
    commits_from: dict[str, int] | None = None
    deleting: bool = False
    scrubbed: dict[str, str] | None = None
    reversed: bool = False
    audit: str | None = None
    audit_detail: str | None = None
    sealed: bool = False
    fenced: bool | None = None
    fence_reason: str | None = None
    fence_epoch: int | None = None
    fenced_at: datetime | None = None
    captured_at: datetime | None = None
    lacking: bool = False
    mirror_stopped: bool = False
    lag: int | None = None
    ends: dict[str, int] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    late: dict[str, tuple[int, int]] = field(default_factory=dict)
    held: dict[str, HeldLog] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    late_said: str = ""
    settings_said: tuple[str, ...] = ()
    loss: Loss | None = None
    placed: int | None = None
    removed_unread: int | None = None
    committed: int | None = None
    endpoint: str | None = None
    verified: int | None = None
    places: PlacesSeen | None = None
    verified_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run as the machine sees it."""

    kind: Kind
    state: State
    facts: Facts

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.state in FINAL_STATES


def next_step(run: Run) -> tuple[Step | None, str]:
    """The stage to execute now (None: the run is over), and why."""
    if run.finished:
        return None, f"the run is {run.state}: nothing is left to do"
    path = PATHS[run.kind]
    reached = [step.reaches for step in path]
    position = 0 if run.state is State.PLANNED else reached.index(run.state) + 1
    step = path[position]
    return step, f"{run.state}: next stage of this {run.facts.mode} {run.kind}: {step.stage}"


def advance(run: Run, stage: str, outcome: StageOutcome, facts: Facts) -> Run:
    """The run after `stage` ended with `outcome` and established `facts`.

    A failed or unknown stage changes the facts, not the state: it will be executed again.

    Raises:
        InvariantBroken: the stage isn't the next one, or an invariant of the new state doesn't hold.
    """
    step, why = next_step(run)
    if step is None or step.stage != stage:
        raise InvariantBroken(
            f"I1: stage {stage} reported in state {run.state}", meaning=why, remedy="Look at `drkit runs` first"
        )
    if outcome in {StageOutcome.FAILED, StageOutcome.UNKNOWN}:
        return replace(run, facts=facts)
    moved = replace(run, state=step.reaches, facts=facts)
    check(moved)
    return moved


def cancel(run: Run) -> Run:
    """The run given up: before its point of no return, and with nothing of it left.

    Raises:
        InvariantBroken: it is beyond that point, or one of its changes is still in effect.
    """
    facts = run.facts
    undone = not facts.sealed and not facts.scrubbed and not facts.reversed and facts.committed is None
    undone = undone and not facts.deleting
    # a scrub that deleted nothing has changed nothing
    first = POINT_OF_NO_RETURN[run.kind] if run.kind is Kind.FAILOVER else "reverse"
    if not undone or run.state not in _before(first, run.kind):
        raise InvariantBroken(f"I9: a run that is {run.state} has changed things", remedy="Resume it instead")
    return replace(run, state=State.CANCELLED)


def undone(run: Run, did: str | None = None) -> Run:
    """The run without any of its effects, its fence included; `did`: what was done for that, in words."""
    fenced = None if run.facts.fenced is None else False
    facts = replace(
        run.facts, sealed=False, mirror_stopped=False, fenced=fenced, fence_reason=did, fenced_at=None, unseen=()
    )
    return replace(run, facts=facts)


BEHIND_THE_FENCE = frozenset({State.FENCED, State.DRAINED, State.TRANSLATED, State.COMMITTED})
"""The states that rely on a fence, until clients are switched."""


def before_fence(kind: Kind) -> State:
    """The state in which a run's next stage is its fence."""
    return State.AUDITED if kind is Kind.FAILBACK else State.PLANNED


def back_before_fence(run: Run, why: str) -> Run:
    """The run before its fence again: what was found behind it counts no more.

    Raises:
        InvariantBroken: the run's state doesn't rely on a fence, or clients may have been switched.
    """
    if run.state not in BEHIND_THE_FENCE | {before_fence(run.kind)}:
        raise InvariantBroken(f"I10: a run that is {run.state} can't go back before its fence", remedy="Resume it")
    sealed = run.facts.sealed and run.facts.mode is Mode.UNPLANNED
    facts = replace(
        run.facts,
        sealed=sealed,
        fenced=None,
        fence_reason=why,
        fence_epoch=None,
        fenced_at=None,
        captured_at=None,
        lacking=False,
        mirror_stopped=False,
        lag=None,
        ends={},
        topic_ids={},
        held={},
        loss=None,
        placed=None,
        committed=None,
    )
    return replace(run, state=before_fence(run.kind), facts=facts)


def abandon(run: Run) -> Run:
    """The run ended where it stands; what it has done stays as it is.

    Raises:
        InvariantBroken: it is over.
    """
    if run.finished:
        raise InvariantBroken(f"I9: the run is {run.state}: there is nothing to abandon", remedy="`drkit runs`")
    return replace(run, state=State.ABANDONED)


def check(run: Run) -> None:
    """Raise `InvariantBroken` if the run's facts don't allow its state."""
    facts = run.facts
    for name, since, holds, meaning in (
        ("I2", State.FENCED, _fence_holds(run), "the old cluster can still be written and nobody accepted that"),
        ("I3", State.DRAINED, _settled(run), "a mirror could still write below the positions"),
        ("I4", State.DRAINED, facts.mode is Mode.UNPLANNED or facts.lag == 0, f"a planned move lags by {facts.lag}"),
        (
            "I5",
            State.COMMITTED,
            facts.placed is not None and facts.committed == facts.placed,
            f"{facts.committed} of {facts.placed} positions are committed",
        ),
        (
            "I6",
            State.VERIFIED,
            facts.verified is not None and facts.verified == facts.committed,
            f"{facts.verified} of {facts.committed} positions were read back",
        ),
        (
            "I7",
            State.SCRUBBED,
            facts.salvaged is not None and facts.cluster_confirmed is not None,
            "nothing was salvaged, or the cluster's id was not confirmed",
        ),
        ("I8", State.AUDITED, facts.audit == "clean", f"the audit's verdict is {facts.audit}"),
    ):
        if not holds and _at_or_after(run, since):
            raise InvariantBroken(
                f"{name}: a {run.kind} must not be {run.state}: {meaning}", remedy="`drkit runs` shows how it got here"
            )


def _before(stage: str, kind: Kind) -> set[State]:
    """The states in which a stage was not begun yet."""
    names = [step.stage for step in PATHS[kind]]
    return {State.PLANNED, *(step.reaches for step in PATHS[kind][: names.index(stage)])}


def _fence_holds(run: Run) -> bool:
    facts = run.facts
    return facts.fenced is True or (facts.fenced is False and facts.unfenced_accepted)


def _settled(run: Run) -> bool:
    decided = run.facts.reversed if run.kind is Kind.FAILBACK else run.facts.sealed
    return decided and run.facts.mirror_stopped


def _at_or_after(run: Run, since: State) -> bool:
    """Whether the run's state lies at or beyond `since` on its own path."""
    reached = [step.reaches for step in PATHS[run.kind]]
    if since not in reached or run.state not in reached:
        return False
    return reached.index(run.state) >= reached.index(since)
