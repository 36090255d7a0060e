"""A site run's journal: its entries, and reading it back.

    seq  stage            event     payload
    0    plan             plan      kind, origin, the id of each link's run, the complete plan
    …    link east->dr    begun     the id of the link's run, if another one than planned was begun
    …    link east->dr    outcome   how the link's run ended, or where it stopped
    …    wave payments    outcome   the wave is over: its groups are on the target, its commands were called
    …    resume           taken     who took the run over
    …    cancel           cancelled why
    …    abandon          abandoned why, and what stays unchanged
    …    close            outcome   all links are closed

Each link's run has its own journal, whose first entry names the site run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from drkit.failover.context.state_machine import FINAL_STATES, Kind, State
from drkit.failover.journal.journal import ABANDONED, CANCELLED, OUTCOME, PLAN, Journal, new_run_id
from drkit.failover.journal.run_record import RunRecord, load_run, unfinished
from drkit.failover.plan.site_failback_plan import site_failback_plan_json, site_failback_plan_of
from drkit.failover.plan.site_plan import AnySitePlan, SitePlan, site_plan_from_json, site_plan_json
from drkit.model.clock import exact_iso, now
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.runs import PART_OF, RunSummary
from drkit.model.topology import LinkId
from drkit.store.api import Store

SITE = "site"
"""The kind of such a run, in the journal and the listing."""
BEGUN = "begun"
CLOSE = "close"
_ORDER = tuple(State)


class JournalDamaged(DrkitError):
    """The journal of a link's run can't be read; the site's other links can continue."""


@dataclass(slots=True)
class SiteRecord:
    """A site run from its journal, and its links' runs from theirs.

    `runs`: the id of each link's newest run; `children`: those that were begun. `damaged`: links whose runs' journals
    can't be read. `elsewhere`: links that another run decided before theirs began, or that were given up although
    damaged, and why they were left alone. `unread`: links with a damaged journal, given up or not: what they lost isn't
    known. `anew`: links that were planned again after their runs rolled themselves
    back. `waves_over`: the names of waves whose groups are all committed. `unfenced`: links that move although the
    clusters that they leave can't be fenced. `accept_salvage_only`: as given to a failback.
    """

    journal: Journal
    plan: AnySitePlan
    started_at: datetime
    unfenced: frozenset[LinkId]
    runs: dict[LinkId, str]
    accept_salvage_only: bool = False
    children: dict[LinkId, RunRecord] = field(default_factory=dict)
    elsewhere: dict[LinkId, str] = field(default_factory=dict)
    anew: set[LinkId] = field(default_factory=set)
    damaged: dict[LinkId, JournalDamaged] = field(default_factory=dict)
    unread: set[LinkId] = field(default_factory=set)
    waves_over: set[str] = field(default_factory=set)
    ended: State | None = None

    @property
    def run(self) -> str:
        """The run's id."""
        return self.journal.run

    @property
    def state(self) -> State:
        """The state of the least advanced link; a link that another run decided doesn't count."""
        if self.ended is not None:
            return self.ended
        states = {link: child.machine.state for link, child in self.children.items()}
        counting = [states.get(link, State.PLANNED) for link in self.plan.links if link not in self.elsewhere]
        return least_far(counting)

    @property
    def given_up(self) -> frozenset[LinkId]:
        """Links whose runs were abandoned: the others continue without them."""
        abandoned = {link for link, child in self.children.items() if child.machine.state is State.ABANDONED}
        return frozenset(abandoned)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.ended is not None

    def plan_again(self, link: LinkId, digest: str) -> None:
        """Journal that a link was planned again, with that digest: it gets a run with a new id."""
        run = new_run_id()
        self.journal.write(f"link {link}", BEGUN, {"link": str(link), "run": run, "digest": digest})
        self.runs[link] = run
        self.anew.add(link)
        self.children.pop(link, None)


def least_far(states: Sequence[State]) -> State:
    """The state of the least advanced link. A link that rolled itself back is at its start; an abandoned one counts
    only if all were abandoned.
    """
    going = [state for state in states if state is not State.ABANDONED]
    if State.CANCELLED in going and set(going) != {State.CANCELLED}:
        return State.PLANNED
    return min(going or states or [State.CLOSED], key=_ORDER.index)


def begin_site(record: SiteRecord, origin: dict[str, Any]) -> None:
    """Write a site run's first entry. `origin`: who runs it, and by whose approval."""
    plan = record.plan
    body = {
        "kind": SITE,
        "of": plan.kind.value,
        "digest": plan.digest,
        "started_at": exact_iso(record.started_at),
        "unfenced": sorted(map(str, record.unfenced)),
        "accept_salvage_only": record.accept_salvage_only,
        "origin": origin,
        "links": [
            {"link": str(each.link), "run": record.runs[each.link], "digest": each.digest} for each in plan.plans
        ],
    }
    frame = json.dumps(body, separators=(",", ":"))
    text = site_plan_json(plan) if isinstance(plan, SitePlan) else site_failback_plan_json(plan)
    record.journal.write(PLAN, PLAN, f'{frame[:-1]},"plan":{text}}}')


def load_site(store: Store, run: str) -> SiteRecord:
    """A site run from its journal, and its links' runs from theirs.

    A link whose run's journal is damaged stops no other one: it is in `damaged`, or, once its run was abandoned, in
    `elsewhere`.

    Raises:
        Refused: there is no such run, or it is not a site run.
        DrkitError: its hash chain is broken.
        Unreachable: the store doesn't answer.
    """
    journal = Journal.open(store, run)
    text = journal.read(PLAN)
    body = json.loads(text) if text is not None else {}
    if not isinstance(body, dict) or body.get("kind") != SITE:
        raise Refused(f"run {run} is not a run of a site", remedy="`drkit runs` lists the runs with their kinds")
    failover = Kind(body["of"]) is Kind.FAILOVER
    record = SiteRecord(
        journal=journal,
        plan=site_plan_from_json(json.dumps(body["plan"])) if failover else site_failback_plan_of(body["plan"]),
        started_at=datetime.fromisoformat(body["started_at"]),
        unfenced=frozenset(LinkId.parse(each) for each in body["unfenced"]),
        runs={LinkId.parse(each["link"]): each["run"] for each in body["links"]},
        accept_salvage_only=bool(body.get("accept_salvage_only")),
    )
    _replay(record)
    for link, child in record.runs.items():
        if store.entries(child):
            try:
                record.children[link] = load_run(store, child)
            except Unreachable:
                raise
            except (DrkitError, ValueError, KeyError, TypeError) as error:
                _without_journal(store, record, link, error)
    return record


def _without_journal(store: Store, record: SiteRecord, link: LinkId, error: Exception) -> None:
    """Note that a link's run can't be read: given up by an operator, or in need of that."""
    run = record.runs[link]
    record.unread.add(link)
    if any(each.run == run and each.state == State.ABANDONED for each in store.runs()):
        record.elsewhere[link] = f"its run {run} was abandoned; the journal is damaged"
        return
    why = error.what if isinstance(error, DrkitError) else f"its journal can't be read: {type(error).__name__}"
    record.damaged[link] = JournalDamaged(
        why,
        meaning=f"How far the run of {link} came isn't known; nothing of {link} is continued",
        remedy=f"drkit abandon {run} ends it by what the clusters say; then drkit resume {record.run} continues the "
        "others without it",
    )


def _replay(record: SiteRecord) -> None:
    """Apply the journal's entries after the plan."""
    for happened in record.journal.events():
        payload = json.loads(happened.payload)
        if happened.event == BEGUN:
            record.runs[LinkId.parse(payload["link"])] = payload["run"]
            record.anew.add(LinkId.parse(payload["link"]))
        elif happened.event == CANCELLED:
            record.ended = State.CANCELLED
        elif happened.event == ABANDONED:
            record.ended = State.ABANDONED
        elif happened.event == OUTCOME and happened.stage == CLOSE:
            record.ended = State.CLOSED
        elif happened.event == OUTCOME and "wave" in payload and payload["outcome"] == "ok":
            record.waves_over.add(payload["wave"])
        elif happened.event == OUTCOME and payload.get("elsewhere"):
            record.elsewhere[LinkId.parse(payload["link"])] = payload["reason"]


def list_site(store: Store, record: SiteRecord, state: State) -> None:
    """Store the run's summary."""
    store.put_run(RunSummary(record.run, SITE, state, record.started_at, now(), record.plan.label))


def unfinished_sites(store: Store) -> list[RunSummary]:
    """Site runs that are not over, newest first."""
    return [each for each in store.runs() if each.kind == SITE and each.state not in FINAL_STATES]


def is_site(store: Store, run: str) -> bool:
    """Whether a run of this id is listed as a site run."""
    return any(each.run == run and each.kind == SITE for each in store.runs())


def site_of(store: Store, record: RunRecord) -> str | None:
    """The site run that continues a link's run; None: resume the link's run by its own id.

    None also if the site run is over, can't be read, or has left the link to another run.

    Raises:
        Unreachable: the store doesn't answer.
    """
    if record.site is None:
        return None
    try:
        site = load_site(store, record.site)
    except Unreachable:
        raise
    except (DrkitError, ValueError, KeyError, TypeError):  # `drkit runs` reports what is wrong with its journal
        return None
    link = record.plan.link
    leads = not site.finished and site.runs.get(link) == record.run and link not in site.elsewhere
    return record.site if leads else None


def refuse_alone(store: Store, record: RunRecord) -> None:
    """Raise `Refused` if a link's run is to be resumed by its own id although its site run can continue it."""
    site = site_of(store, record)
    if site is None or record.machine.finished:
        return
    raise Refused(
        f"run {record.run} is a part of run {site}, that of {record.plan.link}",
        meaning="Resumed alone it would wait for no other link: nothing is deleted before all links are salvaged, and "
        "no clients are switched before all links have committed the groups that they share",
        remedy=f"drkit resume {site} continues all its links; drkit abandon {record.run} gives up this link's part, "
        "and the others continue without it",
    )


def site_to_resume(store: Store, run: str | None) -> str | None:
    """The site run that `drkit resume` should continue; None: a link's run is meant.

    Raises:
        Refused: more than one is unfinished and none was named.
    """
    if run is not None:
        return run if is_site(store, run) else None
    left = unfinished_sites(store)
    if not left:
        return None
    alone = [each for each in unfinished(store) if not any(each.detail.endswith(_of(site.run)) for site in left)]
    if len(left) > 1 or alone:
        named = "; ".join(f"{each.run} ({each.kind} {each.detail}, {each.state})" for each in (*left, *alone))
        raise Refused(f"{len(left) + len(alone)} runs are unfinished: {named}", remedy="Name one: drkit resume RUN")
    return left[0].run


def children_of(store: Store, run: str) -> list[RunSummary]:
    """The unfinished runs of a site run's links, by their summaries."""
    return [each for each in unfinished(store) if each.detail.endswith(_of(run))]


def _of(run: str) -> str:
    """The end of the summary line of a link's run (`label_of`)."""
    return f"{PART_OF}{run}"
