"""The same snapshot as JSON and as metrics."""

import json
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from drkit.cli.output import to_json
from drkit.model.clock import now
from drkit.model.errors import ConfigError
from drkit.model.offsets import Watermark
from drkit.model.statistics import EngineStatistics
from drkit.observe.link_status import RecoveryPoint, status_document
from drkit.observe.metrics.status_metrics import StatusCollector
from drkit.observe.metrics.worker_health import ENDED, FRESH_SECONDS, SILENT_SECONDS, WAITING, WorkerHealth
from drkit.observe.metrics.worker_metrics import LiveCollector, LiveLink
from drkit.observe.metrics.worker_server import serve_live
from drkit.observe.page.tables import worker_rows
from tests.support.pages.page import LATENCY, partition, snapshot, worker

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


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


@pytest.mark.parametrize(("count", "age"), [(0, 0.0), (12, 7.0)])
def test_a_recovery_point_that_is_a_lower_bound_is_exported_as_one(count, age):
    """0 and 12 stood there as if they were known, and DrkitRecoveryPointUnknown didn't fire."""
    status = snapshot(source_reachable=False, recovery_point=RecoveryPoint(count, age, lower_bound=True))
    metrics = exposed(StatusCollector(lambda: [status]))
    link = '{link="primary->dr"}'
    assert f"drkit_recovery_point_records{link}" not in metrics
    assert metrics[f"drkit_recovery_point_records_at_least{link}"] == count
    assert metrics.get(f"drkit_recovery_point_seconds{link}") == (age or None)


def test_group_positions_stamped_in_the_future_have_no_age():
    """0 s would say that they are fresh; the alert on old ones fires where there is none."""
    registry = CollectorRegistry()
    ahead = replace(snapshot().groups[0], captured_at=now() + timedelta(minutes=10))
    registry.register(StatusCollector(lambda: [snapshot(groups=(ahead, *snapshot().groups))]))
    text = generate_latest(registry).decode()
    assert "drkit_group_position_age_seconds{" not in text
    assert "drkit_group_positions{" in text


def test_no_snapshot_is_down():
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: None))
    assert "drkit_up 0.0" in generate_latest(registry).decode()


def test_the_numbers_of_workers_are_in_every_view():
    status = snapshot(statistics=(worker(latency=LATENCY), worker(worker="other:3:4:e", statistics=EngineStatistics())))
    document = json.loads(to_json(status_document([status])))
    jsonschema.validate(document, json.loads((SCHEMAS / "status.schema.json").read_text()))
    first, second = document["links"][0]["statistics"]
    assert first["statistics"]["batches_rebuilt"] == {"compacted": 2, "aborted": 3}
    assert (first["latency"]["p50_seconds"], second["latency"]) == (0.0042, None)
    assert second["statistics"]["in_flight_bytes"] is None
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


def test_the_numbers_of_workers_are_told_in_words():
    [one, other] = worker_rows(
        [snapshot(statistics=(worker(latency=LATENCY), worker(worker="other:3:4:e", statistics=EngineStatistics())))]
    )
    assert (one["worker"], one["in_flight"], one["latency"]) == (
        "host:12",
        "12 records · 3.4 kB",
        "p50 4 ms · p99 13 ms",
    )
    assert one["batches"] == "40 forwarded, 7 merged, 5 rebuilt (aborted 3, compacted 2), 4 markers matched"
    assert (other["in_flight"], other["latency"]) == ("? records · ? B", "no canary")


def test_a_canary_that_does_not_arrive_is_told():
    late = replace(LATENCY, p50=None, p99=None, samples=0, waiting_seconds=42.0)
    [row] = worker_rows([snapshot(statistics=(worker(latency=late, state="waiting"),))])
    assert row["latency"] == "none arrived · one is on its way for 42 s"


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
    health = WorkerHealth()
    port = serve_live(collector, health, "127.0.0.1", 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert "drkit_mirror_records_total{" in text
    assert "process_cpu_seconds_total" in text
    with pytest.raises(ConfigError, match=f"--metrics-port: 127.0.0.1:{port} can't be bound"):
        serve_live(collector, health, "127.0.0.1", port)
    assert [ask(port, path)[0] for path in ("/", "/livez", "/readyz", "/none")] == [200, 200, 503, 404]
    health.begin(["primary->dr"])
    health.tell("primary->dr", "mirroring")
    assert ask(port, "/readyz") == (
        200,
        {
            "ready": True,
            "not_ready": [],
            "links": [{"link": "primary->dr", "state": "mirroring", "reason": None, "age_seconds": 0.0}],
        },
    )
    assert (ask(port, "/livez", "HEAD"), ask(port, "/livez", "POST")[0]) == ((200, None), 405)


def ask(port: int, path: str, method: str = "GET"):
    """The code, and the document where there is one; ages as 0."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            code, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        code, body = error.code, error.read()
    try:
        document = json.loads(body)
    except ValueError:
        return code, None
    for each in document["links"]:
        each["age_seconds"] = 0.0
    return code, document


def test_a_process_is_live_unless_it_is_silent_and_ready_only_while_all_its_links_work():
    at = [0.0]
    health = WorkerHealth(lambda: at[0])

    def seen() -> tuple[bool, bool]:
        return health.live()[0], health.ready()[0]

    assert seen() == (True, False), "nothing is begun"
    health.begin(["a->b", "b->a"])
    health.tell("a->b", "mirroring")
    assert seen() == (True, False)
    assert health.ready()[1]["not_ready"] == ["b->a"]
    health.tell("b->a", "paused")
    assert seen() == (True, True)
    health.tell("b->a", WAITING, "the store doesn't answer")
    assert seen() == (True, False), "a restart would not help"
    health.tell("b->a", "degraded", "a partition is halted")
    at[0] = FRESH_SECONDS + 1
    assert seen() == (True, False)
    at[0] = SILENT_SECONDS + 1
    assert seen() == (False, False)
    assert health.live()[1]["silent"] == ["a->b", "b->a"]
    health.tell("a->b", "mirroring")
    health.tell("b->a", ENDED, "the link is sealed")
    assert seen() == (True, False)


def exposed(collector) -> dict[str, float]:
    """Samples by their written name and labels."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
