"""A run of a site (failover, failback, reprotect, resume, cancel) that kills itself at one point of a journal.

    python -m tests.support.killing.killed_site CONFIG ACTION WHOSE STAGE EVENT before|after [APPROVAL FILE …]

WHOSE is `site`, or a link's name. The files are those of `drkit evidence approve`. Store and clusters are real. With
the action `hold` it only takes the leases of both links, prints the run's id and waits to be killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from drkit.config import load_config
from drkit.evidence.approvals import read_approvals
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Kind
from drkit.failover.journal.journal import new_run_id
from drkit.failover.journal.site_record import SITE, site_to_resume
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.planning.failover_planner import PlanRequest
from drkit.failover.site.site_failback_run import FailbackMeans, make_site_failback_plan, run_site_failback
from drkit.failover.site.site_planner import make_site_plan
from drkit.failover.site.site_run import cancel_site, resume_site, run_site
from drkit.failover.snapshot.choose_links import links_away, links_into
from drkit.model.clock import now
from drkit.model.runs import JournalEntry
from drkit.state_topic.recorded_store import StateRecording
from drkit.store import open_store
from drkit.store.api import Store
from tests.support.links.estates import OwnLink
from tests.support.recovery.failback_ports import reading_ports


class KillingStore:
    """A store that kills its process before or after one entry of one journal."""

    def __init__(self, store: Store, whose: str, stage: str, event: str, when: str) -> None:
        self._store = store
        self._place = (whose, stage, event)
        self._when = when
        self._owners: dict[str, str] = {}

    def append_entry(self, entry: JournalEntry) -> bool:
        here = self._place == (self._whose(entry), entry.stage, entry.event)
        if here and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        kept = self._store.append_entry(entry)
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return kept

    def _whose(self, entry: JournalEntry) -> str:
        """The link of a run, or `site`."""
        if entry.run not in self._owners:
            first = entry if entry.seq == 0 else self._store.entries(entry.run)[0]
            body = json.loads(first.payload)
            link = body["plan"].get("link", {})
            self._owners[entry.run] = SITE if body["kind"] == SITE else f"{link['source']}->{link['target']}"
        return self._owners[entry.run]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def main(config_path: str, action: str, whose: str, stage: str, event: str, when: str, *approvals: str) -> None:
    """Execute the action until the kill; ends with 0 if that point was never reached."""
    config = load_config(Path(config_path))
    killing = KillingStore(open_store(config.store.plain_url), whose, stage, event, when)
    store = StateRecording(config, cast("Store", killing)).store  # like a command's
    own = OwnLink("", Path(config_path), config, store)
    means = FailbackMeans(reading_ports(own, Path(config_path).parent / "salvage"), accept_unfenced=True)
    with ClusterContext(config, store, patience_seconds=2.0) as estate:
        if approvals and config.approvals is not None:
            estate.approval = read_approvals(list(map(Path, approvals)), config.approvals.operators, now())
        if action in set(Kind) - {Kind.FAILOVER}:
            with SiteContext(estate, links_away(estate, None).links) as site:
                plan = make_site_failback_plan(site, Kind(action))
                run_site_failback(site, plan, means, cluster_ids=plan.old_primaries)
            return
        links = links_into(estate, "c").links
        if action == "hold":
            run = new_run_id()
            with ExitStack() as stack:
                for link in links:
                    stack.enter_context(RunLease(store, link.id, run))
                sys.stdout.write(f"{run}\n")
                sys.stdout.flush()
                signal.pause()
            return
        if action == "failover":
            with SiteContext(estate, links) as site:
                plan = make_site_plan(site, PlanRequest("c"))
                run_site(site, plan, unfenced=plan.links)
            return
        unfinished = site_to_resume(store, None)
        assert unfinished is not None
        with SiteContext(estate, [link.link() for link in config.links]) as site:
            if action == "cancel":
                cancel_site(site, unfinished)
            else:
                resume_site(site, unfinished, means=means)


if __name__ == "__main__":
    main(*sys.argv[1:])
