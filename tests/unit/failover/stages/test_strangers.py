"""Records below what was seeded on an old primary: a client's, those of a former topic, or nobody knows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.failover.context.state_machine import Facts, Mode
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.stages import audit_stage
from drkit.failover.stages.audit_stage import Audit, AuditFailed
from drkit.kafka.client.record_probe import NOTHING, ProbedRecord
from drkit.model.errors import PartlyDone
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import Link, LinkId, TopicPartition

TP = TopicPartition("t", 0)
TOPIC = ScrubTopic("t", "id-1", "t", 1, 1, 1, created_by_drkit=False)
WAY_BACK = Link(LinkId("dr", "primary"), topics=(".*",))


@pytest.fixture
def looked(monkeypatch):
    """What the audit's stage makes of a log of 20 offsets, by the topic's epoch, the target offsets of its mapping
    rows by epoch, and what it reads at the log's beginning."""
    monkeypatch.setattr(audit_stage, "alignments", lambda *_: {})

    def look(epoch, rows, first):
        state = TopicState("t", "t", "live", "id-2", epoch, 1, created_by_drkit=True)
        admin = SimpleNamespace(
            topics=lambda _names: {"t": SimpleNamespace(topic_id="id-2", partitions=1)},
            start_offsets=lambda tps: dict.fromkeys(tps, 0),
            end_offsets=lambda tps, **_: dict.fromkeys(tps, 20),
            probe_records=lambda places, **_: dict.fromkeys(places, first),
        )
        store = SimpleNamespace(
            topic_states=lambda _link: {"t": state},
            mappings=lambda _link, _tp, of: [OffsetMapping("t", 0, of, 0, at) for at in rows.get(of, ())],
        )
        Audit("dr", "primary", (TOPIC,))._refuse_strangers(
            SimpleNamespace(
                estate=SimpleNamespace(store=store, admin=lambda _alias: admin),
                link=WAY_BACK,
                run="RUN",
                facts=Facts(mode=Mode.PLANNED, scrubbed={"t": "id-2"}),
            )
        )

    return look


def test_what_a_former_topic_brought_back_is_no_client_s(looked):
    """The live cluster's topic was recreated, and accepted as a new one (`--accept-recreated`)."""
    looked(2, {1: [0], 2: [12]}, ProbedRecord(0, 1, 2))
    with pytest.raises(AuditFailed, match=r"offsets 0 to 2\) on primary hold records from before they were seeded"):
        looked(2, {1: [3], 2: [12]}, ProbedRecord(0, 1, 2))


def test_a_marker_or_nothing_is_no_record(looked):
    looked(1, {1: [3]}, ProbedRecord(3, 1, 2))
    looked(1, {1: [3]}, NOTHING)
    looked(1, {1: [3]}, ProbedRecord(reason="outside the log", outside=True))


@pytest.mark.parametrize(
    "seen", [ProbedRecord(reason="not read in time: no leader", late=True), ProbedRecord(reason="access is denied")]
)
def test_what_can_t_be_read_is_neither_a_client_s_write_nor_none(looked, seen):
    with pytest.raises(PartlyDone, match=r"t:0 at 0: (not read in time|access is denied)") as told:
        looked(1, {1: [3]}, seen)
    assert not isinstance(told.value, AuditFailed)
    assert "isn't known" in told.value.meaning
    assert "drkit resume RUN" in told.value.remedy
    assert "kafka-delete-records" not in told.value.remedy
