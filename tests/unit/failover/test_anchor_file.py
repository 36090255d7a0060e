"""The operator's file of anchors."""

from pathlib import Path

import pytest

from drkit.failover.run import anchors
from drkit.failover.run.anchors import Anchors, read_anchors, store_identity
from drkit.kafka.admin.clusters import Clusters
from drkit.model.clock import now
from drkit.model.journal import JournalEntry


def entry(number: int) -> JournalEntry:
    return JournalEntry.chained(None, run=f"run-{number}", at=now(), stage="plan", event="plan", payload="{}")


@pytest.mark.parametrize("cut", [1, 40])
def test_a_line_that_was_cut_short_takes_no_later_one_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    file = tmp_path / "journal.anchor"
    monkeypatch.setattr(anchors.Anchors, "_topic", _nowhere)
    for number in range(3):
        with Clusters({}) as clusters:
            writing = Anchors(clusters, "store", file)
            writing.put("dr", entry(number))
            writing.close()
        if number == 1:
            file.write_bytes(file.read_bytes()[:-cut])  # a power cut, a full disk
    with Clusters({}) as clusters:
        (place,) = read_anchors(clusters, [], file)
    assert [anchor.run for anchor in place.anchors or ()] == (
        ["run-0", "run-1", "run-2"] if cut == 1 else ["run-0", "run-2"]
    )


def _nowhere(*_: object) -> None:
    raise OSError("no cluster here")


def test_a_store_is_the_same_whoever_names_its_hosts_in_which_order() -> None:
    one = store_identity("cassandra://u:p@h1,h2:9042/drkit?dc=a")
    assert one == store_identity("cassandra://h2:9042,h1/drkit")
    assert one != store_identity("cassandra://h1,h3:9042/drkit")
    assert store_identity("sqlite:////a/drkit.db") != store_identity("sqlite:////b/drkit.db")
