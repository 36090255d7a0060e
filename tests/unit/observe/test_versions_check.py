"""What clients of the source meet on a target of another version."""

from __future__ import annotations

import pytest

from drkit.kafka.admin.cluster_description import ClusterVersions, VersionRange, in_common
from drkit.model.topology import LinkId
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.target_checks import compared_versions

LINK = LinkId("primary", "dr")
FEATURES = {"metadata.version": 29, "group.version": 1, "transaction.version": 2}
REQUESTS = {key: VersionRange(0, 9) for key in (0, 1, 2, 3, 8, 9, 11, 22, 68)}


def cluster(requests=REQUESTS, **levels):
    features = FEATURES | {name.replace("_", "."): level for name, level in levels.items()}
    return ClusterVersions({name: level for name, level in features.items() if level}, requests)


def test_equal_and_newer_targets_are_ok() -> None:
    found = compared_versions(LINK, cluster(), cluster())
    assert found.outcome is CheckOutcome.OK
    assert found.reason == "dr takes what clients of primary use: metadata.version 29 on primary, 29 on dr"
    newer = cluster({**REQUESTS, 76: VersionRange(1, 1)}, metadata_version=30, share_version=1)
    assert compared_versions(LINK, cluster(), newer).outcome is CheckOutcome.OK
    assert compared_versions(LINK, cluster(), cluster(metadata_version=25)).outcome is CheckOutcome.OK, (
        "no client meets it"
    )


@pytest.mark.parametrize(
    ("feature", "level", "meets"),
    [
        ("group_version", 0, "group.version is 0 on dr, 1 on primary: consumers with group.protocol=consumer"),
        ("transaction_version", 1, "transaction.version is 1 on dr, 2 on primary: transactions lack the defence"),
    ],
)
def test_a_feature_that_clients_meet_is_missing(feature, level, meets) -> None:
    found = compared_versions(LINK, cluster(), cluster(**{feature: level}))
    assert found.outcome is CheckOutcome.WARN
    assert found.reason.startswith(meets)
    assert "kafka-features.sh" in found.remedy


def test_a_request_that_clients_send_is_missing() -> None:
    older = cluster({key: each for key, each in REQUESTS.items() if key != 68})
    found = compared_versions(LINK, cluster(), older)
    assert found.outcome is CheckOutcome.WARN
    assert found.reason.startswith(
        "dr doesn't take ConsumerGroupHeartbeat, primary does: consumers with group.protocol"
    )
    both = compared_versions(LINK, cluster(), cluster(older.requests, group_version=0)).reason
    assert (both.count("KIP-848"), "group.version is 0 on dr" in both) == (1, True), "told once, by its feature"


def test_a_newer_target_that_refuses_old_clients_is_told() -> None:
    newer = cluster({**REQUESTS, 1: VersionRange(4, 18)})
    found = compared_versions(LINK, cluster(), newer)
    assert found.outcome is CheckOutcome.WARN
    assert found.reason.startswith("dr is newer and refuses old clients that primary takes: Fetch before version 4 (")
    assert compared_versions(LINK, newer, cluster()).outcome is CheckOutcome.OK


def test_untold_features_are_unknown_but_hide_no_missing_request() -> None:
    silent = ClusterVersions(None, REQUESTS)
    found = compared_versions(LINK, cluster(), silent)
    assert (found.outcome, "brokers of dr don't tell the features" in found.reason) == (CheckOutcome.UNKNOWN, True)
    older = ClusterVersions(None, {key: each for key, each in REQUESTS.items() if key != 22})
    assert "idempotent and transactional producers fail" in compared_versions(LINK, cluster(), older).reason


def test_a_cluster_in_an_upgrade_is_as_old_as_its_oldest_broker() -> None:
    old = ClusterVersions(
        {"group.version": 0, "metadata.version": 25}, {1: VersionRange(0, 12), 68: VersionRange(0, 0)}
    )
    new = ClusterVersions({"group.version": 1, "share.version": 1}, {1: VersionRange(4, 18)})
    found = in_common([old, new])
    assert found == ClusterVersions({"group.version": 0}, {1: VersionRange(4, 12)})
    assert in_common([old, ClusterVersions(None, {})]) == ClusterVersions(None, {})
    assert in_common([]) == ClusterVersions(None, {})
