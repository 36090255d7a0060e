"""What isn't known of one number isn't known of all."""

import pytest

from drkit.model.totals import greatest, total


@pytest.mark.parametrize(
    ("values", "added", "most"),
    [
        ([1, 5, 2], 8, 5),
        ([0], 0, 0),
        ([0.5, -1.0], -0.5, 0.5),
        ([1, None, 2], None, None),
        ([None], None, None),
        ([], 0, None),
    ],
)
def test_the_sum_and_the_greatest(values, added, most):
    assert (total(values), greatest(iter(values))) == (added, most)
