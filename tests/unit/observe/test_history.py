"""The history of a link: rings of a fixed size in the store."""

import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.observe.history import MEASURES, RINGS, StatusHistory, aggregate, measure
from drkit.observe.link_status import RecoveryPoint
from tests.support.pages.page import LATENCY, LINK, partition, snapshot, worker

MINUTES, QUARTERS = RINGS


def lagging(lag: int | None):
    return snapshot(partitions=(partition(lag=lag),), recovery_point=RecoveryPoint(lag, None if lag is None else 1.0))


def values(**known: float | None) -> tuple[float | None, ...]:
    return tuple(known.get(name) for name in MEASURES)


def test_a_sample_has_what_the_snapshot_has_and_nothing_for_what_is_not_known():
    at = now()
    status = snapshot(
        partitions=(partition(0, lag=5), partition(1, lag=7)), statistics=(worker(latency=LATENCY), worker())
    )
    found = dict(zip(MEASURES, measure(status, at), strict=True))
    assert (found["lag_records"], found["rpo_records"], found["records_per_second"]) == (12, 12, 2469.0)
    assert (found["latency_p99"], found["lag_seconds"]) == (0.013, 0.8)
    assert found["group_age_seconds"] == pytest.approx(3, abs=1)
    unknown = snapshot(partitions=(partition(0, lag=5), partition(1, lag=None)), groups=())
    found = dict(zip(MEASURES, measure(unknown, at), strict=True))
    assert (found["lag_records"], found["records_per_second"], found["group_age_seconds"]) == (None, None, None)
    silent = snapshot(source_reachable=False, recovery_point=RecoveryPoint(0, 7.0, lower_bound=True))
    found = dict(zip(MEASURES, measure(silent, at), strict=True))
    assert (found["lag_records"], found["rpo_records"], found["rpo_seconds"]) == (None, None, 7.0)


@pytest.mark.parametrize("state", ["sealed", "reversed"])
def test_a_link_that_was_failed_over_has_no_lag_that_could_be_drawn(state):
    moved = snapshot(state=state, partitions=(partition(lag=5),), statistics=(worker(latency=LATENCY),))
    assert measure(moved, now()) == values()


def test_of_a_step_the_worst_is_kept_and_one_that_is_not_known_is_the_worst():
    both = aggregate([values(lag_records=5, records_per_second=10), values(lag_records=9, records_per_second=20)])
    assert both == values(lag_records=9, records_per_second=15)
    one = aggregate([values(lag_records=5, records_per_second=10), values()])
    assert one == values(records_per_second=10)


def test_what_was_seen_is_there_after_a_restart(store):
    begin = now() - timedelta(minutes=40)
    first = StatusHistory(store, [LINK])
    for minute in range(30):
        first.add([lagging(minute)], begin + timedelta(minutes=minute))
    again = StatusHistory(store, [LINK]).document(LINK, "24h", now())
    assert [each for each in again["series"]["lag_records"] if each is not None] == list(range(29))
    assert again["step_seconds"] == MINUTES.step
    assert len(store.notes(LINK, MINUTES.kind)) == 29
    assert first.reason is None


def test_the_store_never_holds_more_than_a_ring(store):
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    history = StatusHistory(store, [LINK])
    for step in range(MINUTES.slots + 50):
        history.add([lagging(step)], begin + timedelta(minutes=step))
    kept = store.notes(LINK, MINUTES.kind)
    assert len(kept) == MINUTES.slots
    found = history.document(LINK, "24h", begin + timedelta(minutes=MINUTES.slots + 49))
    assert min(each for each in found["series"]["lag_records"] if each is not None) >= 48
    assert all(len(body) < 200 for body in kept.values())
    assert len(store.notes(LINK, QUARTERS.kind)) <= QUARTERS.slots


def test_an_earlier_lap_and_what_others_wrote_are_left_out(store):
    old = int((now() - timedelta(days=3)).timestamp()) // 60 * 60
    fresh = int((now() - timedelta(minutes=3)).timestamp()) // 60 * 60
    row = [1.0] * len(MEASURES)
    store.put_notes(
        LINK,
        MINUTES.kind,
        {
            "00001": json.dumps({"at": old, "v": row}),
            "00002": json.dumps({"at": fresh, "v": row}),
            "00003": "{",
            "00004": json.dumps({"at": fresh, "v": [1]}),
            "00005": json.dumps({"at": fresh, "v": ["<b>"] * len(MEASURES)}),
            "00006": '{"at": NaN, "v": []}',
            "00007": "[]",
        },
    )
    assert StatusHistory(store, [LINK]).document(LINK, "24h", now())["at"] == [fresh]


def test_the_last_hour_is_fine_and_a_gap_is_a_gap(store):
    begin = now() - timedelta(minutes=30)
    history = StatusHistory(store, [LINK])
    for second in (0, 2, 4, 600, 602):
        history.add([lagging(second)], begin + timedelta(seconds=second))
    found = history.document(LINK, "1h", now())
    assert None in found["series"]["lag_records"]
    assert [each for each in found["series"]["lag_records"] if each is not None][-1] == 602
    assert found["at"] == sorted(found["at"])
    assert len(found["at"]) == len(found["series"]["rpo_seconds"])


def test_a_look_that_failed_is_not_known_and_not_0(store):
    begin = now() - timedelta(minutes=5)
    history = StatusHistory(store, [LINK])
    history.add([lagging(4)], begin)
    history.add((), begin + timedelta(seconds=60))
    history.add([lagging(4)], begin + timedelta(seconds=120))
    series = history.document(LINK, "24h", now())["series"]["lag_records"]
    assert series == [4, None]


def test_a_store_that_is_away_costs_the_samples_and_says_so():
    class Away:
        def notes(self, *_):
            raise Unreachable("the store does not answer")

        put_notes = notes

    history = StatusHistory(Away(), [LINK])
    assert history.reason == "the store does not answer"
    begin = now() - timedelta(minutes=5)
    for minute in range(3):
        history.add([lagging(minute)], begin + timedelta(minutes=minute))
    assert history.reason == "the store does not answer"
    assert history.document(LINK, "24h", now())["series"]["lag_records"] == [0, 1]


def test_a_slow_store_holds_up_no_poll_while_the_history_is_read():
    history = StatusHistory(None, [LINK])

    class Slow:
        polled = False

        def notes(self, *_):
            poll = threading.Thread(target=history.add, args=([lagging(1)], now()), daemon=True)
            poll.start()
            poll.join(10)
            self.polled = not poll.is_alive()
            return {}

    slow = Slow()
    history.begin(slow)
    assert slow.polled


def test_a_store_that_goes_away_while_the_history_is_read_is_asked_no_further():
    asked = []

    class Away:
        def notes(self, link, kind):
            asked.append((link, kind))
            raise Unreachable("the store does not answer")

    history = StatusHistory(Away(), [LINK, LINK.reversed()])
    assert asked == [(LINK, MINUTES.kind)]
    assert history.reason == "the store does not answer"
