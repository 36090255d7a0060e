"""A failback is resumed, and another cluster answers at the address of the one that clients use.

That one counts as gone where the run can do without it; else the run stops, and the refusal says what leads on.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.failover.context.state_machine import Mode
from drkit.failover.journal.run_record import load_run
from drkit.failover.run.service import _check_clusters, _check_live_gone
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.runs import FENCES, FenceMethod, FenceRecord, FenceState, record_text
from tests.unit.failover.run import test_left_since
from tests.unit.failover.run.test_left_since import LINK, interrupted_before

estate = test_left_since.estate

EPOCH = 7
EARLY = ["salvage", "scrub", "reverse", "reseed", "audit"]
AUDITED = ["fence", "drain", "translate", "commit"]


@pytest.fixture(autouse=True)
def another_dr(monkeypatch):
    ids = {"primary": "id-primary", "dr": "another"}
    monkeypatch.setattr(ClusterAdmin, "cluster_id", lambda self: ids[self.alias])
    monkeypatch.setattr(ClusterAdmin, "brokers", lambda _self: {})
    return ids


def a_run(estate, stage, *, begun=True, fenced=True, mode=Mode.PLANNED):
    """A failback that was killed before a stage, or within it; whether dr was fenced, and the fence stands."""
    record = load_run(estate.store, interrupted_before(estate, stage))
    journal = record.journal
    facts = replace(record.machine.facts, mode=mode, fenced=fenced, fence_epoch=EPOCH if fenced else None)
    journal.established("audit", facts)
    if begun:
        journal.intent(stage)
    if fenced:
        fence = FenceRecord("dr", EPOCH, journal.run, FenceState.CLOSED, FenceMethod.ACL, now(), proven=True)
        estate.store.put_notes(LINK, FENCES, {fence.name: record_text(fence)})
    return load_run(estate.store, journal.run)


@pytest.mark.parametrize("unplanned", [False, True])
@pytest.mark.parametrize("stage", EARLY)
def test_before_the_audit_the_run_can_only_be_given_up(estate, stage, unplanned):
    record = a_run(estate, stage)
    with pytest.raises(Refused, match="dr is another cluster now: its id is another") as told:
        _check_clusters(estate, record, unplanned=unplanned)
    assert "nothing further was changed" in told.value.meaning
    assert f"drkit abandon {record.run}" in told.value.remedy
    assert "--unplanned" not in told.value.remedy
    assert estate.why_left_out("dr") is None


@pytest.mark.parametrize("stage", AUDITED)
def test_from_the_audit_on_it_is_finished_without_that_cluster_if_the_operator_says_so(estate, stage):
    record = a_run(estate, stage, fenced=False)
    with pytest.raises(Refused, match="dr is another cluster now") as told:
        _check_clusters(estate, record, unplanned=False)
    assert f"drkit resume {record.run} --unplanned" in told.value.remedy
    assert "nothing further was changed" in told.value.meaning
    assert estate.why_left_out("dr") is None
    _check_clusters(estate, record, unplanned=True)
    assert "another cluster" in estate.why_left_out("dr").what
    _check_live_gone(estate, record, "dr")


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("fenced", [True, False])
def test_where_all_was_copied_behind_a_fence_and_groups_are_committed_nothing_more_is_needed_of_it(
    estate, mode, fenced
):
    record = a_run(estate, "commit", fenced=fenced, mode=mode)
    if fenced and mode is Mode.PLANNED:
        _check_clusters(estate, record, unplanned=False)
        assert estate.why_left_out("dr") is not None
    else:
        with pytest.raises(Refused, match="another cluster"):
            _check_clusters(estate, record, unplanned=False)


def test_a_fence_that_was_lifted_since_let_clients_write(estate):
    record = a_run(estate, "commit")
    lifted = FenceRecord("dr", EPOCH + 1, "ANOTHER", FenceState.OPEN, FenceMethod.ACL, now())
    estate.store.put_notes(LINK, FENCES, {lifted.name: record_text(lifted)})
    with pytest.raises(Refused, match="another cluster"):
        _check_clusters(estate, record, unplanned=False)


def test_before_a_group_is_committed_the_positions_are_still_to_be_read_there(estate):
    with pytest.raises(Refused, match="another cluster"):
        _check_clusters(estate, a_run(estate, "translate"), unplanned=False)


@pytest.mark.parametrize("stage", ["switch", "verify", "close"])
def test_once_clients_are_switched_it_is_gone_and_no_mode_changes_that(estate, stage):
    record = a_run(estate, stage)
    _check_clusters(estate, record, unplanned=False)
    assert estate.why_left_out("dr") is not None
    with pytest.raises(Refused, match="not a failback that waits"):
        _check_live_gone(estate, record, "dr")


def test_the_cluster_that_served_is_not_left_out(estate, another_dr):
    another_dr["dr"] = "id-dr"
    record = a_run(estate, "fence")
    _check_clusters(estate, record, unplanned=True)
    assert estate.why_left_out("dr") is None
    with pytest.raises(Refused, match="dr answers"):
        _check_live_gone(estate, record, "dr")
