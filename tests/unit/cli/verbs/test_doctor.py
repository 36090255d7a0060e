"""What doctor makes of its checks once it knows whether a failover would be accepted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from drkit.cli.verbs.failover.doctor import Planned, checks_with_plan, clock_check, directory_checks
from drkit.failover.plan.failover_plan import DirectoryView
from drkit.model.clock import now
from drkit.observe.poll_problems import FENCED
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.store_safety import STORE_COPY
from drkit.store import open_store

ACCEPTED = Check("failover", CheckOutcome.OK, "it would be accepted")
REFUSED = Check("failover", CheckOutcome.FAIL, "it would be refused")
UNTOLD = Check("failover", CheckOutcome.UNKNOWN, "it can't be planned")


def outcome(name: str, planned: Planned) -> CheckOutcome:
    (*_, check) = checks_with_plan([Check(name, CheckOutcome.FAIL, "why", "remedy")], planned)
    assert (check.name, check.reason, check.remedy) == (name, "why", "remedy")
    return check.outcome


@pytest.mark.parametrize("name", ["problem: halted", "group positions translatable"])
def test_what_an_accepted_failover_weighs_itself_is_a_warning(name: str) -> None:
    assert outcome(name, Planned((ACCEPTED,), moves=True)) is CheckOutcome.WARN


@pytest.mark.parametrize("name", [f"problem: {FENCED}", STORE_COPY])
def test_a_fence_and_a_store_that_lost_rows_fail_beside_an_accepted_failover(name: str) -> None:
    assert outcome(name, Planned((ACCEPTED,), moves=True)) is CheckOutcome.FAIL


def test_a_dead_cluster_that_serves_fails_where_nothing_would_be_moved() -> None:
    assert outcome("clusters", Planned((ACCEPTED,), moves=False)) is CheckOutcome.FAIL


def test_a_link_that_would_be_left_out_beside_others_does_not_fail_for_having_been_failed_over():
    """The dry run of all accepts it: exit 0."""
    assert outcome("mirror", Planned((ACCEPTED,), moves=False, left_out=True)) is CheckOutcome.OK
    assert outcome("mirror", Planned((ACCEPTED,), moves=False)) is CheckOutcome.FAIL, "alone, it would be refused"
    assert outcome("clusters", Planned((ACCEPTED,), moves=False, left_out=True)) is CheckOutcome.FAIL


@pytest.mark.parametrize(("seconds", "said"), [(-4, None), (4, None), (90, "behind"), (-90, "ahead of")])
def test_a_clock_that_a_run_would_be_refused_for_is_told_before(monkeypatch, seconds, said) -> None:
    store = open_store("sqlite:///:memory:")
    monkeypatch.setattr(store, "time", lambda: now() + timedelta(seconds=seconds))
    found = clock_check(store)
    store.close()
    if said is None:
        assert found is None
        return
    assert found is not None
    assert found.outcome is CheckOutcome.WARN, "the dry run accepts it"
    assert f"a run from here would be refused: this machine's clock is 90 s {said} the store's" in found.reason
    assert "NTP" in found.remedy


def test_each_directory_that_clients_go_by_is_a_check() -> None:
    views = [DirectoryView("file /etc/active", active="primary"), DirectoryView("consul", reason="no answer in 2 s")]
    there, silent = directory_checks(views)
    assert (there.outcome, there.reason) == (CheckOutcome.OK, "file /etc/active answers, and says primary")
    assert (silent.outcome, silent.reason) == (CheckOutcome.WARN, "consul can't be read: no answer in 2 s")
    assert "drkit config check --connect" in silent.remedy


@pytest.mark.parametrize("planned", [REFUSED, UNTOLD])
def test_nothing_is_softened_where_no_failover_is_accepted(planned: Check) -> None:
    assert outcome("problem: halted", Planned((planned,), moves=True)) is CheckOutcome.FAIL
