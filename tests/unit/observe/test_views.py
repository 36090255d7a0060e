"""The same snapshot as JSON, as metrics and as a page."""

import json
import urllib.request
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from drkit.cli.wiring.output import to_json
from drkit.model.clock import now
from drkit.model.errors import ConfigError
from drkit.model.link_state import Problem
from drkit.model.offsets import Certainty, Watermark
from drkit.model.statistics import EngineStatistics, Latency, WorkerStatistics
from drkit.model.topology import Link, LinkId
from drkit.observe.metrics.link_metrics import StatusCollector
from drkit.observe.metrics.worker_metrics import LiveCollector, LiveLink, serve_live
from drkit.observe.page.status_page import MAX_ROWS, render_page
from drkit.observe.status import GroupStatus, LinkStatus, PartitionStatus, RecoveryPoint
from drkit.observe.status_document import status_document

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def partition(number: int = 0, *, lag: int | None = 12, topic: str = "flights") -> PartitionStatus:
    return PartitionStatus(
        topic=topic,
        target_topic=topic,
        partition=number,
        source_start=0,
        source_end=1200,
        mirrored_through=1188,
        target_start=0,
        target_end=1193,
        delta=5,
        lag_records=lag,
        lag_seconds=0.8,
    )


def snapshot(**changes: object) -> LinkStatus:
    at = now()
    group = GroupStatus("billing", "flights", 0, 900, 905, Certainty.EXACT, None, at - timedelta(seconds=3))
    values: dict = {
        "link": Link(LinkId("primary", "dr"), topics=(".*",)),
        "state": "mirroring",
        "reason": None,
        "source_reachable": True,
        "target_reachable": True,
        "worker": "host:1:2",
        "observed_at": at,
        "partitions": (partition(),),
        "groups": (group,),
        "problems": (),
        "recovery_point": RecoveryPoint(12, 0.8),
    }
    return LinkStatus(**{**values, **changes})


def worker(**changes: object) -> WorkerStatistics:
    at = now()
    counted = EngineStatistics(
        records=5000,
        bytes=1_200_000,
        batches_forwarded=40,
        batches_rebuilt={"compacted": 2, "aborted": 3},
        batches_merged=7,
        markers_matched=4,
        in_flight_records=12,
        in_flight_bytes=3_400,
    )
    plain = WorkerStatistics(
        "host:12:99:abcd", at, at - timedelta(hours=1), "mirroring", None, 1, 1234.5, 4_500_000.0, counted
    )
    return replace(plain, **changes)


LATENCY = Latency(0.0042, 0.013, 300, 300.0, 0.2, arrived=900, seconds=4.5)


class Text(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert name != "src", f"<{tag}> loads {value}"


def page_text(page: str) -> str:
    return " ".join(Text(page).text)


@pytest.mark.parametrize(
    "status", [snapshot(), snapshot(partitions=(), groups=(), recovery_point=RecoveryPoint(None, None))]
)
def test_the_json_keeps_the_schema(status):
    schema = json.loads((SCHEMAS / "status.schema.json").read_text())
    jsonschema.validate(json.loads(to_json(status_document([status]))), schema)


def test_metrics_carry_the_snapshot():
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: [snapshot()]))
    text = generate_latest(registry).decode()
    assert 'drkit_lag_records{link="primary->dr",partition="0",topic="flights"} 12.0' in text
    assert 'drkit_link_state{link="primary->dr",state="mirroring"} 1.0' in text
    assert 'drkit_link_state{link="primary->dr",state="sealed"} 0.0' in text
    assert "drkit_up 1.0" in text


def test_what_is_not_known_is_no_metric():
    registry = CollectorRegistry()
    status = snapshot(partitions=(partition(lag=None),), recovery_point=RecoveryPoint(None, None))
    registry.register(StatusCollector(lambda: [status]))
    text = generate_latest(registry).decode()
    assert "drkit_lag_records{" not in text
    assert "drkit_recovery_point_records{" not in text


def test_no_snapshot_is_down():
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: None))
    assert "drkit_up 0.0" in generate_latest(registry).decode()


def test_the_page_says_what_a_failover_would_lose_and_loads_nothing():
    text = page_text(render_page([snapshot(source_reachable=False)]))
    assert "12 records · 0.8 s" in text
    assert "primary does not answer" in text


def test_names_are_escaped_on_the_page():
    problem = Problem("retention_gap", "<b>x</b>", 0, "<script>1</script>", "look", halted=False, since=now())
    page = render_page([snapshot(problems=(problem,), partitions=(partition(topic="<i>"),))])
    assert "<script>" not in page
    assert "<i>" not in page
    assert "i" not in Text(page).tags


def test_the_page_names_the_place_of_a_problem_and_whether_it_stands_still():
    whole = Problem("fenced", "*", None, "dr is closed", "lift it", halted=False, since=now())
    one = Problem("retention_gap", "flights", 3, "gone", "look", halted=True, since=now())
    text = page_text(render_page([snapshot(problems=(whole, one), recovery_point=RecoveryPoint(1, 0.8))]))
    assert "* " not in text
    assert "dr is closed. lift it" in text
    assert "flights:3 (halted) gone. look" in " ".join(text.split())
    assert "1 record ·" in text


def test_a_thousand_partitions_show_the_worst_and_say_how_many_more():
    many = tuple(partition(n, lag=n) for n in range(1000))
    text = page_text(render_page([snapshot(partitions=many)]))
    assert "flights:999" in text
    assert "flights:1 " not in text
    assert f"{1000 - MAX_ROWS} more in the JSON" in text


def test_no_status_says_why():
    assert "the store is away" in page_text(render_page([], "the store is away"))


def test_the_numbers_of_workers_are_in_every_view():
    status = snapshot(statistics=(worker(latency=LATENCY), worker(worker="other:3:4:e", statistics=EngineStatistics())))
    document = json.loads(to_json(status_document([status])))
    jsonschema.validate(document, json.loads((SCHEMAS / "status.schema.json").read_text()))
    first, second = document["links"][0]["statistics"]
    assert first["statistics"]["batches_rebuilt"] == {"compacted": 2, "aborted": 3}
    assert (first["latency"]["p50_seconds"], second["latency"]) == (0.0042, None)
    assert second["statistics"]["in_flight_bytes"] is None
    text = page_text(render_page([status]))
    for part in ("host:12", "1,234/s · 4.5 MB/s", "12 records · 3.4 kB", "p50 4 ms · p99 13 ms", "no canary"):
        assert part in text, part
    assert "40 forwarded, 7 merged, 5 rebuilt (aborted 3, compacted 2), 4 markers matched" in text
    assert "? records · ? B" in text
    metrics = exposed(StatusCollector(lambda: [status]))
    assert metrics['drkit_mirror_records_total{link="primary->dr",worker="host:12:99:abcd"}'] == 5000
    assert 'drkit_mirror_in_flight_bytes{link="primary->dr",worker="other:3:4:e"}' not in metrics
    rebuilt = 'drkit_mirror_batches_rebuilt_total{link="primary->dr",reason="%s",worker="host:12:99:abcd"}'
    assert (metrics[rebuilt % "aborted"], metrics[rebuilt % "compacted"]) == (3, 2)
    labels = 'link="primary->dr",worker="host:12:99:abcd"'
    assert (
        metrics[f'drkit_canary_latency_seconds{{link="primary->dr",quantile="0.99",{labels.split(",")[1]}}}'] == 0.013
    )
    assert metrics[f"drkit_canary_latency_seconds_count{{{labels}}}"] == 900
    assert metrics[f"drkit_canary_latency_seconds_sum{{{labels}}}"] == 4.5
    assert metrics[f"drkit_canary_waiting_seconds{{{labels}}}"] == 0.2


def test_a_canary_that_does_not_arrive_is_told():
    late = replace(LATENCY, p50=None, p99=None, samples=0, waiting_seconds=42.0)
    text = page_text(render_page([snapshot(statistics=(worker(latency=late, state="waiting"),))]))
    assert "none arrived · one is on its way for 42 s" in text


def test_a_running_mirrors_own_metrics_have_lag_too():
    collector = LiveCollector()
    assert exposed(collector) == {}
    at = now()
    mark = Watermark("flights", 3, 1, 90, 95, 0, 100, 0, at, at - timedelta(seconds=4))
    collector.update(LiveLink("primary->dr", worker(at=at), (mark,)))
    metrics = exposed(collector)
    place = 'link="primary->dr",partition="3",topic="flights"'
    assert metrics[f"drkit_lag_records{{{place}}}"] == 10
    assert metrics[f"drkit_lag_seconds{{{place}}}"] == 4.0
    assert metrics[f"drkit_mirrored_through{{{place}}}"] == 90
    assert metrics['drkit_mirror_state{link="primary->dr",state="mirroring",worker="host:12:99:abcd"}'] == 1
    collector.update(LiveLink("primary->dr", worker(at=at, records_per_second=7.0), ()))
    assert exposed(collector)['drkit_mirror_records_per_second{link="primary->dr",worker="host:12:99:abcd"}'] == 7


def test_a_running_mirrors_metrics_are_served_on_loopback_and_a_taken_port_is_named():
    collector = LiveCollector()
    collector.update(LiveLink("primary->dr", worker(), ()))
    port = serve_live(collector, "127.0.0.1", 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert "drkit_mirror_records_total{" in text
    assert "process_cpu_seconds_total" in text
    with pytest.raises(ConfigError, match=f"--metrics-port: 127.0.0.1:{port} can't be bound"):
        serve_live(collector, "127.0.0.1", port)


def exposed(collector) -> dict[str, float]:
    """Samples by their written name and labels."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
