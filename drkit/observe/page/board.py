"""The page's data: the newest polls of links, decisions and earlier runs; rows of tables, made once each.

Polls run on a thread each: any number of readers get the newest result at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from drkit import __version__
from drkit.config import Objectives
from drkit.model.clock import UsualDuration, iso, now
from drkit.model.errors import DrkitError, error_body
from drkit.model.link_state import Problem
from drkit.model.runs import RunSummary
from drkit.model.topology import LinkId
from drkit.observe import formatting
from drkit.observe.audit_history import AuditOfLink
from drkit.observe.drill_history import DrillKind
from drkit.observe.history import MEASURES, StatusHistory, measure
from drkit.observe.link_status import LinkStatus
from drkit.observe.page import tables
from drkit.observe.page.decision import Answer, Decision, Duration, decision_document, rounded_age, unknown
from drkit.observe.page.tables import Row, Table, page_of, query_of

_T = TypeVar("_T")
_STALE_SECONDS = 30.0
_STALE_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PollResult(Generic[_T]):
    """The result of one poll, or the error.

    `number` grows by 1 with each; `began_at` is its begin (nothing in it is older), `began` by the monotonic clock.
    """

    number: int
    began_at: datetime
    began: float
    value: _T | None
    error: DrkitError | None

    def age(self) -> float:
        """Seconds since it began: a clock that is set back hides none, nor does a machine that slept."""
        return max(time.monotonic() - self.began, (now() - self.began_at).total_seconds())


class Poller(Generic[_T]):
    """Polls repeatedly; slow polls run less often, to bound their load.

    Args:
        name: of the thread.
        look: the poll; its errors become the poll's result.
        seconds: the least time from one poll's end to the next one's begin.
        rest: the same, as a multiple of a poll's usual duration (`UsualDuration`).
    """

    def __init__(self, name: str, look: Callable[[], _T], *, seconds: float, rest: float) -> None:
        self._look, self._seconds, self._rest = look, seconds, rest
        self._newest: PollResult[_T] | None = None
        self._usual = UsualDuration()
        self._takes = 0.0
        self._first = threading.Event()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin the first poll."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further poll."""
        self._stop.set()
        self._wake.set()

    def soon(self) -> None:
        """The last result is outdated: poll again as soon as a running poll has ended."""
        self._wake.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for a running poll; after the timeout it ends with the process."""
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    @property
    def newest(self) -> PollResult[_T] | None:
        """The last finished poll; None: the first one still runs."""
        return self._newest

    def first(self, timeout_seconds: float) -> PollResult[_T] | None:
        """The newest result, once the first poll has ended; None if that takes longer."""
        self._first.wait(timeout_seconds)
        return self._newest

    def stale_after(self) -> float:
        """Seconds after which a result is stale: several polls were missed."""
        return max(_STALE_SECONDS, _STALE_ROUNDS * (self._takes + self._pause(self._takes)))

    def fresh(self) -> PollResult[_T] | None:
        """The newest result unless it is stale."""
        newest = self._newest
        return None if newest is None or newest.age() > self.stale_after() else newest

    def look_once(self) -> PollResult[_T]:
        """Poll now, on this thread."""
        began_at, began = now(), time.monotonic()
        value, error = None, None
        try:
            value = self._look()
        except DrkitError as found:
            error = found
        except Exception as found:  # noqa: BLE001  # a defect must not end the thread: the page would freeze unnoticed
            error = DrkitError(
                f"internal error: {type(found).__name__}: {found}",
                meaning="This is a defect of drkit, not of your set-up",
                remedy="Run `drkit status --verbose` and report the trace",
            )
        number = 1 if self._newest is None else self._newest.number + 1
        seconds = time.monotonic() - began
        self._takes = self._usual.after(seconds)
        self._newest = PollResult(number, began_at, began, value, error)
        self._first.set()
        return self._newest

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look_once()
            if self._wake.wait(self._pause(self._takes)):
                self._stop.wait(self._takes)  # constant changes don't cause constant polls
                self._wake.clear()

    def _pause(self, took: float) -> float:
        return max(self._seconds, self._rest * took)


_STATUS_SECONDS, _STATUS_REST = 2.0, 3.0
_DECISION_SECONDS, _DECISION_REST = 15.0, 5.0
_EARLIER_SECONDS, _EARLIER_REST = 15.0, 10.0
_FIRST_SECONDS = 30.0
_STOP_SECONDS = 2.0
_MOST = 10
"""Problems of a link in the summary; it says how many more there are."""


@dataclass(frozen=True, slots=True)
class LastDrill:
    """The newest kept drill. `age` counts from `started_at`."""

    run: str
    title: str | None
    verdict: str | None
    started_at: datetime | None
    rpo_records: int | None
    rto_seconds: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Results of earlier runs. `durations`: by target, how long the last failover there took, if there was one.

    `drill` None: `no_drill` says why. `rehearsed`: each kind of drill that the store knows.
    """

    runs: tuple[RunSummary, ...]
    audits: tuple[AuditOfLink, ...]
    durations: Mapping[str, Duration]
    drill: LastDrill | None
    no_drill: str
    rehearsed: tuple[DrillKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the page's parts; each call may be slow, and raises a DrkitError if it has no result.

    Args:
        statuses: the status of each link.
        decisions: the decision on a failover to each target.
        earlier: the results of earlier runs.
        run: one run's stages and evidence; None: there is no such run.
        drills: summaries of the kept drills, newest first.
        drill: one drill's report; None: there is no such drill.
        targets: the clusters that links lead to, and these links.
        named: these links were named; else they are all that are configured.
    """

    statuses: Callable[[], Sequence[LinkStatus]]
    decisions: Callable[[], Sequence[Decision]]
    earlier: Callable[[], EarlierRuns]
    run: Callable[[str], dict[str, Any] | None]
    drills: Callable[[], list[Row]]
    drill: Callable[[str], dict[str, Any] | None]
    targets: Mapping[str, tuple[str, ...]]
    named: bool = False


Conditions = Mapping[str, tuple[str, bool, bool]]
"""By link: its state, and whether its source and its target answer. A change may change the plan."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The plans, and the conditions of the status before them; `conditions` None: there was no status yet."""

    decisions: tuple[Decision, ...]
    conditions: Conditions | None


class Board:
    """The newest state of everything, polled in the background from `start` on.

    Args:
        sources: the data sources.
        history: takes the samples of each poll.
        objectives: shown beside measured values.
    """

    def __init__(self, sources: Sources, history: StatusHistory, objectives: Objectives) -> None:
        self.sources, self.history, self.objectives = sources, history, objectives
        self.status: Poller[Sequence[LinkStatus]] = Poller(
            "page-status", self._statuses, seconds=_STATUS_SECONDS, rest=_STATUS_REST
        )
        self.decision: Poller[Plans] = Poller(
            "page-decision", self._plans, seconds=_DECISION_SECONDS, rest=_DECISION_REST
        )
        self.earlier: Poller[EarlierRuns] = Poller(
            "page-earlier", self._runs_before, seconds=_EARLIER_SECONDS, rest=_EARLIER_REST
        )
        self.stopping = threading.Event()
        self._rows: dict[str, tuple[tuple[int, ...], list[Row]]] = {}

    def reconfigure(self, sources: Sources, objectives: Objectives) -> None:
        """Use other sources for the same links from the next poll on, which comes soon."""
        self.sources, self.objectives = sources, objectives
        for each in (self.status, self.decision, self.earlier):
            each.soon()

    def start(self) -> None:
        """Start polling."""
        for each in (self.status, self.decision, self.earlier):
            each.start()

    def stop(self) -> None:
        """Stop polling, and end the streams. Running polls have some seconds."""
        self.stopping.set()
        looks = (self.status, self.decision, self.earlier)
        for each in looks:
            each.stop()
        for each in looks:
            each.join(_STOP_SECONDS)

    def snapshot(self) -> tuple[Sequence[LinkStatus] | None, DrkitError | None]:
        """The newest status, or None and the reason. Waits for the first."""
        look = self.status.first(_FIRST_SECONDS)
        if look is None:
            return None, DrkitError("the first poll of the clusters is still running", remedy="Try again in a while")
        if self.status.fresh() is None:
            return None, _stale(look)
        return look.value, look.error

    def looks(self) -> bool:
        """Whether it still polls: the first poll is running, or the last one, successful or not, isn't stale."""
        return self.status.newest is None or self.status.fresh() is not None

    def version(self) -> tuple[int, ...]:
        """Changes with every finished poll."""
        looks = (self.status.newest, self.decision.newest, self.earlier.newest)
        return tuple(0 if each is None else each.number for each in looks)

    def table(self, name: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """A page of a table.

        Raises:
            KeyError: no such table.
            ConfigError: an invalid parameter.
            DrkitError: there is nothing to show; has the reason.
        """
        table, source = TABLES[name]
        query = query_of(table, parameters)
        kept, began_at = source(self, name)
        return {**page_of(kept, table, query), "as_of": iso(began_at)}

    def _statuses(self) -> Sequence[LinkStatus]:
        at = now()
        try:
            found = self.sources.statuses()
        except DrkitError:
            self.history.add((), at)
            self.decision.soon()
            raise
        self.history.add(found, at)
        planned = None if self.decision.newest is None else self.decision.newest.value
        if planned is not None and planned.conditions is not None and planned.conditions != _conditions(found):
            self.decision.soon()
        return found

    def _runs_before(self) -> EarlierRuns:
        return self.sources.earlier()

    def _plans(self) -> Plans:
        look = self.status.newest
        before = None if look is None or look.value is None else _conditions(look.value)
        return Plans(tuple(self.sources.decisions()), before)

    def rows_of(self, name: str, version: tuple[int, ...], make: Callable[[], list[Row]]) -> list[Row]:
        """The rows of a poll's result, made once."""
        kept = self._rows.get(name)
        if kept is None or kept[0] != version:
            self._rows[name] = kept = (version, make())
        return kept[1]

    def decisions(self, at: datetime) -> list[Decision]:
        """The decision on a failover to each target; unknown if there is none, or only an old one."""
        look = self.decision.newest
        if look is None:
            return [self._unknown(to, at, "the first plan is still being made") for to in self.sources.targets]
        if look.value is None:
            why = "there is no plan" if look.error is None else look.error.what
            return [self._unknown(to, look.began_at, why) for to in self.sources.targets]
        if look.age() > self.decision.stale_after():
            why = f"the last plan was made {look.age():,.0f} s ago, and no newer one came"
            return [unknown(each, why) for each in look.value.decisions]
        return [self._unless_over(each, look) for each in look.value.decisions]

    def _unless_over(self, decision: Decision, look: PollResult[Plans]) -> Decision:
        """A yes, or who serves, that a later status puts in doubt is unknown until there is a new plan."""
        status = self.status.newest
        if decision.answer in {Answer.NO, Answer.UNKNOWN} or look.value is None or status is None:
            return decision
        if status.error is not None and status.began_at > look.began_at:
            return unknown(decision, status.error.what, status.error.remedy)
        if look.value.conditions is None or status.value is None:
            return decision
        at_present = _conditions(status.value)
        for link in decision.links:
            then, today = look.value.conditions.get(link), at_present.get(link)
            if then is not None and today is not None and then != today:
                why = f"{link} {_difference(link, then, today)} since the last plan, and a new one is being made"
                return unknown(decision, why, "Wait some seconds")
        return decision

    def _unknown(self, to: str, at: datetime, why: str) -> Decision:
        links = self.sources.targets[to]
        return unknown(Decision(to, links, Answer.UNKNOWN, (), at, named=self.sources.named), why)

    def summary(self) -> dict[str, Any]:
        """The first view, bounded whatever the number of partitions and groups."""
        at = now()
        statuses, error = self._newest_status()
        earlier = self.earlier.newest
        value = None if earlier is None else earlier.value
        status = self.status.newest
        return {
            "at": iso(at),
            "drkit": __version__,
            "decisions": [self._decision(each, value, at) for each in self.decisions(at)],
            "status": {
                "as_of": None if status is None else iso(status.began_at),
                "error": None if error is None else error_body(error),
            },
            "links": [self._link(each, at) for each in statuses or ()],
            "drill": None if value is None or value.drill is None else _drill(value.drill, at),
            "no_drill": _why_nothing(earlier) if value is None else value.no_drill,
            "audits": [] if value is None else [_audit(each, at) for each in value.audits],
            "no_audit": _why_nothing(earlier) if value is None else "no audit of these links is in the store",
            "objectives": {
                "rpo_records": self.objectives.rpo_records,
                "rpo_seconds": self.objectives.rpo_seconds,
                "rto_seconds": self.objectives.rto_seconds,
            },
            "history": {"reason": self.history.reason},
        }

    def _newest_status(self) -> tuple[Sequence[LinkStatus] | None, DrkitError | None]:
        look = self.status.newest
        if look is None:
            return None, DrkitError("the first poll of the clusters is still running")
        return (look.value, look.error) if self.status.fresh() is not None else (None, _stale(look))

    def _decision(self, decision: Decision, earlier: EarlierRuns | None, at: datetime) -> dict[str, Any]:
        took = None if earlier is None else earlier.durations.get(decision.to)
        rto = {
            "seconds": None if took is None else round(took.seconds, 3),
            "of": None if took is None else took.of,
            "run": None if took is None else took.run,
            "age_seconds": None if took is None or took.at is None else rounded_age(took.at, at),
            "reason": None if took is not None else _no_duration(self.earlier.newest, decision.to),
        }
        return {**decision_document(decision, at), "duration": rto}

    def _link(self, status: LinkStatus, at: datetime) -> dict[str, Any]:
        point = status.recovery_point
        return {
            "link": str(status.link.id),
            "source": status.link.id.source,
            "target": status.link.id.target,
            "inverse": status.link.inverse,
            "state": status.state,
            "failed_over": status.failed_over,
            "canary": status.link.canary,
            "reason": status.reason,
            "source_reachable": status.source_reachable,
            "target_reachable": status.target_reachable,
            "observed_at": iso(status.observed_at),
            "loss_means": status.loss_means,
            "recovery_point": {
                "records": point.records,
                "seconds": point.seconds,
                "lower_bound": point.lower_bound,
                "reason": point.reason,
            },
            **dict(zip(MEASURES[2:], measure(status, at)[2:], strict=True)),
            "partitions": len(status.partitions),
            "positions": len(status.groups),
            "workers": len(status.statistics),
            "problems": [_problem(each) for each in status.problems[:_MOST]],
            "more_problems": max(0, len(status.problems) - _MOST),
        }


def history_document(board: Board, link: str, span: str) -> dict[str, Any]:
    """The history of a link.

    Raises:
        KeyError: no such link or span.
    """
    try:
        wanted = LinkId.parse(link)
    except ValueError:
        raise KeyError(link) from None
    return board.history.document(wanted, span, now())


def _of_status(make: Callable[[Sequence[LinkStatus], datetime], list[Row]]) -> _Source:
    def source(board: Board, name: str) -> tuple[list[Row], datetime]:
        _, error = board.snapshot()
        look = board.status.newest
        if error is not None or look is None or look.value is None:
            raise error or DrkitError("there is no status yet")
        statuses, began_at = look.value, look.began_at
        return board.rows_of(name, (look.number,), lambda: make(statuses, began_at)), began_at

    return source


def _of_plan(make: Callable[[Sequence[Decision]], list[Row]]) -> _Source:
    def source(board: Board, name: str) -> tuple[list[Row], datetime]:
        look = board.decision.first(_FIRST_SECONDS)
        if look is None:
            raise DrkitError("the first plan is still being made", remedy="Try again in a while")
        if look.value is None:
            raise look.error or DrkitError("there is no plan")
        if board.decision.fresh() is None:
            raise _stale(look)
        value = look.value.decisions
        return board.rows_of(name, (look.number,), lambda: make(value)), look.began_at

    return source


def _of_earlier(board: Board, name: str) -> tuple[list[Row], datetime]:
    look = board.earlier.first(_FIRST_SECONDS)
    if look is None:
        raise DrkitError("the journal of runs is still being read", remedy="Try again in a while")
    if look.value is None:
        raise look.error or DrkitError("earlier runs are unknown")
    runs = look.value.runs
    return board.rows_of(name, (look.number,), lambda: tables.run_rows(runs)), look.began_at


def _of_drills(board: Board, name: str) -> tuple[list[Row], datetime]:
    del name
    return board.sources.drills(), now()


_Source = Callable[[Board, str], tuple[list[Row], datetime]]
TABLES: dict[str, tuple[Table, _Source]] = {
    "topics": (tables.TOPICS, _of_status(lambda statuses, _: tables.topic_rows(statuses))),
    "partitions": (tables.PARTITIONS, _of_status(lambda statuses, _: tables.partition_rows(statuses))),
    "groups": (tables.GROUPS, _of_status(tables.group_rows)),
    "positions": (tables.POSITIONS, _of_status(tables.position_rows)),
    "workers": (tables.WORKERS, _of_status(lambda statuses, _: tables.worker_rows(statuses))),
    "plan": (tables.PLAN, _of_plan(tables.plan_rows)),
    "planned": (tables.PLANNED, _of_plan(tables.planned_rows)),
    "runs": (tables.RUNS, _of_earlier),
    "drills": (tables.DRILLS, _of_drills),
}
"""The tables by the names in their addresses."""


def _conditions(statuses: Sequence[LinkStatus]) -> dict[str, tuple[str, bool, bool]]:
    return {str(each.link.id): (each.state, each.source_reachable, each.target_reachable) for each in statuses}


def _difference(link: str, then: tuple[str, bool, bool], today: tuple[str, bool, bool]) -> str:
    """What changed on a link, in words that follow its name."""
    source, target = LinkId.parse(link).source, LinkId.parse(link).target
    for alias, before, after in ((target, then[2], today[2]), (source, then[1], today[1])):
        if before != after:
            return f"has {alias} {'back' if after else 'without an answer'}"
    return f"went from {then[0]} to {today[0]}"


def _stale(look: PollResult[Any]) -> DrkitError:
    return DrkitError(
        f"the last poll was {look.age():,.0f} s ago, and no newer one ended",
        meaning="Its result may be outdated, so it isn't shown",
        remedy="A cluster or the store may hang: `drkit doctor` asks each within a timeout",
    )


def _why_nothing(look: PollResult[Any] | None) -> str:
    if look is None:
        return "still being read"
    return "not known" if look.error is None else f"not known for {look.age():,.0f} s: {look.error.what}"


def _no_duration(look: PollResult[EarlierRuns] | None, to: str) -> str:
    if look is None:
        return "earlier runs are still being read"
    if look.value is None:
        return "earlier runs can't be read" if look.error is None else look.error.what
    return f"no failover to {to} and no drill has been timed"


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "place": formatting.place(problem),
        "reason": problem.reason,
        "remedy": problem.remedy,
        "halted": problem.halted,
        "since": iso(problem.since),
    }


def _drill(drill: LastDrill, at: datetime) -> dict[str, Any]:
    return {
        "run": drill.run,
        "title": drill.title,
        "verdict": drill.verdict,
        "age_seconds": None if drill.started_at is None else rounded_age(drill.started_at, at),
        "rpo_records": drill.rpo_records,
        "rto_seconds": drill.rto_seconds,
        "reason": drill.reason,
    }


def _audit(audit: AuditOfLink, at: datetime) -> dict[str, Any]:
    return {
        "run": audit.run,
        "link": audit.link,
        "verdict": audit.verdict,
        "age_seconds": rounded_age(audit.began, at),
        "totals": audit.totals,
        "detail": audit.detail,
    }
