from collections.abc import Iterator
from contextlib import closing

import pytest

from bench.lookup import _LINK, _Mapping, _row, _timed
from drkit.store import Store, open_store


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path / 'drkit.db'}")) as opened:
        opened.append_mappings(_LINK, [_row(number) for number in range(50)])
        yield opened


def test_every_lookup_is_timed_and_its_answer_checked(store):
    small, large = _Mapping("small", 10, 1.0), _Mapping("large", 50, 2.0)
    runs = _timed([(small, store), (large, store)], 20)
    assert [(run["rows"], run["lookups"], run["load_seconds"]) for run in runs] == [(10, 20, 1.0), (50, 20, 2.0)]
    assert all(0 < run["p50_ms"] <= run["p99_ms"] for run in runs)


def test_a_wrong_answer_ends_the_measurement(store):
    with pytest.raises(RuntimeError, match="the store says"):
        _timed([(_Mapping("more than there are", 500, 1.0), store)], 20)


def test_each_row_has_a_delta_of_its_own():
    assert len({_row(number).delta for number in range(100)}) == 100
