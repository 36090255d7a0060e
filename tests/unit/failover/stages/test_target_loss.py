"""What a target no longer holds: counted, left to retention, or not known, of each log by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.failover.context.state_machine import Facts, Loss, Mode
from drkit.failover.stages.target_loss import target_loss, with_target_loss
from drkit.model.errors import Unreachable
from drkit.model.link_state import TopicState
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition

LINK = LinkId("primary", "dr")
AT = datetime(2026, 11, 29, tzinfo=UTC)


@dataclass
class Cluster:
    """Partitions of topics that all have the id `T`: log starts and ends; `silent`: without a leader."""

    logs: dict[str, tuple[int, int]]
    silent: tuple[str, ...] = ()
    topic_id: str = "T"
    gone: bool = False
    alias: str = "dr"

    def topics(self, names: list[str]) -> dict[str, Any]:
        there = {name.partition(":")[0] for name in (*self.logs, *self.silent)}
        return {name: SimpleNamespace(partitions=2, topic_id=self.topic_id) for name in names if name in there}

    def start_offsets(self, tps: Iterable[TopicPartition], **more: Any) -> dict[TopicPartition, int]:
        return {tp: begin for tp, (begin, _) in self._logs(tps, **more).items()}

    def end_offsets(self, tps: Iterable[TopicPartition], **more: Any) -> dict[TopicPartition, int]:
        return {tp: end for tp, (_, end) in self._logs(tps, **more).items()}

    def _logs(
        self, tps: Iterable[TopicPartition], silent: dict[TopicPartition, str] | None = None, **_: Any
    ) -> dict[TopicPartition, tuple[int, int]]:
        if self.gone:
            raise Unreachable("primary is gone", remedy="")
        if silent is not None:
            silent.update({tp: "no leader" for tp in tps if str(tp) in self.silent})
        return {tp: self.logs[str(tp)] for tp in tps if str(tp) in self.logs}


@dataclass
class Store:
    rows: list[OffsetMapping] = field(default_factory=lambda: [OffsetMapping("t", 0, 1, 0, 100)])

    def topic_states(self, _link: LinkId) -> dict[str, TopicState]:
        return {"t": TopicState("t", "t", "S", "T", 1, 2, created_by_drkit=True)}

    def mappings_of(self, _link: LinkId, places: list[Any]) -> Iterable[list[OffsetMapping]]:
        return [self.rows for _ in places]


def context(dr: Cluster, primary: Cluster, held: dict[str, tuple[int, int]]) -> Any:
    """Source offsets are those of dr less 100."""
    clusters = {"dr": dr, "primary": primary}
    estate = SimpleNamespace(store=Store(), admin=lambda alias, **_: clusters[alias])
    link = SimpleNamespace(id=LINK, target_topic=lambda name: name)
    loss = Loss(0, 0.0, AT)
    return SimpleNamespace(estate=estate, link=link, facts=Facts(mode=Mode.PLANNED, held=held, loss=loss))


@pytest.mark.parametrize(
    ("source", "lost"),
    [((0, 500), 50), ((30, 500), 20), ((50, 500), 0), ((200, 500), 0)],
    ids=["all of it", "some of it", "nothing of it", "less than dr"],
)
def test_a_beginning_that_is_gone_counts_as_far_as_the_source_has_it(source: tuple[int, int], lost: int) -> None:
    asked = context(Cluster({"t:0": (150, 600)}), Cluster({"t:0": source}), {"t:0": (100, 600)})
    assert target_loss(asked, asked.facts).lost == ({"t:0": lost} if lost else {})


def test_a_beginning_that_is_gone_is_named_where_the_source_can_not_be_asked() -> None:
    asked = context(Cluster({"t:0": (150, 600)}), Cluster({}, gone=True), {"t:0": (100, 600)})
    found = target_loss(asked, asked.facts)
    assert (found.lost, found.unknown) == ({}, None)
    assert found.told == ["t:0 (offsets 100 to 149 were removed; whether primary has them isn't known)"]


def test_a_log_that_nobody_answers_for_is_unknown_and_hides_no_loss_of_another() -> None:
    asked = context(Cluster({"t:1": (0, 7)}, silent=("t:0",)), Cluster({}), {"t:0": (0, 5), "t:1": (0, 10)})
    found = target_loss(asked, asked.facts)
    assert found.lost == {"t:1": 3}
    assert found.unknown == "what dr holds by now isn't known of t:0 (no leader)"


@pytest.mark.parametrize(
    ("dr", "told"),
    [
        (Cluster({"t:0": (0, 10)}, topic_id="U"), "t:0 (it is another topic now)"),
        (Cluster({}), "t:0 (it is gone)"),
        (Cluster({"t:0": (0, 4)}), "t:0 (offsets 4 to 9)"),
    ],
)
def test_what_is_gone_at_the_end_counts(dr: Cluster, told: str) -> None:
    asked = context(dr, Cluster({}), {"t:0": (0, 10)})
    found = target_loss(asked, asked.facts)
    assert (found.told, sum(found.lost.values())) == ([told], 6 if "4 to 9" in told else 10)


def test_it_is_at_most_the_loss_of_the_run_with_the_reason() -> None:
    asked = context(Cluster({"t:0": (0, 4)}, silent=("t:1",)), Cluster({}), {"t:0": (0, 10), "t:1": (0, 5)})
    facts, said = with_target_loss(asked, asked.facts)
    assert facts.loss is not None
    assert (facts.loss.records, facts.loss.upper_bound, facts.loss.lower_bound) == (6, True, True)
    assert "dr has lost 6 offsets since the run counted what is missing there: t:0 (offsets 4 to 9)" in said
    assert said[2:] in (facts.loss.reason or "")


def test_a_target_that_has_all_changes_nothing() -> None:
    asked = context(Cluster({"t:0": (0, 40)}), Cluster({}), {"t:0": (0, 10)})
    assert with_target_loss(asked, asked.facts) == (asked.facts, "")
    assert target_loss(asked, Facts(mode=Mode.PLANNED)).told == []
