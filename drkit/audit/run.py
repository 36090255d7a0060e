"""`run_audit`: observe, compare, classify, report. Starts again if retention moved a log meanwhile."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drkit.audit.classify.foreign_keys import audit_foreign_key, check_decoders, concerned
from drkit.audit.classify.ordering import MOST_RUNS
from drkit.audit.classify.run_classification import Judgement, judge
from drkit.audit.compare.record_frames import ScopeReader
from drkit.audit.compare.scope import LogStart, Scope, log_starts, observe_scope
from drkit.audit.findings.findings import (
    OutcomeCounts,
    count,
    hand_over,
    outcome_counts,
    uncompared,
    unproven,
    unseen_before,
)
from drkit.audit.findings.findings_path import discard_findings, findings_path
from drkit.audit.findings.unreadable import hidden_source, hidden_target, unreadable_source, unreadable_target
from drkit.audit.read.shipped_code import callables_of
from drkit.audit.spark.failures import ExecutorLost, LogMoved, in_words
from drkit.audit.spark.session import (
    Progress,
    SparkRuntime,
    Tasks,
    described,
    session_starting,
    ship_callables,
    timed,
    watching,
)
from drkit.config import Config
from drkit.kafka.transform.record_transform import Alteration
from drkit.model.audit.audit_result import (
    DEVIATIONS,
    AuditRequest,
    AuditResult,
    Counts,
    PartitionAudit,
    PlacementBasis,
)
from drkit.model.errors import DrkitError, Refused
from drkit.model.link_state import FOREIGN_WRITER
from drkit.model.runs import serve_again
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import counted
from drkit.store.api import Store

_ATTEMPTS = 5
_OF_ALL = 3
"""After this many attempts an audit leaves out partitions whose logs keep moving, so that it ends for the others."""
_OFFSETS_A_SHUFFLE_TASK = 500_000


@dataclass(frozen=True, slots=True)
class ClassifiedScope:
    """A scope judged: what an audit and a salvage both start from."""

    reader: ScopeReader
    judgement: Judgement


def run_audit(
    request: AuditRequest,
    store: Store,
    config: Config,
    spark: SparkRuntime,
    *,
    progress: Progress | None = None,
    tasks: Tasks | None = None,
) -> AuditResult:
    """Compare both sides of a link record by record.

    Args:
        request: the link, topics, time window, and where the findings go.
        store: the link's mapping rows and watermarks.
        config: both clusters.
        spark: what to run on; one session is kept and used again within a process.
        progress: receives progress messages.
        tasks: told Spark's tasks done and in all, a few times a second.

    Raises:
        ConfigError: a topic asked for doesn't exist.
        Refused: findings are there already, a cluster denies access, or the link keeps no mapping.
        Unreachable: a cluster or the store doesn't answer.
        DrkitError: Spark failed; or retention moved the logs faster than they could be read.
    """
    path = findings_path(request)
    say = timed(progress or _silent)
    try:
        _make_folder(path.parent)
        try:
            return _audit(request, store, config, spark, path, say, tasks)
        except ExecutorLost as error:
            say(f"{error.what}; starting again")
            shutil.rmtree(path, ignore_errors=True)
        return _audit(request, store, config, spark, path, say, tasks)
    except BaseException:
        discard_findings(request)  # incomplete findings would look complete
        raise


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DrkitError(f"{folder} can't be made: {error.strerror}", remedy="Give another --out") from error


def _audit(
    request: AuditRequest,
    store: Store,
    config: Config,
    spark: SparkRuntime,
    path: Path,
    say: Progress,
    tasks: Tasks | None,
) -> AuditResult:
    began = time.monotonic()
    refuse_unmapped(request.link, "the audit", from_digests=request.from_digests)
    Alteration.of(config, request.link)  # report an unusable callable before anything is read
    foreign_keys = concerned(request, config)
    check_decoders(foreign_keys)
    found = judged(request, store, config, spark, "the audit", say, tasks, leave_out=True)
    scope = found.reader.scope
    say = described(found.reader.spark, f"audit of {request.link.id}", say)
    say("writing findings")
    with in_words("the audit"), watching(found.reader.spark, tasks):
        counts = outcome_counts(scope, found.judgement)
        partitions = count(scope, found.judgement, counts)
        total, first = hand_over(found.reader, found.judgement, counts, path, request.run)
        hindered = (*unreadable_target(scope, found.judgement).values(), *hidden_target(scope, counts).values())
        overdue = None if request.unseen_since is None else unseen_before(scope, found.judgement, request.unseen_since)
        related = []
        for each in foreign_keys:
            say(f"looking for orphans of {each.child} in {each.parent}")
            related.append(audit_foreign_key(each, request, store, config, spark))
    return AuditResult(
        link=request.link.id,
        counts=Counts.total(each.counts for each in partitions),
        partitions=partitions,
        findings=first,
        findings_total=total,
        findings_path=str(path),
        basis=_basis(partitions),
        observed_at=scope.observed_at,
        seconds=time.monotonic() - began,
        notes=scope.notes + hidden_source(scope) + _inexact(scope, found.judgement) + _left_behind(scope, partitions),
        since=request.since,
        until=request.until,
        foreign_keys=tuple(related),
        coverage=found.judgement.comparison.coverage,
        incomplete=scope.incomplete
        + tuple(reason for _, reason in unreadable_source(scope, found.judgement.comparison.source_unreadable))
        + tuple(each.words for each in hindered)
        + _hidden_by_compaction(scope, counts)
        + _unproven(scope, counts)
        + _written_before(scope, store),
        overdue=overdue,
        whole=request.whole,
    )


def _written_before(scope: Scope, store: Store) -> tuple[str, ...]:
    """What somebody else had written on the target before the link was sealed: since then its clients write there."""
    appended = [each.tp for each in scope.partitions if each.sealed_at is not None and each.target_end > each.sealed_at]
    return tuple(
        f"{problem.reason}; the failover came later, so how much of what is appended there is foreign isn't known"
        for problem in store.problems(scope.link.id)
        if problem.kind == FOREIGN_WRITER and any(map(problem.concerns, appended))
    )


def judged(
    request: AuditRequest,
    store: Store,
    config: Config,
    spark: SparkRuntime,
    what: str,
    progress: Progress,
    tasks: Tasks | None = None,
    *,
    leave_out: bool = False,
) -> ClassifiedScope:
    """Observe and judge; anew where records went away while they were read, or the logs' starts moved.

    Records read before retention took them and looked for afterwards would seem lost, so a judgement only
    counts if the logs began at its end where they did at its start.

    Args:
        request: what to compare.
        store: the link's mapping rows and watermarks.
        config: both clusters.
        spark: what to run on.
        what: what is done, as in "the audit".
        progress: receives progress messages.
        tasks: told Spark's tasks done and in all.
        leave_out: partitions that move time and again are left out, and are in `Scope.incomplete`; and a move doesn't
            matter where all that was read had its equal.

    Raises:
        DrkitError: the logs moved during each attempt.
    """
    progress("reading the state of both clusters")
    with session_starting(spark, brief=True) as started:
        scope = observe_scope(request, store, config)
        progress("starting Spark")
        session = started()
    progress = described(session, f"{what.removeprefix('the ')} of {request.link.id}", progress)
    ship_callables(session, callables_of(request.link, concerned(request, config)))
    seen, moving = scope, set[TopicPartition]()
    for attempt in range(1, _ATTEMPTS + 1):
        if attempt > 1:
            before, seen = seen, observe_scope(request, store, config)
            if leave_out and attempt > _OF_ALL:
                moving |= _moved(before, seen)
            less = _without(seen, moving)
            scope = less if less.partitions else seen
        parallel = session.sparkContext.defaultParallelism
        session.conf.set("spark.sql.shuffle.partitions", max(2 * parallel, scope.offsets // _OFFSETS_A_SHUFFLE_TASK))
        progress("reading both sides")
        try:
            with in_words(what), watching(session, tasks):
                reader = ScopeReader(session, scope)
                judgement = judge(reader, full=request.full, say=progress)
        except LogMoved as error:
            progress(f"{error.what}: starting again")
            continue
        starts = log_starts(scope, config)
        if starts == scope.starts() or (leave_out and not _matters(judgement, starts)):
            return ClassifiedScope(reader, judgement)
        progress("retention moved a log meanwhile: starting again")
    raise DrkitError(
        f"retention removed records during each attempt at {what}",
        meaning="What was read on one side was gone before the other was compared with it",
        remedy="Choose fewer topics, or a time window that begins after what retention is removing",
    )


def _moved(before: Scope, after: Scope) -> set[TopicPartition]:
    """The partitions whose logs don't begin where they did."""
    starts = {each.tp: each.starts for each in before.partitions}
    found = {each.tp: each.starts for each in after.partitions}
    return {tp for tp, each in found.items() if starts.get(tp, each) != each}


def _without(scope: Scope, moving: Collection[TopicPartition]) -> Scope:
    """The scope without some partitions, and why."""
    left = [each for each in scope.partitions if each.tp not in moving]
    reasons = tuple(
        f"{tp.topic}:{tp.partition} was not compared: its log lost its beginning (retention, DeleteRecords) "
        "during each attempt, on one side or the other"
        for tp in sorted(moving)
    )
    return replace(
        scope,
        partitions=tuple(replace(each, number=number) for number, each in enumerate(left)),
        incomplete=scope.incomplete + reasons,
    )


def _matters(judgement: Judgement, starts: Sequence[LogStart]) -> bool:
    """Whether something deviates where logs begin elsewhere by now: it may be what was removed that is missed."""
    if judgement.in_spark is not None:
        return True
    partitions = judgement.reader.scope.partitions
    now = [tuple(starts[2 * number : 2 * number + 2]) for number in range(len(partitions))]
    moved = {each.number for each in partitions if now[each.number] != each.starts}
    if any(
        now[number][side].topic_id != partitions[number].starts[side].topic_id for number in moved for side in (0, 1)
    ):
        return True
    return any(entry.p in moved and str(entry.outcome) in DEVIATIONS for entry in judgement.settled)


def refuse_unmapped(link: Link, what: str, *, from_digests: bool = False) -> None:
    """Raise `Refused` where nothing tells which of the target's records are the link's, or what they were read as."""
    if link.shares_target:
        raise Refused(
            f"{what} of {link.id} is unavailable: its target's topics have other writers, too",
            meaning="Such a link keeps no mapping, so drkit can't tell its records from other writers' by their offset",
            remedy='Name another link with --link; with `policy = "prefix"` each cluster has its own topics, and '
            "can be audited",
        )
    if from_digests and link.alters:
        raise Refused(
            f"--from-digests is unavailable for {link.id}: it alters records",
            meaning="The mirror keeps digests of batches that it forwards unchanged; this link rebuilds every batch",
            remedy="Run the audit without --from-digests",
        )


def refuse_altered(link: Link, what: str) -> None:
    """Raise `Refused` for a link that alters records, where its source's own records are wanted."""
    if not link.alters:
        return
    alters = [key for key in ("filter", "transform", "provenance") if getattr(link, key)]
    raise Refused(
        f"{what} of {link.id} is unavailable: its {' and '.join(alters)} alters records",
        meaning="The source's records are not what its target should hold, so they can't be replayed there",
        remedy=f"`drkit audit --link '{link.id}'` names every record that the target lacks; nothing of the source is "
        "destroyed, since a failback along this link is refused, too",
    )


def _hidden_by_compaction(scope: Scope, counts: OutcomeCounts) -> tuple[str, ...]:
    """Topics of which the source's cleaner took records that the link's callables can't be asked about any more."""
    if not scope.asks_callables:
        return ()
    found = {scope.partitions[number].topic for number in uncompared(counts)}
    return tuple(
        f"{topic} is compacted on {scope.link.id.source}: the target holds records whose originals are gone there, so "
        "drkit can't know what the link would have made of them"
        for topic in sorted({each.topic for each in scope.partitions if each.source_compacted} & found)
    )


def _unproven(scope: Scope, counts: OutcomeCounts) -> tuple[str, ...]:
    """Partitions of whose records it isn't known whether the target's cleaner took them, or they are lost."""
    return tuple(
        f"{scope.partitions[number].topic}:{scope.partitions[number].partition} is compacted on "
        f"{scope.link.id.target}: whether it took {counted(records, 'record')} that "
        f"{'is' if records == 1 else 'are'} missing there, or they were lost, isn't known, because what would explain "
        f"it is above the highest mirrored position; drkit mirror --link '{scope.link.id}' settles it"
        for number, records in sorted(unproven(counts).items())
    )


def _left_behind(scope: Scope, partitions: Sequence[PartitionAudit]) -> tuple[str, ...]:
    """What the mirror had not reached when the link was failed over: no mirror brings it any more."""
    sealed = {each.tp for each in scope.partitions if each.sealed_at is not None}
    unseen = sum(each.counts.unseen for each in partitions if TopicPartition(each.topic, each.partition) in sealed)
    if not unseen:
        return ()
    link = scope.link.id
    they = "is" if unseen == 1 else "are"
    keep = f"`drkit failback` salvages them, `drkit salvage --link '{link}' --out DIR` keeps them now"
    if scope.link.alters:
        keep = serve_again(scope.link)
    why = (
        f"{counted(unseen, 'record')} of {link.source} {they} not on {link.target} (unseen): the mirror had not got "
        f"there when {link} was failed over, and none brings them any more. {keep}, and --fail-on unseen counts "
        "them (exit 5)"
    )
    return (why,)


def _basis(partitions: tuple[PartitionAudit, ...]) -> PlacementBasis:
    found = {each.basis for each in partitions}
    return found.pop() if len(found) == 1 else PlacementBasis.MIXED if found else PlacementBasis.MAPPING


def _inexact(scope: Scope, judgement: Judgement) -> tuple[str, ...]:
    return tuple(
        f"{each.topic}:{each.partition} is in more than {MOST_RUNS} pieces: its count of reordered records may be "
        "more than the fewest that moved"
        for each in scope.partitions
        if each.number in judgement.inexact
    )


def _silent(_: str) -> None:
    """Tell nobody."""
