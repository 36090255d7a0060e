"""What retention explains of a log's beginning that is gone, and what can't be found out."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.client.purged_records import Missing, find_purged
from drkit.kafka.client.record_probe import LogPosition, OffsetRange, ProbedRecord
from drkit.model.errors import Refused, Unreachable
from drkit.model.topic_policy import TopicSettings
from drkit.model.topology import TopicPartition
from tests.support.links.retaining_cluster import RetainingCluster

READ, HIDDEN, SILENT, UNTOLD = (TopicPartition(name, 0) for name in ("read", "hidden", "silent", "untold"))
MISSING = {tp: Missing(OffsetRange(5, 9), tp, emptied=False) for tp in (READ, HIDDEN, SILENT, UNTOLD)}


class Cluster(SimpleNamespace):
    """Topics without a retention; it hides the settings of one, knows nothing of one, and nobody leads another."""

    alias = "primary"

    def topic_configs(self, names: set[str], *, denied: set[str] | None, **_: Any) -> dict[str, dict[str, str]]:
        if denied is None and "hidden" in names:
            raise Refused("not allowed", remedy="")
        (denied if denied is not None else set()).update(names & {"hidden"})
        return {name: {"cleanup.policy": "delete"} for name in names - {"hidden", "untold"}}

    def probe_records(self, places: Iterable[LogPosition], **_: Any) -> dict[LogPosition, ProbedRecord]:
        return {
            each: ProbedRecord(reason="no leader") if each.tp == SILENT else ProbedRecord(offset=each.offset)
            for each in places
        }

    def start_offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)


def purged(*tps: TopicPartition, unknown: dict[TopicPartition, str] | None) -> dict[TopicPartition, OffsetRange]:
    missing = {tp: MISSING[tp] for tp in tps}
    return find_purged(Cluster(), Cluster(), missing, TopicSettings(), at_ms=0, unknown=unknown)  # type: ignore[arg-type]  # what is asked of it


def test_what_is_not_known_of_some_hides_no_purge_of_others() -> None:
    unknown: dict[TopicPartition, str] = {}
    assert purged(*MISSING, unknown=unknown) == {READ: OffsetRange(5, 9)}
    assert unknown == {
        HIDDEN: "drkit may not read the retention of hidden on primary (grant DESCRIBE_CONFIGS)",
        SILENT: "silent:0 on primary can't be read at 5: no leader",
        UNTOLD: "no broker tells the retention of untold on both sides",
    }


@pytest.mark.parametrize(("emptied", "age"), [(False, "young"), (False, "old"), (True, "young")])
def test_what_only_a_retention_by_size_may_explain_is_named_where_the_size_does_not_tell(
    emptied: bool, age: str
) -> None:
    cluster: Any = RetainingCluster()
    cluster.settings |= {"retention.bytes": "100", "retention.ms": "1000000"}
    cluster.stamps = dict.fromkeys(range(100), 10_000_000 if age == "young" else 0)
    by_size: set[TopicPartition] = set()
    missing = {READ: Missing(OffsetRange(5, 9), READ, emptied=emptied)}
    found = find_purged(
        cluster, cluster, missing, TopicSettings(), at_ms=10_000_000, sized=False, unknown={}, by_size=by_size
    )
    assert found == ({READ: OffsetRange(5, 9)} if emptied else {}), "no retention by size empties a log"
    assert by_size == ({READ} if (emptied, age) == (False, "young") else set()), (
        "retention by time explains what is old"
    )


@pytest.mark.parametrize(("tp", "error"), [(HIDDEN, Refused), (SILENT, Unreachable)])
def test_without_a_place_for_it_the_first_one_raises(tp: TopicPartition, error: type[Exception]) -> None:
    with pytest.raises(error):
        purged(READ, tp, unknown=None)
