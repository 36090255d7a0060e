"""What a live partition lost since its topic was kept, without having been brought back."""

import pytest

from drkit.failover.context.live_log import GoneSince, LiveLog, gone_since
from drkit.model.offsets import OffsetMapping

KEPT = LiveLog("id", {0: 100}, {0: 200})


def gone(start=100, end=200, brought_back_from=None, cut=None):
    rows = [] if brought_back_from is None else [OffsetMapping("t", 0, 1, brought_back_from, 0)]
    return gone_since(KEPT, LiveLog("id", {0: start}, {0: end}), rows, 0, cut)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({}, GoneSince(0, 0, 0)),
        ({"brought_back_from": 100}, GoneSince(0, 0, 0)),
        ({"brought_back_from": 100, "start": 150}, GoneSince(0, 0, 0)),
        ({"brought_back_from": 130, "start": 130}, GoneSince(30, 0, 30)),
        ({"brought_back_from": 130, "start": 110}, GoneSince(30, 0, 10)),
        # nothing was brought back: a mirror that runs beside is caught up with a partition that was emptied
        ({"start": 200}, GoneSince(100, 0, 100)),
        ({"start": 150}, GoneSince(50, 0, 50)),
        ({"brought_back_from": 100, "cut": 180}, GoneSince(0, 20, 0)),
        ({"start": 0, "end": 0, "cut": 0}, GoneSince(0, 100, 0)),
        ({"start": 150, "cut": 120}, GoneSince(50, 50, 50)),
    ],
)
def test_what_is_gone_is_counted_once(now, expected):
    assert gone(**now) == expected
