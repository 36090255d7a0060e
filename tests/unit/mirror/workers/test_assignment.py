from __future__ import annotations

from drkit.mirror.engine.interface import Incident, IncidentKind
from drkit.mirror.topics.topic_sync import ReadyTopic
from drkit.mirror.workers.assignment import Assignment
from drkit.model.link_state import TopicState
from drkit.model.topology import TopicPartition

MOST = 100
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def topics(epoch: int = 1, partitions: int = 2) -> dict[str, ReadyTopic]:
    state = TopicState("t", "t", "source-id", "target-id", epoch, partitions, True)
    return {"t": ReadyTopic(state, partitions, 1_000_000, False)}


def incident(tp: TopicPartition) -> Incident:
    return Incident(tp, IncidentKind.UNCERTAIN, "a test")


def _all(_: TopicPartition) -> bool:
    """A lone worker holds everything."""
    return True


def test_a_partition_is_taken_once_and_not_while_it_runs() -> None:
    book = Assignment(lambda _: False, _all)
    assert book.update(topics()) == []
    taken, take = book.take(MOST)
    assert set(taken) == {FIRST, SECOND}
    assert book.take(MOST)[0] == {}, "resuming twice at a time would let one repair what the other writes"
    assert book.started(FIRST, 1, take)
    book.update(topics())
    assert book.take(MOST)[0] == {}
    assert book.running() == [FIRST]


def test_what_could_not_be_observed_is_due_again() -> None:
    book = Assignment(lambda _: False, _all)
    book.update(topics(partitions=1))
    _, take = book.take(MOST)
    book.give_back([FIRST])
    assert not book.started(FIRST, 1, take), "it was given back"
    assert FIRST in book._wanted


def test_a_halted_partition_waits_for_its_problem_to_be_cleared() -> None:
    halted = {FIRST}
    book = Assignment(halted.__contains__, _all)
    book.update(topics())
    assert set(book.take(MOST)[0]) == {SECOND}
    halted.clear()
    book.update(topics())
    assert set(book.take(MOST)[0]) == {FIRST}


def test_a_new_epoch_ends_the_old_one_and_starts_anew() -> None:
    book = Assignment(lambda _: False, _all)
    book.update(topics(partitions=1))
    _, take = book.take(MOST)
    assert book.started(FIRST, 1, take)
    assert book.update(topics(epoch=2, partitions=1)) == [FIRST]
    taken, again = book.take(MOST)
    assert taken[FIRST].state.epoch == 2
    assert not book.started(FIRST, 1, take), "resumed for the old epoch"
    assert book.started(FIRST, 2, again)


def test_a_topic_that_goes_takes_its_partitions_along() -> None:
    book = Assignment(lambda _: False, _all)
    book.update(topics())
    _, take = book.take(MOST)
    assert book.started(FIRST, 1, take)
    assert book.update({}) == [FIRST]
    assert not book.started(SECOND, 1, take)
    book.observe_again(incident(FIRST))
    assert book.take(MOST)[0] == {}


def test_an_incident_is_looked_at_at_once_and_later_each_time_it_repeats() -> None:
    book = Assignment(lambda _: False, _all)
    book.update(topics(partitions=1))
    _, take = book.take(MOST)
    book.started(FIRST, 1, take)
    book.observe_again(incident(FIRST))
    taken, take = book.take(MOST)
    assert set(taken) == {FIRST}
    book.started(FIRST, 1, take)
    book.observe_again(incident(FIRST))
    assert book.take(MOST)[0] == {}, "not at once again"
    first_pause = book._pauses[FIRST][1]
    book.observe_again(incident(FIRST))
    assert book._pauses[FIRST][1] > first_pause


def test_a_partition_that_waits_for_its_next_try_is_tried_at_once_when_its_cause_is_mended() -> None:
    book = Assignment(lambda _: False, _all)
    book.update(topics(partitions=1))
    for _ in range(5):
        _, take = book.take(MOST)
        book.started(FIRST, 1, take)
        book.observe_again(incident(FIRST))
    assert book.take(MOST)[0] == {}
    book.hurry("other")
    assert book.take(MOST)[0] == {}
    book.hurry("t")
    assert set(book.take(MOST)[0]) == {FIRST}
