"""The page of `drkit serve` gets its data from here: by the calls of `status`, `failover --dry-run`, `runs`, `drill`.

"May I fail over now?" is answered by `drkit failover --to C --dry-run`: its plan, and its obstacles.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Never

from drkit.cli.wiring.readiness import ONLY_UNFENCED, UNFINISHED, DryRun, dry_run, recovery_checks
from drkit.config import Config, load_config
from drkit.drill.judge.result import DrillSummary
from drkit.drill.results.archive import Drills, default_drills
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.journal.journal import StageRecord
from drkit.failover.journal.run_record import KINDS, load_run
from drkit.failover.journal.site_record import SITE, load_site
from drkit.failover.recovery.component_conditions import unfinished_runs
from drkit.failover.run.run_document import evidence_document
from drkit.failover.run.runner import RunResult
from drkit.failover.site.site_result import result_of
from drkit.model.clock import iso, now
from drkit.model.errors import ConfigError, DrkitError, Refused
from drkit.model.link_state import Direction
from drkit.model.runs import RunSummary, serve_again, verify_chain
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more
from drkit.observe.audit_history import AUDIT, audits_of_run, last_audits
from drkit.observe.drill_history import known_drills
from drkit.observe.page.board import EarlierRuns, LastDrill, Sources
from drkit.observe.page.decision import Answer, Decision, Duration, Obstruction, PlannedRow
from drkit.observe.page.tables import Row
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.status import link_statuses
from drkit.state_topic.store_age import ComparedStores
from drkit.store.api import Store

if TYPE_CHECKING:
    from drkit.failover.plan.failover_plan import FailoverPlan

_SHOWN_ENTRIES, _SHOWN_WITNESSES = 200, 5
_TRIED = 5
"""How many closed failovers are read, newest first, for one that was timed."""


def page_sources(config: Config, store: Store, links: Sequence[Link], timeout_seconds: float | None) -> Sources:
    """What the page of these links is made from; `timeout_seconds` as `--timeout` gives it."""
    targets, all_of_them = _targets(links), len(links) == len(config.links)
    runs, drills = _Runs(store), _KeptDrills(Drills(default_drills()))

    def decisions() -> list[Decision]:
        _refuse_changed(config)
        return [
            replace(_decide(config, store, to, () if all_of_them else names), named=not all_of_them)
            for to, names in targets.items()
        ]

    def earlier() -> EarlierRuns:
        listed = tuple(store.runs())
        newest = drills.newest()
        return EarlierRuns(
            runs=listed,
            audits=tuple(last_audits(store, [str(link.id) for link in links])),
            durations={to: took for to in targets if (took := runs.duration(listed, to, newest)) is not None},
            drill=newest,
            no_drill=f"no drill is kept on this machine ({drills.kept.path})",
            rehearsed=tuple(known_drills(config, store)),
        )

    compared = ComparedStores()
    return Sources(
        statuses=lambda: link_statuses(config, store, links, timeout_seconds=timeout_seconds, compared=compared),
        decisions=decisions,
        earlier=earlier,
        run=runs.document,
        drills=drills.rows,
        drill=drills.report,
        targets={to: tuple(names) for to, names in targets.items()},
        named=not all_of_them,
    )


def sources_without_store(config: Config, links: Sequence[Link], why: Callable[[], DrkitError]) -> Sources:
    """The same while the store is away: the drills of this machine; of all else nothing is known, and `why`."""

    def nothing(*_: object) -> Never:
        raise why()

    drills = _KeptDrills(Drills(default_drills()))
    return Sources(
        statuses=nothing,
        decisions=nothing,
        earlier=nothing,
        run=nothing,
        drills=drills.rows,
        drill=drills.report,
        targets={to: tuple(names) for to, names in _targets(links).items()},
        named=len(links) != len(config.links),
    )


def _targets(links: Sequence[Link]) -> dict[str, list[str]]:
    """The clusters that these links lead to, and the links' names."""
    found: dict[str, list[str]] = {}
    for link in links:
        found.setdefault(link.id.target, []).append(str(link.id))
    return found


def _refuse_changed(config: Config) -> None:
    """A command reads the configuration again, and may decide otherwise than a server that began with another one.

    Raises:
        ConfigError: it was changed since, or can't be read any more.
    """
    if config.file is not None and load_config(config.file).model_dump() != config.model_dump():
        raise ConfigError(
            f"{config.file}, or the environment, was changed since `drkit serve` began",
            meaning="A failover uses the current configuration",
            remedy="Send `drkit serve` a SIGHUP, or restart it: its log names what only a restart can change",
        )


def _decide(config: Config, store: Store, to: str, patterns: Sequence[str]) -> Decision:
    """The plan that `drkit failover --to C --dry-run` shows; `patterns` as `--link` gives them."""
    made_at = now()
    try:
        with ClusterContext(config, store) as estate:
            made = dry_run(estate, to, patterns)
            return _moved(estate, to, made) or _decision(to, made)
    except DrkitError as error:  # refused: as the command ends with 3; anything else: it can't be told
        answer = Answer.NO if isinstance(error, Refused) else Answer.UNKNOWN
        found = Obstruction(None, error.what, error.meaning, error.remedy)
        names = tuple(f"{link.source}->{to}" for link in config.links if link.target == to)
        return Decision(to, names, answer, (found,), made_at, loss_reason="nothing could be planned")


def _decision(to: str, found: DryRun) -> Decision:
    loss = found.loss
    gravest_first = sorted(found.in_the_way, key=lambda each: each[1].waived_by in ONLY_UNFENCED)
    return Decision(
        to=to,
        links=tuple(str(plan.link) for plan in found.plans),
        answer=Answer.NO if found.refused else Answer.UNFENCED if found.in_the_way else Answer.YES,
        obstructions=tuple(
            Obstruction(None if link is None else str(link), each.what, each.meaning, each.remedy, each.waived_by)
            for link, each in gravest_first
        ),
        made_at=min((plan.made_at for plan in found.plans), default=now()),
        records=loss.rpo_records,
        seconds=loss.rpo_seconds,
        lower_bound=loss.rpo_lower_bound,
        loss_reason=loss.rpo_reason,
        digest=found.digest,
        warnings=found.warnings,
        stages=tuple(_stages_of(found.plans)),
        positions=tuple(_rows_of(found.plans)),
        upper_bound=loss.rpo_upper_bound,
    )


def _moved(estate: ClusterContext, to: str, found: DryRun) -> Decision | None:
    """What is true once all links were failed over, and which command is next; None: one of them was not."""
    if any(Direction(plan.control).serves_source for plan in found.plans):
        return None
    links = [estate.link(plan.link) for plan in found.plans]
    troubles = [
        (link.id, check)
        for link in links
        for check in recovery_checks(estate, link, unfinished_runs(estate, link))
        if check.outcome is not CheckOutcome.OK
    ]
    by_link = dict(reversed(found.in_the_way))  # the first says that it was failed over
    standing = [Obstruction(str(link), check.reason, "", check.remedy) for link, check in troubles]
    standing += [
        Obstruction(None if link is None else str(link), each.what, each.meaning, each.remedy)
        for link, each in by_link.items()
    ]
    decided = _decision(to, found)
    turned = {each.run for each in estate.store.runs() if (each.kind, each.state) == (Kind.REPROTECT, State.CLOSED)}
    moved = [
        MovedLink(link, silent=not plan.source.reachable, for_good=_run_of(estate, link) in turned)
        for link, plan in zip(links, found.plans, strict=True)
    ]
    says = _next(to, troubles, moved, estate.config)
    return replace(decided, answer=Answer.MOVED, obstructions=tuple(standing), moved=says)


def _run_of(estate: ClusterContext, link: Link) -> str | None:
    """The run that decided last on a link's direction."""
    control = estate.store.link_control(link.id)
    return None if control is None else control.run


def _next(to: str, troubles: Sequence[tuple[LinkId, Check]], moved: Sequence[MovedLink], config: Config) -> str:
    if troubles:
        link, first = troubles[0]
        begin = (
            f"A run of {link} isn't over. If nobody is on it"
            if first.name == UNFINISHED
            else "Failed over already. Next"
        )
        return f"{begin}: {first.remedy}"
    return f"Failed over already: {to} serves. {way_back(moved, config)}"


@dataclass(frozen=True, slots=True)
class MovedLink:
    """A link that was failed over. `silent`: its source doesn't answer; `for_good`: a reprotect made its target the
    primary."""

    link: Link
    silent: bool = False
    for_good: bool = False


def way_back(moved: Sequence[MovedLink], config: Config) -> str:
    """How the sources of these links serve again: a sentence, by link where the ways differ."""
    plain = [each for each in moved if not each.for_good and not each.link.alters]
    ways: list[tuple[list[MovedLink], str]] = [(plain, _failback([each.link for each in plain], config))]
    ways += [([each], serve_again(each.link)) for each in moved if each.link.alters and not each.for_good]
    ways = [(links, _once_it_answers(links, way)) for links, way in ways if links]
    ways += [([each], _turned(each.link)) for each in moved if each.for_good]
    if len(ways) == 1:
        return ways[0][1]
    return "; ".join(f"{and_more([str(each.link.id) for each in links])}: {way}" for links, way in ways)


def _once_it_answers(moved: Sequence[MovedLink], way: str) -> str:
    silent = list(dict.fromkeys(each.link.id.source for each in moved if each.silent))
    when = f"Once {and_more(silent)} {'answers' if len(silent) == 1 else 'answer'}" if silent else "To go back"
    return f"{when}: {way}"


def _turned(link: Link) -> str:
    source, target = link.id.source, link.id.target
    return (
        f"{target} was made the primary for good: to mirror from it, and fail over to {source}, give the link "
        f'source = "{target}" and target = "{source}" in the configuration'
    )


def _failback(links: Sequence[Link], config: Config) -> str:
    """The command that brings back these links, and no other."""
    chosen = {link.id for link in links}
    sources = {link.id.source for link in links}
    configured = [each.link().id for each in config.links]
    if len(sources) == 1 and chosen == {each for each in configured if each.source in sources}:
        words = ["--to", *sources]
    elif chosen == set(configured):
        words = []
    else:
        words = [word for link in links for word in ("--link", str(link.id))]
    return f"`{shlex.join(['drkit', 'failback', *words])}`"


def _stages_of(plans: Sequence[FailoverPlan]) -> Iterator[tuple[str, str]]:
    for plan in plans:
        for stage in plan.stages:
            yield stage.name, stage.explanation if len(plans) == 1 else f"{plan.link}: {stage.explanation}"


def _rows_of(plans: Iterable[FailoverPlan]) -> Iterator[PlannedRow]:
    for plan in plans:
        link = str(plan.link)
        for each in plan.positions:
            yield PlannedRow(
                link=link,
                group=each.group,
                topic=each.topic,
                partition=each.partition,
                target_topic=each.target_topic,
                source_offset=each.source_offset,
                target_offset=each.target_offset,
                strategy=None if each.strategy is None else each.strategy.value,
                translation=each.translation.value,
                reread=each.reread,
                reread_at_most=each.reread_bound,
                skipped=each.skipped,
                lost=each.lost,
                reason=each.reason,
            )


@dataclass(slots=True)
class _Runs:
    """Runs of the store's journal. A closed failover's time is read once: its journal holds its whole plan."""

    store: Store
    timed: dict[tuple[str, datetime], tuple[str, float] | None] = field(default_factory=dict)

    def duration(self, listed: Sequence[RunSummary], to: str, drill: LastDrill | None) -> Duration | None:
        """What the last timed failover to a cluster took, else the last drill; None: neither was timed."""
        closed = [
            each
            for each in listed
            if each.kind in {Kind.FAILOVER.value, SITE}
            and each.state == State.CLOSED.value
            and each.detail.endswith(f" to {to}")
        ]
        for summary in closed[:_TRIED]:
            found = self._timed(summary)
            if found is not None and found[0] == to:
                return Duration(found[1], "the last failover", summary.run, summary.updated_at)
        if drill is not None and drill.rto_seconds is not None:
            return Duration(drill.rto_seconds, "the last drill, on its own clusters", drill.run, drill.started_at)
        return None

    def document(self, run: str) -> dict[str, Any] | None:
        """One run: what happened to each stage, evidence, the newest entries of its journal; None: there is none."""
        summary = next((each for each in self.store.runs() if each.run == run), None)
        entries = self.store.entries(run)
        if summary is None and not entries:
            return None
        broken = verify_chain(entries)
        document: dict[str, Any] = {
            "run": run,
            "kind": None if summary is None else summary.kind,
            "state": None if summary is None else summary.state,
            "started_at": None if summary is None else iso(summary.started_at),
            "updated_at": None if summary is None else iso(summary.updated_at),
            "detail": None if summary is None else summary.detail,
            "chain": "it holds by itself" if broken is None else str(broken),
            "intact": broken is None,
            "entries": len(entries),
            "newest_entries": [
                {"seq": each.seq, "at": iso(each.at), "stage": each.stage, "event": each.event}
                for each in entries[-_SHOWN_ENTRIES:]
            ],
            "stages": [],
            "evidence": None,
            "audits": [],
            "unreadable": None,
        }
        try:
            document |= self._result(summary) if summary is not None else {}
        except DrkitError as error:
            document["unreadable"] = error.what
        except (ValueError, KeyError, TypeError) as error:  # written by another version, or damaged
            document["unreadable"] = f"its entries can't be read: {error}"
        return document

    def _result(self, summary: RunSummary) -> dict[str, Any]:
        if summary.kind == AUDIT:
            found = audits_of_run(self.store, summary)
            return {
                "audits": [
                    {"link": each.link, "verdict": each.verdict, "totals": each.totals, "detail": each.detail}
                    for each in found
                ]
            }
        if summary.kind == SITE:
            result = result_of(load_site(self.store, summary.run))
            stages = [
                _stage(record, str(each.link))
                for each in result.links
                if each.result is not None
                for record in each.result.stages
            ]
            return {"stages": stages, "evidence": evidence_document(result.evidence)}
        if summary.kind not in KINDS:
            return {}
        one = RunResult.of(load_run(self.store, summary.run))
        return {"stages": [_stage(each, None) for each in one.stages], "evidence": evidence_document(one.evidence)}

    def _timed(self, summary: RunSummary) -> tuple[str, float] | None:
        """The cluster that a run led to and what it took; None: that isn't known."""
        key = (summary.run, summary.updated_at)
        if key not in self.timed:
            try:
                self.timed[key] = self._read_time(summary)
            except DrkitError:
                return None
            except (ValueError, KeyError, TypeError):  # written by another version, or damaged
                self.timed[key] = None
        return self.timed[key]

    def _read_time(self, summary: RunSummary) -> tuple[str, float] | None:
        if summary.kind == SITE:
            site = load_site(self.store, summary.run)
            to, kind, seconds = site.plan.anchor, site.plan.kind, result_of(site).evidence.rto_seconds
        else:
            record = load_run(self.store, summary.run)
            to, kind, seconds = record.plan.target.alias, record.plan.kind, RunResult.of(record).evidence.rto_seconds
        return None if seconds is None or kind is not Kind.FAILOVER else (to, seconds)


def _stage(record: StageRecord, link: str | None) -> dict[str, Any]:
    return {
        "link": link,
        "name": record.name,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "seconds": round(record.seconds, 3),
    }


@dataclass(slots=True)
class _KeptDrills:
    """The drills that this machine keeps. A result is written once, so it is read once."""

    kept: Drills
    known: dict[str, DrillSummary] = field(default_factory=dict)

    def newest(self) -> LastDrill | None:
        """The newest one in short; None: there is none."""
        runs = self.kept.runs()
        if not runs:
            return None
        found = self._summary(runs[0])
        return LastDrill(
            run=found.run,
            title=found.title,
            verdict=found.verdict,
            started_at=found.started_at,
            rpo_records=found.rpo_records,
            rto_seconds=found.rto_seconds,
            reason=found.reason,
        )

    def rows(self) -> list[Row]:
        """All of them in short, newest first."""
        return [self._summary(run).model_dump(mode="json", exclude={"folder"}) for run in self.kept.runs()]

    def report(self, run: str) -> dict[str, Any] | None:
        """One drill's report; None: there is none of this name."""
        if run not in self.kept.runs():
            return None
        document = self.kept.result(run).model_dump(mode="json", exclude={"failover", "failback"})
        for check in document["checks"]:
            check["more_witnesses"] = max(0, len(check["witnesses"]) - _SHOWN_WITNESSES)
            del check["witnesses"][_SHOWN_WITNESSES:]
        return document

    def _summary(self, run: str) -> DrillSummary:
        found = self.known.get(run)
        if found is None:
            found = self.kept.summary(run)
            if found.verdict is not None:
                self.known[run] = found
        return found
