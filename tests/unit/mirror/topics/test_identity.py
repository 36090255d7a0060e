"""Aliases of clusters whose cluster ids are equal: the addresses and topic ids tell."""

from __future__ import annotations

import pytest

from drkit.mirror.topics.topology_check import ClusterIdentity, same_cluster


def sight(port: int, topics: dict[str, str | None], cluster_id: str = "4L6g3nShT-eMCtK--X86sw") -> ClusterIdentity:
    return ClusterIdentity(cluster_id, frozenset({("127.0.0.1", port)}), topics)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (sight(1, {}), sight(1, {}, "another"), False),
        (sight(1, {"a": "x"}), sight(1, {}), True),
        (sight(1, {"a": "x"}), sight(2, {"a": "x"}), True),
        (sight(1, {"a": "x"}), sight(2, {"a": "y"}), False),
        (sight(1, {"a": "x"}), sight(2, {"b": "y"}), False),
        (sight(1, {"a": None}), sight(2, {"a": "y"}), True),
        (sight(1, {}), sight(2, {}), None),
        (sight(1, {"a": "x"}), sight(2, {}), None),
    ],
    ids=[
        "other ids",
        "one address",
        "one topic id, through another listener",
        "topics of one name with ids of their own",
        "other topics",
        "brokers without topic ids",
        "both empty: not told apart yet",
        "one empty: not told apart yet",
    ],
)
def test_same_cluster(one: ClusterIdentity, other: ClusterIdentity, same: bool | None) -> None:
    assert same_cluster(one, other) is same
    assert same_cluster(other, one) is same
