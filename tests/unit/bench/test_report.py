import json
from pathlib import Path

import pytest

from bench.__main__ import BACKLOG, LIVE, ROOT, earlier
from bench.audit import render as render_audit
from bench.report import TABLES, medians, number, percentile, render, shown, targets
from drkit.model.errors import ConfigError


@pytest.fixture
def results():
    empty = {kind: [] for kind in TABLES}
    return {"machine": {"cores": 2, "kafka": "4.3.1"}, "extent": "full", "failures": [], **empty}


def backlog(peer="drkit", case="large", repeat=1, **changes):
    row = {"case": case, "peer": peer, "repeat": repeat, "mirrored_records": 10_000_000, "records_per_second": 1e6}
    row |= {"cpu_seconds_per_million": 0.5, "launch_seconds": 1.2, "peak_rss_mib": 150.0, "mapping_bytes": 200}
    return row | {"rss_first_half_mib": 140.0, "rss_second_half_mib": 147.0} | changes


def judged(results):
    return {what: measured for what, measured, *_ in targets(results)}


def test_repeats_are_shown_as_one_row_of_medians_and_what_is_not_known_does_not_count(results):
    results["backlog"] = [backlog(repeat=n, records_per_second=rate) for n, rate in ((1, 9.0), (2, None), (3, 5.0))]
    assert [row["records_per_second"] for row in shown(results, "backlog")] == [7.0]
    assert medians([{"rows": 10}, {"rows": 20}]) == [{"rows": 10}, {"rows": 20}], "no repeats of one measurement"


def test_drkit_is_compared_with_the_other_mirror_of_the_same_case(results):
    results["backlog"] = [
        backlog("mirrormaker", records_per_second=250_000.0, cpu_seconds_per_million=4.0),
        backlog(),
        backlog(case="ten"),
    ]
    rows = {(row["case"], row["peer"]): row for row in shown(results, "backlog")}
    assert (rows["large", "drkit"]["speed"], rows["large", "drkit"]["saved"]) == (4.0, 8.0)
    assert "speed" not in rows["ten", "drkit"]
    found = judged(results)
    assert found["1,000 a batch: records/s of MirrorMaker 2's"] == 4.0
    assert found["150 a batch: records/s of MirrorMaker 2's"] is None


def test_what_was_not_measured_is_never_met(results):
    text = render(results, {})
    assert "| not measured |" in text
    assert "| met |" not in text


def test_each_kind_of_measurement_is_judged(results):
    results["backlog"] = [backlog(), backlog(case="large-100p", peak_rss_mib=148.0)]
    live = {"case": "live", "repeat": 1, "p50_ms": 1.0}
    results["live"] = [
        live | {"peer": peer, "p99_ms": p99, "cpu_share": share}
        for peer, p99, share in (("drkit", 8.0, 0.2), ("mirrormaker", 40.0, 0.8), ("bare", 5.0, 0.1))
    ]
    results["translate"] = [{"peer": "drkit", "kind": "plain", "commits": 400, "exact": 399}]
    results["lookup"] = [{"rows": 10, "p50_ms": 1.0, "p99_ms": 2.0}, {"rows": 1000, "p50_ms": 1.2, "p99_ms": 4.0}]
    results["moves"] = [
        {"tool": tool, "repeat": 1, "seconds": seconds}
        for tool, seconds in (("kafka-consumer-groups", 20.0), ("drkit", 4.0))
    ]
    results["sites"] = [
        {"case": case, "way": "killed", "repeat": n, "seconds": s, "stages": {"fence": 0.1}}
        for case, n, s in (("site", 1, 4.0), ("site", 2, 6.0), ("site-30", 1, 2.5))
    ]
    results["large_links"] = [
        {
            "case": "partitions-10000",
            "repeat": 1,
            "moving": 12.0,
            "again_moving": 9.0,
            "idle_share": 0.04,
            "peak_rss_mib": 190.0,
            "doctor": 7.0,
        }
    ]
    results["outages"] = [
        {"policy": policy, "repeat": 1, "alone_p99_ms": 3.0, "p99_ms": p99}
        for policy, p99 in (("adaptive", 4.5), ("unlimited", 60.0))
    ]
    found = judged(results)
    assert found["live: p99 of MirrorMaker 2's"] == 0.2
    assert found["live: p99 of a bare forwarder's"] == 1.6
    assert found["live: CPU of MirrorMaker 2's"] == 0.25
    assert found["memory with 100 partitions, more than one record a batch, MiB"] == 148.0
    assert found["memory, second half of the longest backlog against the first"] == 1.05
    assert found["mapping rows of a topic without holes, bytes per million records"] == 20.0
    assert found["translated positions that aren't exact"] == 1
    assert found["lookup p99 with the most rows against the fewest"] == 2.0
    assert found["moving all groups: time of Kafka's own tool of drkit's"] == 5.0
    assert found["10,000 partitions: launch to all moving, s"] == 12.0
    assert found["10,000 partitions: doctor, s"] == 7.0
    assert found["site whose sources are killed: launch to end of its failover, the slowest, s"] == 6.0
    assert found["site-30 whose sources are killed: launch to end of its failover, the slowest, s"] == 2.5
    assert found["site-5000 whose sources are killed: launch to end of its failover, the slowest, s"] is None
    assert found["a producer on the target while a backlog is copied: p99, ms"] == 4.5
    assert found["the same, of its p99 undisturbed"] == 1.5
    text = render(results, {"live": "5,000 records/s"})
    assert "| translated positions that aren't exact | 1 | ≤ 0 | not met |" in text
    assert "| live: 5,000 records/s | MirrorMaker 2 |" in text


def test_the_report_names_machine_and_failures(results):
    results["failures"].append("live: the producer could not keep the rate\nits last words")
    text = render(results, {})
    assert "| kafka | 4.3.1 |" in text
    assert "- live: the producer could not keep the rate\n" in text
    assert "its last words" not in text


def test_the_pages_have_what_was_measured():
    kept = json.loads((ROOT / "bench" / "results.json").read_text())
    described = {case.name: str(case) for case in (*BACKLOG, *LIVE)}
    assert (ROOT / "bench" / "RESULTS.md").read_text() == render(kept, described)
    kept = json.loads((ROOT / "bench" / "audit.json").read_text())
    assert (ROOT / "bench" / "AUDIT.md").read_text() == render_audit(kept["machine"], kept["rows"], kept["starts"])


def test_what_is_not_known_is_a_dash():
    assert number(None) == "-"
    assert [number(each) for each in (1234, 1234.5, 12.34, 0.12345, "two")] == [
        "1,234",
        "1,234",
        "12.3",
        "0.123",
        "two",
    ]


def test_percentiles_are_by_nearest_rank_and_never_of_nothing():
    assert [percentile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 2.0, 4.0, 4.0]
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_rows_of_cases_that_are_not_measured_again_stay(tmp_path: Path):
    path = tmp_path / "results.json"
    assert earlier(path, "full")["live"] == []
    path.write_text(json.dumps({"extent": "full", "live": [{"case": "live"}]}))
    assert earlier(path, "full")["live"] == [{"case": "live"}]
    assert earlier(path, "quick")["live"] == []
    path.write_text("[]")
    with pytest.raises(ConfigError, match="holds no results"):
        earlier(path, "full")
