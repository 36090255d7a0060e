"""The old primary is opened: topics that the other cluster has, and it lacks, keep it closed, unless that is another
cluster than clients were moved to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.failover.recovery.fence_command import _check_topics
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.link_state import TopicState
from drkit.model.runs import RunSummary
from drkit.store.link_notes import note_clusters
from tests.unit.failover.run import test_left_since
from tests.unit.failover.run.test_left_since import LINK

estate = test_left_since.estate


@pytest.mark.parametrize(("answers", "refused"), [("id-dr", True), ("another", False)])
def test_topics_of_another_cluster_are_not_those_that_a_failback_has_to_bring_back(
    estate, monkeypatch, answers, refused
):
    """A client may have made them on a dr that was set up anew, and no failback leads on from that."""
    estate.store.put_run(RunSummary("RUN", "failback", "abandoned", now(), now(), f"{LINK} planned"))
    estate.store.put_topic_states(LINK, [TopicState("orders", "orders", "a", "b", 1, 1, created_by_drkit=True)])
    note_clusters(estate.store, LINK, source="id-primary", target="id-dr")
    there = {"dr": {"orders": SimpleNamespace(topic_id="c")}, "primary": {}}
    monkeypatch.setattr(ClusterAdmin, "cluster_id", lambda _self: answers)
    monkeypatch.setattr(ClusterAdmin, "topics", lambda self, _names: there[self.alias])
    if refused:
        with pytest.raises(Refused, match="orders is not on primary"):
            _check_topics(estate, estate.link(LINK), "primary", "dr")
    else:
        _check_topics(estate, estate.link(LINK), "primary", "dr")
