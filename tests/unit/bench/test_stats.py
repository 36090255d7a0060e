import pytest

from bench.stats import median, percentile, ratio


def test_percentile_is_a_value_that_was_measured():
    ordered = [1.0, 2.0, 3.0, 4.0]
    assert percentile(ordered, 0.5) == 2.0
    assert percentile(ordered, 0.51) == 3.0
    assert percentile(ordered, 0.99) == 4.0
    assert percentile(ordered, 1.0) == 4.0
    assert percentile(ordered, 0.0) == 1.0


def test_percentile_of_nothing_is_refused():
    with pytest.raises(ValueError, match="of nothing"):
        percentile([], 0.5)


def test_percentile_wants_a_share():
    with pytest.raises(ValueError, match="not between 0 and 1"):
        percentile([1.0], 99)


def test_median_leaves_out_what_is_not_known():
    assert median([None, 1.0, 9.0, 2.0]) == 2.0
    assert median([None]) is None
    assert median([]) is None


def test_ratio_of_something_unknown_is_unknown():
    assert ratio(6.0, 3.0) == 2.0
    assert ratio(0.0, 3.0) == 0.0
    assert ratio(None, 3.0) is None
    assert ratio(6.0, None) is None
    assert ratio(6.0, 0.0) is None
