"""The clients' ledgers and records, without a cluster."""

import sqlite3
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.drill.judge.history import RecordId
from drkit.drill.workload.client_files import ClientLedger, ClientSpec, LedgerReader
from drkit.drill.workload.producer import timestamp_of
from drkit.drill.workload.reading import digest_of, record_of, value_of


@given(seq=st.integers(0, 2**40), key=st.integers(0, 10**6), size=st.integers(100, 3000))
def test_a_record_is_known_again(seq, key, size):
    record = RecordId(f"k{key}", seq)
    value = value_of("run", record, size)
    assert len(value) == size
    assert record_of("run", record.key.encode(), value) == record


@pytest.mark.parametrize(
    ("drill", "key", "value"),
    [
        ("another", b"k1", value_of("run", RecordId("k1", 1), 100)),
        ("run", b"k2", value_of("run", RecordId("k1", 1), 100)),
        ("run", None, value_of("run", RecordId("k1", 1), 100)),
        ("run", b"k1", None),
        ("run", b"k1", b"\xff\xfe"),
        ("run", b"k1", b"[1]"),
        ("run", b"k1", b'{"drill": "run"}'),
        ("run", b"1", b'{"drill": "run", "key": 1, "seq": 2}'),
        ("run", b"k1", b'{"drill": "run", "key": "k1", "seq": "2"}'),
    ],
)
def test_what_is_no_record_of_the_drill_is_none(drill, key, value):
    assert record_of(drill, key, value) is None


def test_the_digest_covers_key_value_headers_and_timestamp():
    parts = (b"k", b"v", [("h", b"x")], 5)
    others = [
        (b"K", b"v", [("h", b"x")], 5),
        (b"k", b"V", [("h", b"x")], 5),
        (b"k", b"v", [("h", b"y")], 5),
        (b"k", b"v", [], 5),
        (b"k", b"v", [("h", None)], 5),
        (b"k", None, [("h", b"x")], 5),
        (b"kv", b"", [("h", b"x")], 5),
        (b"k", b"v", [("h", b"x")], 6),
    ]
    assert digest_of(*parts) == digest_of(*parts)
    assert len({digest_of(*each) for each in [parts, *others]}) == len(others) + 1
    assert 0 <= digest_of(*parts) < 2**63


def test_a_ledger_gives_back_what_it_was_given(tmp_path):
    path = tmp_path / "c.sqlite"
    reader = LedgerReader(path)
    assert (reader.count("acks"), reader.closed(), reader.attempts(), reader.ends()) == (0, False, [], {})
    ledger = ClientLedger(path)
    ledger.add("attempts", ("k0", 0, 1, 1.0, 77, None))
    ledger.add("attempts", ("k0", 1, 1, 2.0, 78, 1))
    ledger.add("attempts", ("k0", 2, 1, 3.0, 79, 2))
    ledger.add("aborts", (2,))
    ledger.add("acks", ("k0", 0, 40, 1.5))
    ledger.add("polls", (1, 0, 10, "k0", 0, 3.0))
    ledger.add("polls", (1, 0, 11, None, None, 3.1))
    ledger.add("positions", (0, 10, 3.0))
    ledger.add("positions", (2, 5, 3.0))
    ledger.keep(now=True)
    assert not reader.closed()
    assert (reader.count("attempts"), reader.count("acks"), reader.count("polls")) == (3, 1, 2)
    assert reader.attempts() == [
        ("k0", 0, 1, 1.0, 77, 40, 1.5, None, 0),
        ("k0", 1, 1, 2.0, 78, None, None, 1, 0),
        ("k0", 2, 1, 3.0, 79, None, None, 2, 1),
    ]
    assert reader.polls() == [(1, 0, 10, "k0", 0, 3.0), (1, 0, 11, None, None, 3.1)]
    assert reader.next_seqs() == {"k0": 3}
    assert reader.ends() == {0: 12, 2: 5}
    ledger.close()
    assert reader.closed()


def test_the_same_attempt_twice_is_a_defect_that_shows(tmp_path):
    ledger = ClientLedger(tmp_path / "c.sqlite")
    for _ in range(2):
        ledger.add("attempts", ("k0", 0, 1, 1.0, 77, None))
    with pytest.raises(sqlite3.IntegrityError):
        ledger.keep(now=True)
    ledger._db.close()  # `close` would try to keep it once more


def spec(**more):
    return ClientSpec("d", "l", {}, "t", 1, "g", 1, 1.0, 100, 0.5, 1.0, 1, {}, "earliest", "k", **more)


def test_late_records_are_among_those_of_every_key():
    """Each third record of each key is an hour late, by a clock that is a minute ahead."""
    late = spec(clock_skew_seconds=60.0, late_every=3, late_seconds=3600.0)
    for number in range(4):
        stamps = [timestamp_of(late, number, RecordId(f"k{number}", seq), 10_000.0) for seq in range(6)]
        assert sorted(stamps) == [6_460_000] * 2 + [10_060_000] * 4
        assert stamps[:3] == stamps[3:]


def test_without_late_records_a_timestamp_is_the_time():
    assert {timestamp_of(spec(), number, RecordId("k", 7), 10.0) for number in range(9)} == {10_000}


def test_a_spec_is_taken_once_and_readable_by_the_owner_alone(tmp_path):
    written = replace(spec(), properties={"sasl.password": "secret"})
    path = tmp_path / "spec.json"
    written.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert ClientSpec.take(path) == written
    assert not path.exists()
