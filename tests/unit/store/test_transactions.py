"""What a watch of transactions keeps: all of it read back, bounded, and never mixed with an earlier watch's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.failover.positions.transactional_positions import place_by_transactions
from drkit.model.clock import now
from drkit.model.groups import GroupTransaction
from drkit.model.link_state import TopicState
from drkit.model.offsets import GroupPosition
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.sqlite.backend import SqliteStore
from drkit.store.transactions import TransactionNotes, forget_transactions, transaction_history

LINK = LinkId("a", "b")
AT = now()
IN, OUT = TopicPartition("in", 0), TopicPartition("out", 1)


def commit(number: int, *, known: bool = True) -> GroupTransaction:
    return GroupTransaction(number, {("g", IN): (number, "é")}, {OUT: (number, number + 1)} if known else None)


def test_what_is_saved_is_read_back_and_replaced_by_what_is_known_later(store: SqliteStore) -> None:
    assert transaction_history(store, LINK) is None
    notes = TransactionNotes(store, LINK, "first")
    notes.save([commit(1, known=False), GroupTransaction(2, None, {})], {OUT: 5}, {OUT: 9}, {}, {}, {}, {})
    notes.save([commit(1), commit(40)], {OUT: 5}, {OUT: 11}, {OUT: 3}, {OUT: 10}, {"g": frozenset({"b", "a"})}, {})
    history = transaction_history(store, LINK)
    assert history is not None
    assert history.transactions == (commit(1), GroupTransaction(2, None, {}), commit(40))
    assert (history.begun, history.read, history.dropped) == ({OUT: 5}, {OUT: 11}, {OUT: 3})
    assert history.elsewhere == {"g": frozenset({"a", "b"})}
    forget_transactions(store, LINK)
    assert transaction_history(store, LINK) is None


def test_an_earlier_watch_is_not_mixed_in(store: SqliteStore) -> None:
    TransactionNotes(store, LINK, "first").save([commit(n) for n in range(200)], {OUT: 0}, {OUT: 9}, {}, {}, {}, {})
    TransactionNotes(store, LINK, "second").save([commit(1)], {OUT: 7}, {OUT: 9}, {}, {}, {}, {})
    history = transaction_history(store, LINK)
    assert history is not None
    assert (history.watch, history.transactions) == ("second", (commit(1),))


def test_the_notes_are_bounded(store: SqliteStore) -> None:
    notes = TransactionNotes(store, LINK, "w")
    for number in range(0, 10_000, 50):
        notes.save([commit(n) for n in range(number, number + 50)], {OUT: 0}, {OUT: 9}, {}, {}, {}, {})
    history = transaction_history(store, LINK)
    assert history is not None
    numbers = [each.number for each in history.transactions]
    assert numbers == list(range(numbers[0], 10_000)), "the newest ones, without a gap"
    assert 4_000 < len(numbers) <= 4_096


@pytest.mark.parametrize("topic", ["in", "out"])
def test_what_concerns_a_topic_that_was_made_anew_is_not_known_in_the_new_one(store: SqliteStore, topic: str) -> None:
    other, result = TopicPartition("other", 0), TopicPartition("result", 0)
    beside = GroupTransaction(9, {("beside", other): (4, "")}, {result: (1, 2)})
    ids = {"in": "1", "out": "2", "other": "3", "result": "4"}
    begun = {OUT: 0, result: 0}
    commits = [GroupTransaction(0, None, {OUT: (0, 0)}), commit(1), beside]
    TransactionNotes(store, LINK, "w").save(commits, begun, {OUT: 9, result: 5}, {OUT: 1}, {OUT: 50}, {}, ids)
    states = {name: TopicState(name, name, of, "t", 1, 2, created_by_drkit=True) for name, of in ids.items()}
    store.put_topic_states(LINK, list(states.values()))
    history = transaction_history(store, LINK)
    assert history is not None
    assert (history.made_anew, history.begun) == ({}, begun)
    through = {OUT: 9, result: 5}
    assert place_by_transactions(history, GroupPosition("g", *IN, 1, "", AT), through).again == 0

    store.put_topic_states(LINK, [replace(states[topic], source_topic_id="5", epoch=2)])
    history = transaction_history(store, LINK)
    assert history is not None
    place = place_by_transactions(history, GroupPosition("g", *IN, 0, "", AT), through)
    assert (place.offset, place.again) == (0, None)
    assert f"{topic} was made anew" in place.reason
    place = place_by_transactions(history, GroupPosition("beside", *other, 4, "", AT), through)
    assert (place.offset, place.again) == (4, 0 if topic == "in" else None), "what committed before it wrote to out"
    if topic == "out":
        assert (history.begun, history.read, history.dropped, history.undecided) == ({result: 0}, {result: 5}, {}, {})
