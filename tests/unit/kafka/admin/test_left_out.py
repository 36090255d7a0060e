"""A cluster that counts as gone although something answers at its address: no connection to it is handed out."""

from __future__ import annotations

import pytest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.clusters import Clusters
from drkit.model.errors import NotShown

CONFIGS = {alias: ClusterConfig(bootstrap_servers="127.0.0.1:9") for alias in ("primary", "dr")}
WHY = NotShown("dr is another cluster now", remedy="Correct its address")


def test_nothing_is_asked_of_a_cluster_that_is_left_out():
    with Clusters(CONFIGS) as clusters, Clusters(CONFIGS, known=clusters) as other:
        used_before = clusters.admin("dr")
        assert clusters.why_left_out("dr") is None
        clusters.leave_out("dr", WHY)
        assert clusters.admin("primary").alias == "primary"
        for each in (clusters, other):
            assert each.why_left_out("dr") is WHY
            for connection in (each.admin, each.groups):
                for may_be_gone in (False, True):
                    with pytest.raises(NotShown, match="another cluster") as told:
                        connection("dr", may_be_gone=may_be_gone)
                    assert told.value.remedy == WHY.remedy
        assert used_before.alias == "dr"


def test_another_command_s_connections_know_nothing_of_it():
    with Clusters(CONFIGS) as clusters, Clusters(CONFIGS) as unrelated:
        clusters.leave_out("dr", WHY)
        assert unrelated.admin("dr").alias == "dr"
