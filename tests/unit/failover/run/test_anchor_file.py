"""The operator's file of anchors."""

from pathlib import Path

import pytest

from drkit.failover.context.anchors import append_anchor, read_anchors
from drkit.kafka.admin.clusters import Clusters
from drkit.model.clock import now
from drkit.model.runs import Anchor
from drkit.store.open import store_identity


@pytest.mark.parametrize("cut", [1, 40])
def test_a_line_that_was_cut_short_takes_no_later_one_along(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "journal.anchor"
    for number in range(3):
        append_anchor(Anchor(f"run-{number}", 0, "0" * 64, now(), "store", "dr"), file)
        if number == 1:
            file.write_bytes(file.read_bytes()[:-cut])  # a power cut, a full disk
    with Clusters({}) as clusters:
        (place,) = read_anchors(clusters, [], file)
    kept = ["run-0", "run-1", "run-2"] if cut == 1 else ["run-0", "run-2"]
    assert [anchor.run for anchor in place.anchors or ()] == kept


def test_a_store_is_the_same_whoever_names_its_hosts_in_which_order() -> None:
    one = store_identity("cassandra://u:p@h1,h2:9042/drkit?dc=a")
    assert one == store_identity("cassandra://h2:9042,h1/drkit")
    assert one != store_identity("cassandra://h1,h3:9042/drkit")
    assert store_identity("sqlite:////a/drkit.db") != store_identity("sqlite:////b/drkit.db")
