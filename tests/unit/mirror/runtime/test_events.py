"""What a mirror writes about its progress, one JSON object a line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema

from drkit.cli.output import to_json
from drkit.mirror.runtime.events import ProgressEvent
from drkit.model.offsets import Watermark
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import LinkId

SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "schemas" / "mirror.schema.json").read_text())
AT = datetime(2026, 11, 27, 4, 3, tzinfo=UTC)


def event(*watermarks, gone=()):
    return ProgressEvent(
        LinkId("primary", "dr"), AT, "mirroring", None, 0, 0.0, watermarks, EngineStatistics(), 0.0, None, "w", AT, gone
    )


def progress(*watermarks, gone=()):
    document = json.loads(to_json(event(*watermarks, gone=gone).document()))
    jsonschema.validate(document, SCHEMA)
    return document


def test_the_lag_is_null_until_a_partition_has_begun():
    document = progress()
    assert (document["lag_records"], document["lag_seconds"]) == (None, None)
    assert event().lag_in_words() == "no partition has begun"


def test_the_lag_is_the_sum_of_records_and_the_oldest_end():
    behind = Watermark("t", 0, 1, 7, 7, 0, 10, 0, AT, behind_since=AT - timedelta(seconds=3))
    document = progress(behind, Watermark("t", 1, 1, 5, 5, 0, 5, 0, AT))
    assert (document["lag_records"], document["lag_seconds"]) == (3, 3.0)
    assert event(behind).lag_in_words() == "3 behind (3.0 s), 1 partition"


def test_the_lag_of_a_source_that_was_not_seen_for_long_is_not_0():
    """A primary that stands still was caught up when it was seen last."""
    old = Watermark("t", 0, 1, 10, 10, 0, 10, 0, AT - timedelta(seconds=31))
    document = progress(old, Watermark("t", 1, 1, 5, 5, 0, 5, 0, AT))
    assert (document["lag_records"], document["lag_seconds"]) == (None, 31.0)
    assert event(old).lag_in_words() == "not known how far behind, the source was not seen for 31.0 s"
    fresh = Watermark("t", 0, 1, 10, 10, 0, 10, 0, AT - timedelta(seconds=29))
    assert (event(fresh).lag_records, event(fresh).lag_seconds) == (0, 0.0)


def test_a_topic_that_the_source_has_deleted_is_not_behind_and_the_others_are_as_they_are():
    """Its line said that the source was not seen for as long as the deletion was held back on the target."""
    deleted = Watermark("old", 0, 1, 10, 10, 0, 10, 0, AT - timedelta(minutes=10))
    behind = Watermark("t", 0, 1, 7, 7, 0, 10, 0, AT, behind_since=AT - timedelta(seconds=3))
    document = progress(deleted, behind, gone=("old",))
    assert (document["lag_records"], document["lag_seconds"], document["gone"]) == (3, 3.0, ["old"])
    assert [each["topic"] for each in document["partitions"]] == ["t"]
    assert event(deleted, behind, gone=("old",)).lag_in_words() == (
        "3 behind (3.0 s), 1 partition; gone on primary and held on dr: old"
    )
    assert event(deleted, gone=("old",)).lag_in_words() == "gone on primary and held on dr: old"
