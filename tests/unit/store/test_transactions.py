"""What a watch of transactions keeps: all of it read back, bounded, and never mixed with an earlier watch's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drkit.model.groups.transactions import GroupTransaction
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.sqlite.backend import SqliteStore
from drkit.store.transactions import TransactionNotes, forget_transactions, transaction_history

LINK = LinkId("a", "b")
IN, OUT = TopicPartition("in", 0), TopicPartition("out", 1)


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    kept = SqliteStore(":memory:")
    yield kept
    kept.close()


def commit(number: int, *, known: bool = True) -> GroupTransaction:
    return GroupTransaction(number, {("g", IN): (number, "é")}, {OUT: (number, number + 1)} if known else None)


def test_what_is_saved_is_read_back_and_replaced_by_what_is_known_later(store: SqliteStore) -> None:
    assert transaction_history(store, LINK) is None
    notes = TransactionNotes(store, LINK, "first")
    notes.save([commit(1, known=False), GroupTransaction(2, None, {})], {OUT: 5}, {OUT: 9}, {}, {}, {})
    notes.save([commit(1), commit(40)], {OUT: 5}, {OUT: 11}, {OUT: 3}, {OUT: 10}, {"g": frozenset({"b", "a"})})
    history = transaction_history(store, LINK)
    assert history is not None
    assert history.transactions == (commit(1), GroupTransaction(2, None, {}), commit(40))
    assert (history.begun, history.read, history.dropped) == ({OUT: 5}, {OUT: 11}, {OUT: 3})
    assert history.elsewhere == {"g": frozenset({"a", "b"})}
    forget_transactions(store, LINK)
    assert transaction_history(store, LINK) is None


def test_an_earlier_watch_is_not_mixed_in(store: SqliteStore) -> None:
    TransactionNotes(store, LINK, "first").save([commit(n) for n in range(200)], {OUT: 0}, {OUT: 9}, {}, {}, {})
    TransactionNotes(store, LINK, "second").save([commit(1)], {OUT: 7}, {OUT: 9}, {}, {}, {})
    history = transaction_history(store, LINK)
    assert history is not None
    assert (history.watch, history.transactions) == ("second", (commit(1),))


def test_the_notes_are_bounded(store: SqliteStore) -> None:
    notes = TransactionNotes(store, LINK, "w")
    for number in range(0, 10_000, 50):
        notes.save([commit(n) for n in range(number, number + 50)], {OUT: 0}, {OUT: 9}, {}, {}, {})
    history = transaction_history(store, LINK)
    assert history is not None
    numbers = [each.number for each in history.transactions]
    assert numbers == list(range(numbers[0], 10_000)), "the newest ones, without a gap"
    assert 4_000 < len(numbers) <= 4_096
