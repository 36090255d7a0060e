"""The bench of clients: what applications say, and that the page has what was measured."""

import json
from pathlib import Path

import pytest

from bench.clients.client import Event, Spec, parse_event, parse_java_event, python
from bench.clients.table import PAGE, RESULTS, Disaster, Results, Waited, page_with, tables

PYTHON = python("librdkafka", "confluent-kafka", {"defaults": {}})


@pytest.mark.parametrize(
    ("parse", "line", "event"),
    [
        (parse_event, '{"at": 2500, "read": "dr.7"}', Event(2.5, True, "dr.7")),
        (parse_event, '{"at": 2500, "written": "me.7"}', Event(2.5, False, "me.7")),
        (parse_event, "2500 KafkaException: down", None),
        (
            parse_java_event,
            '{"timestamp":2500,"name":"record_data","key":null,"value":"3.7","topic":"t","partition":0,"offset":7}',
            Event(2.5, True, "3.7"),
        ),
        (
            parse_java_event,
            '{"timestamp":2500,"name":"producer_send_success","key":null,"value":"3.7"}',
            Event(2.5, False, "3.7"),
        ),
        (parse_java_event, '{"timestamp":2500,"name":"producer_send_error","value":"3.7","exception":"x"}', None),
        (parse_java_event, '{"timestamp":2500,"name":"records_consumed","count":1}', None),
        (parse_java_event, "[2026-11-24] WARN not JSON", None),
    ],
)
def test_what_an_application_says(parse, line, event):
    assert parse(line) == event


def test_the_command_tells_role_servers_and_settings(tmp_path):
    spec = Spec(True, "kafka.drkit.test:9092", "clients", "librdkafka-1", 1, {"socket.timeout.ms": 10}, tmp_path)
    command = PYTHON.command(spec)
    assert command[-2] == "read"
    assert json.loads(command[-1]) == {
        "bootstrap": "kafka.drkit.test:9092",
        "topic": "clients",
        "name": "librdkafka-1",
        "settings": {"socket.timeout.ms": 10},
    }


def results(**given):
    client = {"kind": "k", "settings": "defaults", "finds_by": "dns", "restarted": False, **given}
    disaster = Disaster("killed", "dns", 3.0, 3.5, 150.0, [Waited(**client)])
    machine = {"at": "now", "cores": 2, "cpu": "a cpu", "kafka": "4.3.1", "java": "17", "load_before": 0.1}
    return Results(machine, {"k": "A client 1.0"}, {"k": {"defaults": {}}}, {"go": "no compiler"}, [disaster])


def test_what_never_came_is_not_a_time_and_what_was_not_run_is_neither():
    measured = tables(results(read_seconds=None, write_seconds=4.25, never_read=None))
    assert "| A client 1.0 | defaults | **not within 150** / 4.2 |" in measured
    assert "- Not run: go: no compiler." in measured
    assert "| A client 1.0 | defaults | not run |" in tables(results(not_run="no server"))


def test_records_that_were_passed_over_are_told():
    measured = tables(results(read_seconds=1.0, write_seconds=1.0, read_again=3, never_read=2))
    assert (
        "Of 1 groups that read on dr, records that a group passed over: 2; records that one read again: 3" in measured
    )


def test_results_are_kept_whole(tmp_path):
    given = results(read_seconds=1.0)
    given.write(tmp_path / "clients.json")
    assert Results.load(tmp_path / "clients.json") == given


def test_the_page_has_what_was_measured():
    page = Path(PAGE).read_text()
    assert page == page_with(page, tables(Results.load(RESULTS))), "run: python -m bench.clients.table"
