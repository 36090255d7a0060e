"""`drkit runs`: the journal of what ran, its hash chain verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.text import Text

from drkit.cli.views.audit_view import emit_trend
from drkit.cli.views.failover_view import print_result
from drkit.cli.views.layout import Hanging
from drkit.cli.views.site_view import print_site_result
from drkit.cli.wiring.audit_journal import entry_summary
from drkit.cli.wiring.context import Invocation, verb
from drkit.failover.context.state_machine import FINAL_STATES, State
from drkit.model.clock import iso
from drkit.model.errors import ConfigError, DrkitError, ExitCode, Refused
from drkit.model.runs import (
    AnchorPlace,
    ChainState,
    ChainVerdict,
    JournalEntry,
    RunSummary,
    judge_chain,
    missing_runs,
    run_to_resume,
    verify_chain,
)
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.failover.context.evidence import Judgement
    from drkit.failover.journal.run_record import RunRecord
    from drkit.failover.recovery.component_conditions import Advice
    from drkit.store.api import Store

_ROOM_FOR_WORDS = 40
_ROOM_FOR_YEARS = 70
_STAGES = 21
"""How wide outcomes and names of stages are."""
_SHOWN_MISSING = 3


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("runs")(runs)


@verb()
def runs(
    run: Invocation,
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Show this run's journal.")] = None,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="First count what this failover lost, on the old primary that is back."),
    ] = False,
    trend: Annotated[
        bool, typer.Option("--trend", help="Results of earlier audits, oldest first, like `drkit audit history`.")
    ] = False,
) -> None:
    """List runs, or show one: each stage, its evidence, whether its hash chain holds."""
    from drkit.failover.context.evidence import Judgement
    from drkit.failover.journal.run_record import KINDS
    from drkit.failover.journal.site_record import SITE
    from drkit.failover.run.run_document import journal_document, runs_document
    from drkit.failover.run.runner import RunResult
    from drkit.store.open import store_identity

    store = run.store()
    if trend:
        _trend(run, store, alone=run_id is None and not audit)
        return
    if audit:
        _audit(run, run_id)
    places = _anchors(run)  # first: what others write meanwhile would seem to be missing
    listed = store.runs()
    recovered = _recovered_links(run, store)
    if run_id is None:
        missing = missing_runs([each.run for each in listed], places, store_identity(run.config.store.plain_url))
        run.writer.emit(
            {**runs_document(listed, missing, places), "store_recovered": recovered},
            lambda console: _print_list(console, listed, missing, recovered),
        )
        return
    entries = store.entries(run_id)
    summary = next((found for found in listed if found.run == run_id), None)
    anchored = any(anchor.run == run_id for place in places for anchor in place.anchors or ())
    if not entries and summary is None and not anchored:
        raise Refused(f"there is no run {run_id}", remedy="`drkit runs` lists them")
    record: RunRecord | None = None
    whole = verify_chain(entries) is None
    verdict = judge_chain(run_id, entries, places)
    if summary is not None and summary.kind == SITE:
        _show_site(run, summary, entries, verdict, places, recovered, verbose=run.verbose)
        return
    if not verdict.contradicted and entries and (summary is None or summary.kind in KINDS):
        record = _record(run, run_id)
        if record is not None:
            verdict = judge_chain(run_id, entries, places, record.plan.target.alias)
    advice = None if record is None else _advice(run, record)
    judgement = Judgement() if record is None else RunResult.of(record).judged(run.config.objectives)
    damaged = not whole and summary is not None and summary.kind in KINDS
    document = journal_document(run_id, summary, entries, verdict, places, record, judgement)
    run.writer.emit(
        {**document, "way_out": _way_document(advice), "store_recovered": recovered},
        lambda console: _print_run(
            console, run_id, summary, entries, verdict, record, judgement, advice, verbose=run.verbose
        ),
    )
    if damaged and summary is not None and summary.state not in FINAL_STATES:
        run.writer.log.print(f"[bold]→[/] drkit abandon {run_id} ends it by the link, the fence and the clusters")
    if verdict.contradicted:
        _exit_broken(run, recovered)


def _record(run: Invocation, run_id: str) -> RunRecord | None:
    """The run as its journal tells it; None: its entries tell it all."""
    from drkit.failover.journal.run_record import load_run

    try:
        return load_run(run.store(), run_id)
    except DrkitError as error:  # another kind of run, or one cut short before its plan: its entries say it
        run.writer.log.print(f"[dim]{escape(error.what)}[/]")
    except (ValueError, KeyError, TypeError) as error:  # written again by somebody who doesn't know its shape
        run.writer.log.print(f"[dim]its entries can't be read: {escape(str(error))}[/]")
    return None


def _show_site(
    run: Invocation,
    summary: RunSummary,
    entries: list[JournalEntry],
    verdict: ChainVerdict,
    places: list[AnchorPlace],
    recovered: Mapping[str, str],
    *,
    verbose: bool,
) -> None:
    """A site run: its own journal, and where the run of each link stands."""
    from drkit.failover.context.evidence import Judgement
    from drkit.failover.journal.site_record import load_site
    from drkit.failover.run.run_document import journal_document
    from drkit.failover.site.site_document import site_run_document
    from drkit.failover.site.site_result import result_of

    result, judgement = None, Judgement()
    if not verdict.contradicted:
        try:
            record = load_site(run.store(), summary.run)
            verdict = judge_chain(summary.run, entries, places, record.plan.anchor)
            result = result_of(record)
            judgement = result.judged(run.config.objectives)
            for error in record.damaged.values():
                run.writer.log.print(f"[dim]{escape(str(error))}[/]")
        except DrkitError as error:
            run.writer.log.print(f"[dim]{escape(error.what)}[/]")
    document = journal_document(summary.run, summary, entries, verdict, places, None)
    if result is not None:
        document |= {"state": result.state.value, "result": site_run_document(result, judgement)}

    def show(console: Console) -> None:
        _print_run(console, summary.run, summary, entries, verdict, None, judgement, None, verbose=verbose)
        if result is not None:
            print_site_result(console, result, judgement)

    run.writer.emit({**document, "way_out": None, "store_recovered": dict(recovered)}, show)
    if summary.state not in FINAL_STATES:
        run.writer.log.print(f"[bold]→[/] drkit resume {summary.run}; or drkit abandon {summary.run} gives it up")
    if verdict.contradicted:
        _exit_broken(run, recovered)


def _anchors(run: Invocation) -> list[AnchorPlace]:
    """What is anchored in the file and on every cluster that answers at once."""
    from drkit.failover.context.anchors import read_anchors
    from drkit.kafka.admin.clusters import Clusters

    aliases = list(dict.fromkeys(alias for link in run.config.links for alias in (link.source, link.target)))
    with Clusters(run.config.clusters) as clusters:
        return read_anchors(clusters, aliases)


def _recovered_links(run: Invocation, store: Store) -> dict[str, str]:
    """By link, when this store was filled by `drkit store recover`: the journals of runs before that are in no copy."""
    from drkit.state_topic.guard import RECOVERY, STATE, begun

    links = [configured.link() for configured in run.config.links]
    found = {str(each.id): store.notes(each.id, RECOVERY).get(STATE) for each in links if not begun(store, each)}
    return {link: at for link, at in found.items() if at is not None}


def _exit_broken(run: Invocation, recovered: Mapping[str, str]) -> None:
    if recovered:
        run.writer.log.print(_recovery_note(recovered))
    run.exit(ExitCode.FAILED)


def _recovery_note(recovered: Mapping[str, str]) -> str:
    said = "; ".join(f"{link} at {at}" for link, at in recovered.items())
    return escape(
        f"This store says that it was recovered ({said}). No copy holds journals, so those of earlier runs are missing "
        "from it. Ask the operator who recovered it whether others are missing"
    )


def _trend(run: Invocation, store: Store, *, alone: bool) -> None:
    from drkit.observe.audit_history import past_audits

    if not alone:
        raise ConfigError("--trend concerns all audits", remedy="Leave out the run and --audit, or --trend")
    emit_trend(run, past_audits(store))


def _advice(run: Invocation, record: RunRecord) -> Advice | None:
    """How to recover a run that isn't over."""
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.journal.site_record import site_of
    from drkit.failover.recovery.component_conditions import Unfinished, advise

    left = Unfinished.of(record.journal, record.machine, record.plan)
    if left is None:
        return None
    left = replace(left, site=site_of(run.store(), record))
    with ClusterContext(run.config, run.store()) as estate:
        return advise(estate, estate.link(record.plan.link), left)


def _way_document(advice: Advice | None) -> dict[str, Any] | None:
    if advice is None:
        return None
    way = advice.way
    serves = None if way.serves is None else way.serves.value
    return {"commands": list(way.commands), "serves": serves, "costs": way.costs, "broken": list(advice.broken)}


def _audit(run: Invocation, run_id: str | None) -> None:
    """Complete a failover's evidence; one that is exact stays as it is."""
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.context.lease import RunLease
    from drkit.failover.journal.run_record import load_run
    from drkit.failover.journal.site_record import is_site, load_site
    from drkit.failover.stages.audited_loss import complete_evidence, sealing_failover

    if run_id is None:
        raise ConfigError("--audit needs a run", remedy="drkit runs RUN --audit")
    store = run.store()
    if is_site(store, run_id):
        site = load_site(store, run_id)
        for child in site.children.values():
            _audit(run, child.run)
        for error in site.damaged.values():
            raise error
        return
    record = load_run(store, run_id)
    with ClusterContext(run.config, store) as estate:
        link = estate.link(record.plan.link)
        with RunLease(store, link.id, run_id):
            newest = sealing_failover(estate, link)
            if newest is None or newest.run != run_id:
                raise Refused(
                    f"run {run_id} is not the failover that last moved {link.id}",
                    meaning="The old primary's state has changed since: what that run lost can't be counted any more",
                    remedy="`drkit runs` lists them",
                )
            complete_evidence(estate, link)


def _print_list(
    console: Console,
    listed: Sequence[RunSummary],
    missing: Sequence[str] = (),
    recovered: Mapping[str, str] | None = None,
) -> None:
    if missing and recovered:
        console.print(_recovery_note(recovered), soft_wrap=True)
    for name in missing[-_SHOWN_MISSING:]:
        console.print(
            f"[bold red]✗ run {name} was anchored, but the store has nothing of it:[/] drkit runs {name}",
            soft_wrap=True,
        )
    if len(missing) > _SHOWN_MISSING:
        console.print(f"[bold red]✗ and {len(missing) - _SHOWN_MISSING} older ones:[/] all are in --output json")
    if not listed:
        console.print("[dim]nothing has run yet[/]")
        return
    began = "%Y-%m-%d %H:%M" if console.width >= _ROOM_FOR_YEARS else "%m-%d %H:%M"
    rows = [
        (summary.run, str(summary.kind), str(summary.state), format(summary.started_at, began), summary.detail)
        for summary in listed
    ]
    heads = ("run", "kind", "state", "began (UTC)", "what")
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)][:-1]
    room = console.width - sum(widths) - 2 * len(widths)
    beside = (
        room >= _ROOM_FOR_WORDS
    )  # else on a line of its own: a run's id is there to be copied, its state to be seen
    console.print(Text(_aligned(heads if beside else heads[:-1], widths), "dim"), no_wrap=True)
    for *cells, what in rows:
        state = str(cells[2])
        style = "green" if state in {"closed", "clean"} else "dim" if state == "cancelled" else "yellow"
        line = Text(_aligned(cells, widths))
        line.stylize(style, sum(widths[:2]) + 4, sum(widths[:3]) + 4)
        words = Text(what) if beside else Text(f"  {what}", "dim")
        words.truncate(room if beside else console.width, overflow="ellipsis")
        console.print(Text.assemble(line, "  ", words) if beside else Text.assemble(line, "\n", words), soft_wrap=True)
    _print_open(console, listed)


def _print_open(console: Console, listed: Sequence[RunSummary]) -> None:
    """The runs that aren't over: their state is the last stage that was completed, so the next may be half done."""
    from drkit.failover.journal.run_record import KINDS
    from drkit.failover.journal.site_record import SITE

    left = [each.run for each in listed if each.kind in {*KINDS, SITE} and each.state not in FINAL_STATES]
    states = {each.run: each.state for each in listed}
    for run in dict.fromkeys(run_to_resume(each, listed) for each in left):
        state = "its first stage isn't completed" if states[run] == State.PLANNED else f"it is {states[run]}"
        console.print(
            f"[bold]→[/] {run} isn't over: {state}. If nobody is on it: drkit resume {run}, or drkit runs {run} shows "
            "what was done and other ways",
        )


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells in columns; one more than widths stands as it is."""
    return "  ".join([cell.ljust(width) for cell, width in zip(cells, widths, strict=False)] + [*cells[len(widths) :]])


def _print_run(
    console: Console,
    run_id: str,
    summary: RunSummary | None,
    entries: Sequence[JournalEntry],
    verdict: ChainVerdict,
    record: RunRecord | None,
    judgement: Judgement,
    advice: Advice | None,
    *,
    verbose: bool,
) -> None:
    from drkit.failover.run.runner import RunResult

    console.print(Rule(f"[bold]{run_id}[/]", align="left", style="dim"))
    if summary is not None:
        began = f"{summary.started_at:%Y-%m-%d %H:%M:%S} UTC"
        console.print(f"{summary.kind}, {summary.state}: {summary.detail}; began {began}", markup=False)
    for entry in entries:
        stage = f"{entry.seq:>4}  {(iso(entry.at) or '')[11:23]}  {entry.stage:<10} {entry.event:<10}"
        words = entry.payload if verbose else entry_summary(entry)
        console.print(Text.assemble((stage, "dim"), f" {words}" if words else ""), soft_wrap=True)
    words = f"the hash chain of {counted(len(entries), 'entry', 'entries')}: {verdict.words}"
    if verdict.contradicted:
        console.print(f"[bold red]✗[/] {escape(words)}", soft_wrap=True)
        console.print(
            "  The store's journal of this run differs from what was written. Either the store was restored from an "
            "older copy, or somebody wrote to it",
            soft_wrap=True,
        )
    else:
        mark = "[green]✓[/]" if verdict.state is ChainState.HOLDS else "[yellow]?[/]"
        console.print(f"{mark} {escape(words)}", soft_wrap=True)
    if record is not None:
        for stage_record in record.stages:
            line = f"  {stage_record.outcome:<8}{stage_record.name:<11}{escape(stage_record.reason)}"
            console.print(Hanging.markup(line, _STAGES))
        print_result(console, RunResult.of(record), record.plan, judgement)
    if advice is not None:
        broken = f"{'; '.join(advice.broken)}. " if advice.broken else ""
        console.print(f"[bold]→[/] {escape(f'{broken}{advice.said(str(advice.way))}')}", soft_wrap=True)
