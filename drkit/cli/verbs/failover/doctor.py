"""`drkit doctor`: would a failover now succeed, and at what loss?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from drkit.cli.wiring.context import (
    Invocation,
    LinksOption,
    TimeoutOption,
    aliases,
    verb,
)
from drkit.model.clock import now
from drkit.model.errors import ConfigError, DrkitError, ExitCode, NotShown, Refused
from drkit.model.topology import Link, LinkId
from drkit.model.wording import counted
from drkit.observe.readiness.check import Check, CheckOutcome, worst_outcome

if TYPE_CHECKING:
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.plan.failover_plan import DirectoryView, FailoverPlan, Obstacle
    from drkit.observe.readiness.readiness import Readiness
    from drkit.store.api import Store


_FAILOVER = "failover"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("doctor")(doctor)


@verb()
def doctor(
    run: Invocation,
    to: Annotated[
        str | None,
        typer.Option("--to", help="The cluster that a failover would go to.", metavar="C", autocompletion=aliases),
    ] = None,
    link: LinksOption = None,
    timeout: TimeoutOption = None,
) -> None:
    """Check whether a failover now would succeed, and at what loss.

    Exits as `drkit failover --dry-run` would now: 0 where it is accepted (warnings name their cost), 3 where it is
    refused, where the cluster that clients use is dead or fenced, or where the store lost rows; 8 where that is
    unknown.
    """
    links = _links_to(run, to, run.links_like(link))
    asked = {alias for each in links for alias in (each.id.source, each.id.target)}
    # a dead cluster is waited for from here on: what is read and loaded now costs no time
    begun = run.connecting(asked, timeout)
    from drkit.failover.context.cluster_context import ClusterContext

    store = run.store()
    # one set of connections for all questions: what is gone is waited for once
    with ClusterContext(run.config, store, timeout_seconds=begun.timeout_seconds, known=begun) as estate:
        estate.adopt(begun, asked)
        from drkit.cli.wiring.readiness import recovery_checks
        from drkit.failover.recovery.component_conditions import unfinished_runs
        from drkit.observe.drill_history import known_drills
        from drkit.observe.readiness.readiness import drills_check, readiness

        unfinished = {each.id: unfinished_runs(estate, each) for each in links}
        planned = planned_failovers(estate, links)
        found = [readiness(run.config, store, each, estate) for each in links]
        found = [
            replace(each, checks=(*each.checks, *recovery_checks(estate, each.link, unfinished[each.link.id])))
            for each in found
        ]
        found = [replace(each, checks=checks_with_plan(each.checks, planned[each.link.id])) for each in found]
        clock = clock_check(store)
        if clock is not None:
            found = [replace(each, checks=(*each.checks, clock)) for each in found]
        drills = drills_check(known_drills(run.config, store), run.config.drills.every_days, now())
        if drills is not None:
            found = [replace(each, checks=(*each.checks, drills)) for each in found]
    run.writer.emit(_document(found), lambda console: _print(console, found))
    if any(check.outcome is CheckOutcome.FAIL for each in found for check in each.checks):  # the planned ones, too
        run.exit(ExitCode.REFUSED)
    if any(check.outcome is CheckOutcome.UNKNOWN for each in planned.values() for check in each.checks):
        run.exit(ExitCode.UNKNOWN)


def clock_check(store: Store) -> Check | None:
    """Whether this machine's clock is that of the store, as a run asks before it begins; None: it is."""
    from drkit.failover.context.lease import clock_error

    error = clock_error(store)
    if error is None:
        return None
    return Check("clock", CheckOutcome.WARN, f"a run from here would be refused: {error.what}", error.remedy)


@dataclass(frozen=True, slots=True)
class Planned:
    """What `drkit failover --to C --dry-run` says of a link, whether it would move the link's clients, and whether it
    would leave the link out, as it was failed over already."""

    checks: tuple[Check, ...]
    moves: bool
    left_out: bool = False


def planned_failovers(estate: ClusterContext, links: Sequence[Link]) -> dict[LinkId, Planned]:
    """What a dry run says of each link; all links into a cluster are planned as one run."""
    found: dict[LinkId, Planned] = {}
    for target in dict.fromkeys(link.id.target for link in links):
        asked = [link.id for link in links if link.id.target == target]
        leading = [each.link().id for each in estate.config.links if each.target == target]
        found |= _planned(estate, target, asked, () if asked == leading else [str(each) for each in asked])
    return found


def _planned(
    estate: ClusterContext, target: str, links: Sequence[LinkId], patterns: Sequence[str]
) -> dict[LinkId, Planned]:
    from drkit.cli.wiring.readiness import ONLY_UNFENCED, dry_run

    try:
        plan = dry_run(estate, target, patterns)
    except DrkitError as error:
        refused = isinstance(error, Refused | NotShown)
        outcome = CheckOutcome.FAIL if refused else CheckOutcome.UNKNOWN
        why = f"it would be refused: {error.what}" if refused else f"it can't be planned: {error.what}"
        return dict.fromkeys(links, Planned((Check(_FAILOVER, outcome, why, error.remedy or ""),), moves=False))
    found = {}
    for link in links:
        one = next((each for each in plan.plans if each.link == link), None)
        mine = [each for of, each in plan.in_the_way if of in {None, link}]
        checks = [
            Check(_FAILOVER, CheckOutcome.FAIL, f"it would be refused: {each.what}", each.remedy)
            for each in mine
            if each.waived_by not in ONLY_UNFENCED
        ]
        control = estate.store.link_control(link)
        if control is not None and not control.direction.serves_source:
            checks = checks[:1]  # that it was failed over; the others would be about moving its groups once more
        if not checks:
            checks = [_plan_check(one, link, [each for each in mine if each.waived_by in ONLY_UNFENCED])]
        checks += directory_checks(one.directories) if one is not None else []
        found[link] = Planned(tuple(checks), moves=one is not None, left_out=one is None and not mine)
    return found


def directory_checks(views: Sequence[DirectoryView]) -> list[Check]:
    """Whether each directory answers that a failover would tell clients by."""
    return [
        Check("directory", CheckOutcome.OK, f"{each.name} answers, and says {each.active or 'nothing yet'}")
        if each.reason is None
        else Check(
            "directory",
            CheckOutcome.WARN,
            f"{each.name} can't be read: {each.reason}",
            "Without it a failover stops at its switch, and can be resumed: drkit config check --connect asks it again",
        )
        for each in views
    ]


def _plan_check(one: FailoverPlan | None, link: LinkId, unfenced: Sequence[Obstacle]) -> Check:
    if one is None:
        return Check(_FAILOVER, CheckOutcome.OK, f"{link} would be left out: it was failed over already")
    moved = counted(len({each.group for each in one.placed}), "group")
    if unfenced:
        why = f"it would be accepted only with {unfenced[0].waived_by}: {unfenced[0].what}"
        return Check(_FAILOVER, CheckOutcome.WARN, why, unfenced[0].remedy)
    return Check(_FAILOVER, CheckOutcome.OK, f"it would be accepted, and move {moved}")


def checks_with_plan(checks: Sequence[Check], planned: Planned) -> tuple[Check, ...]:
    """The checks, begun by what a failover would come to.

    Where it is accepted and would move the clients, what it weighs itself doesn't fail: it is told as a warning. Nor
    does a link that it would leave out, beside others, fail for having been failed over. All
    else that fails does so: a fence that locks clients out, a store that lost rows, a serving cluster that is dead.
    """
    from drkit.observe.poll_problems import FENCED
    from drkit.observe.readiness.readiness import MIRROR
    from drkit.observe.readiness.store_safety import STORE_COPY

    beside = {f"problem: {FENCED}", STORE_COPY}
    if planned.left_out:
        checks = [replace(each, outcome=CheckOutcome.OK) if each.name == MIRROR else each for each in checks]
    if planned.moves and worst_outcome(planned.checks) not in {CheckOutcome.FAIL, CheckOutcome.UNKNOWN}:
        checks = [
            replace(each, outcome=CheckOutcome.WARN)
            if each.outcome is CheckOutcome.FAIL and each.name not in beside
            else each
            for each in checks
        ]
    return (*planned.checks, *checks)


def _links_to(run: Invocation, to: str | None, links: list[Link]) -> list[Link]:
    if to is None:
        return links
    run.check_cluster(to, "--to")
    found = [each for each in links if each.id.target == to]
    if not found:
        raise ConfigError(f"--to: no link leads to {to}", remedy=f"Known links: {', '.join(str(x.id) for x in links)}")
    return found


def _document(found: list[Readiness]) -> dict[str, Any]:
    return {
        "links": [
            {
                "source": each.link.id.source,
                "target": each.link.id.target,
                "outcome": each.outcome.value,
                "clusters": [
                    {
                        "cluster": one.alias,
                        "cluster_id": one.cluster_id,
                        "principal": one.principal,
                        "reason": one.reason,
                    }
                    for one in each.clusters
                ],
                "expected_loss": {"records": each.expected_loss_records, "seconds": each.expected_loss_seconds},
                "checks": [
                    {
                        "check": check.name,
                        "outcome": check.outcome.value,
                        "reason": check.reason,
                        "remedy": check.remedy or None,
                    }
                    for check in each.checks
                ],
            }
            for each in found
        ]
    }


def _print(console: Console, found: list[Readiness]) -> None:
    from drkit.cli.views.checks_view import check_mark, counted_marks, print_checks

    for each in found:
        head = (str(each.link.id), "bold"), "  ", check_mark(each.outcome), "  ", counted_marks(each.checks)
        console.print(Text.assemble(*head))
        print_checks(console, [("", check) for check in each.checks])
