"""A source that is cut again, further down, under a problem that names the first place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.admin.logs.leader_epochs import EpochEnd
from drkit.kafka.admin.logs.source_divergence import KIND, with_divergence_now
from drkit.mirror.health.problems import Problems
from drkit.mirror.health.truncation_watches import SourceTruncationWatch
from drkit.model.errors import Unreachable
from drkit.model.link_state import Problem, TopicState
from drkit.model.offsets import Watermark
from drkit.model.topology import Isolation, Link, LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.api import Store

AT = datetime(2026, 11, 23, tzinfo=UTC)
LINK = LinkId("primary", "dr")
COMMITTED = Link(LINK, topics=(".*",))
TP = TopicPartition("t", 0)
MARK = Watermark("t", 0, 1, 1_000, 1_000, 0, 1_000, 0, AT, leader_epoch=3)
TOPIC = TopicState("t", "t", "ours", "theirs", 1, 1, created_by_drkit=True)
NOTED = Problem(KIND, "t", 0, "why", "what to do", halted=True, since=AT, unsure_from=900)


class Source:
    """Answers as a source's leader would."""

    reads_by_topic_id = True

    def __init__(self) -> None:
        self.end: EpochEnd | None = EpochEnd(3, 900)
        self.topic_id = "ours"
        self.stable_end = 1_050
        self.asked = 0

    def topics(self, names: Iterable[str], **_: Any) -> dict[str, Any]:
        return {name: SimpleNamespace(topic_id=self.topic_id) for name in names}

    def epoch_ends(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        self.asked += 1
        return {} if self.end is None else dict.fromkeys(at, self.end)

    def end_offsets(
        self, tps: Iterable[TopicPartition], *, committed: bool, partial: bool
    ) -> dict[TopicPartition, int]:
        assert partial
        return dict.fromkeys(tps, self.stable_end if committed else 1_050)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("sqlite:///:memory:")
    opened.put_watermarks(LINK, [MARK])
    opened.put_topic_states(LINK, [TOPIC])
    yield opened
    opened.close()


def watch(store: Store, source: Source) -> SourceTruncationWatch:
    problems = Problems(store, LINK, lambda _: None)
    problems.follow()
    return SourceTruncationWatch(COMMITTED, source, store, problems)  # type: ignore[arg-type]  # all it asks


def test_a_lower_place_replaces_the_one_on_record_and_a_higher_one_does_not(store: Store) -> None:
    store.put_problem(LINK, NOTED)
    source = Source()
    looks = watch(store, source)
    for end, place in ((900, 900), (700, 700), (950, 700), (1_000, 700)):
        source.end = EpochEnd(3, end)
        looks.check()
        (problem,) = store.problems(LINK)
        assert (problem.unsure_from, problem.since, problem.halted) == (place, AT, True)
    assert "lost offsets 700 to 999" in store.problems(LINK)[0].reason


def test_a_partition_that_stands_still_for_another_reason_is_looked_at_too(store: Store) -> None:
    store.put_problem(LINK, replace(NOTED, kind="foreign_writer"))
    watch(store, Source()).check()
    assert {problem.kind: problem.unsure_from for problem in store.problems(LINK)} == {"foreign_writer": 900, KIND: 900}


def test_nothing_is_asked_while_nothing_stands_still(store: Store) -> None:
    source = Source()
    watch(store, source).check()
    store.put_problem(LINK, replace(NOTED, halted=False))
    watch(store, source).check()
    assert source.asked == 0


def seen(source: Source, problems: list[Problem], *, unwatched: bool = False, link: Link = COMMITTED) -> Any:
    return with_divergence_now(
        lambda: source,  # type: ignore[arg-type,return-value]  # all it asks
        link,
        {TP: MARK},
        {"t": TOPIC},
        problems,
        AT,
        unwatched={TP} if unwatched else (),
    )


def test_a_look_lowers_the_place_or_finds_what_nobody_has_seen() -> None:
    source = Source()
    source.end = EpochEnd(3, 400)
    assert [each.unsure_from for each in seen(source, [NOTED]).problems] == [400]
    assert [each.unsure_from for each in seen(source, [], unwatched=True).problems] == [400]
    assert seen(source, []).problems == []


def test_a_transaction_that_is_open_again_is_doubted_from_where_it_begins() -> None:
    """Its end was in the lost tail. Where what is open is mirrored, too, nothing changes by it."""
    source = Source()
    source.stable_end = 850
    (problem,) = seen(source, [NOTED]).problems
    assert problem.unsure_from == 850
    assert "mirrored as committed from offset 850 on is open there again" in problem.reason
    (problem,) = seen(source, [NOTED], link=replace(COMMITTED, isolation=Isolation.READ_UNCOMMITTED)).problems
    assert problem == NOTED
    source.stable_end = 950  # of a later transaction, of which nothing was mirrored
    assert seen(source, [NOTED]).problems == [NOTED]


@pytest.mark.parametrize("why", ["no leader", "another topic", "no epochs"])
def test_where_nobody_can_tell_it_is_unseen_and_says_so(why: str) -> None:
    source = Source()
    source.end = {"no leader": None, "no epochs": EpochEnd(-1, -1)}.get(why, source.end)
    source.topic_id = "new" if why == "another topic" else "ours"
    found = seen(source, [NOTED])
    assert found.unseen == {TP}
    assert found.problems[0].unsure_from == 900
    assert "has lost more since: no leader answers for it, or" in found.problems[0].reason
    unwatched = seen(source, [], unwatched=True)
    told = [problem.kind for problem in unwatched.problems]
    assert told == (["topic_recreated"] if why == "another topic" else [])
    assert list(unwatched.unjudged) == ([TP] if why == "no leader" else []), "a log without epochs never has any"


def test_a_source_that_is_gone_leaves_what_is_on_record_and_says_so() -> None:
    def gone() -> Any:
        raise Unreachable("primary does not answer", remedy="")

    found = with_divergence_now(gone, COMMITTED, {TP: MARK}, {"t": TOPIC}, [NOTED], AT, unwatched=())
    assert found.unseen == {TP}
    assert "primary does not answer" in found.problems[0].reason
