"""The same snapshot as JSON, as metrics and as a page."""

import json
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from drkit.cli.output import to_json
from drkit.model.clock import now
from drkit.model.links import Problem
from drkit.model.offsets import Certainty
from drkit.model.topology import Link, LinkId
from drkit.observe.document import status_document
from drkit.observe.metrics import StatusCollector
from drkit.observe.page import MAX_ROWS, render_page
from drkit.observe.status import GroupStatus, LinkStatus, PartitionStatus, RecoveryPoint

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


def test_a_thousand_partitions_show_the_worst_and_say_how_many_more():
    many = tuple(partition(n, lag=n) for n in range(1000))
    text = page_text(render_page([snapshot(partitions=many)]))
    assert "flights:999" in text
    assert "flights:1 " not in text
    assert f"{1000 - MAX_ROWS} more in the JSON" in text


def test_no_status_says_why():
    assert "the store is away" in page_text(render_page([], "the store is away"))
