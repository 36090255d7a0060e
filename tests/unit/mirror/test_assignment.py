from __future__ import annotations

from drkit.mirror.assignment import Assignment
from drkit.mirror.engine import Incident, IncidentKind
from drkit.mirror.topics import ReadyTopic
from drkit.model.links import TopicState
from drkit.model.topology import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def topics(epoch: int = 1, partitions: int = 2) -> dict[str, ReadyTopic]:
    state = TopicState("t", "t", "source-id", "target-id", epoch, partitions, True, "record")
    return {"t": ReadyTopic(state, partitions, 1_000_000, False)}


def incident(tp: TopicPartition) -> Incident:
    return Incident(tp, IncidentKind.UNCERTAIN, "a test")


def test_a_partition_is_taken_once_and_not_while_it_runs() -> None:
    book = Assignment(lambda _: False)
    assert not book.known
    assert book.update(topics()) == []
    assert set(book.take()) == {FIRST, SECOND}
    assert book.take() == {}, "resuming twice at a time would let one repair what the other writes"
    assert book.started(FIRST, 1)
    book.update(topics())
    assert book.take() == {}
    assert book.running() == [FIRST]


def test_what_could_not_be_observed_is_due_again() -> None:
    book = Assignment(lambda _: False)
    book.update(topics(partitions=1))
    book.take()
    book.give_back([FIRST])
    assert not book.started(FIRST, 1), "it was given back"
    assert FIRST in book._wanted


def test_a_halted_partition_waits_for_its_problem_to_be_cleared() -> None:
    halted = {FIRST}
    book = Assignment(halted.__contains__)
    book.update(topics())
    assert set(book.take()) == {SECOND}
    halted.clear()
    book.update(topics())
    assert set(book.take()) == {FIRST}


def test_a_new_epoch_ends_the_old_one_and_starts_anew() -> None:
    book = Assignment(lambda _: False)
    book.update(topics(partitions=1))
    book.take()
    assert book.started(FIRST, 1)
    assert book.update(topics(epoch=2, partitions=1)) == [FIRST]
    assert book.take()[FIRST].state.epoch == 2
    assert not book.started(FIRST, 1), "resumed for the old epoch"
    book.update(topics(epoch=2, partitions=1))
    book.take()
    assert book.started(FIRST, 2)


def test_a_topic_that_goes_takes_its_partitions_along() -> None:
    book = Assignment(lambda _: False)
    book.update(topics())
    book.take()
    assert book.started(FIRST, 1)
    assert book.update({}) == [FIRST]
    assert not book.started(SECOND, 1)
    book.observe_again(incident(FIRST))
    assert book.take() == {}


def test_an_incident_is_looked_at_at_once_and_later_each_time_it_repeats() -> None:
    book = Assignment(lambda _: False)
    book.update(topics(partitions=1))
    book.take()
    book.started(FIRST, 1)
    book.observe_again(incident(FIRST))
    assert set(book.take()) == {FIRST}
    book.started(FIRST, 1)
    book.observe_again(incident(FIRST))
    assert book.take() == {}, "not at once again"
    first_pause = book._pauses[FIRST][1]
    book.observe_again(incident(FIRST))
    assert book._pauses[FIRST][1] > first_pause
