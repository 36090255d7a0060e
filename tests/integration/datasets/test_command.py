"""`drkit lab load` as people and programs run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.log_reader import read_log
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("commands of loads", 4)]

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


def _command(lab, *arguments):
    return [sys.executable, "-m", "drkit", "lab", "load", *arguments, "--dir", str(lab.dir)]


def _run(lab, *arguments):
    return subprocess.run(_command(lab, *arguments), capture_output=True, text=True, check=False, timeout=180)


def _document(text, schema="lab"):
    document = json.loads(text)
    jsonschema.validate(document, json.loads((SCHEMAS / f"{schema}.schema.json").read_text()))
    return document


@pytest.mark.usefixtures("admin")
def test_its_json_is_one_document_of_the_schema(loading_lab, cluster):
    done = _run(loading_lab, "flights", "--limit", "500", "--output", "json")
    assert done.returncode == 0, done.stderr
    document = _document(done.stdout)
    assert (document["outcome"], document["events_sent"], document["unacknowledged"]) == ("complete", 500, 0)
    assert [group["group"] for group in document["groups"]] == ["flights-live", "flights-lagging", "flights-ahead"]
    seen = {topic["topic"]: topic["acknowledged"] for topic in document["topics"]}
    for topic, acknowledged in seen.items():
        assert len(read_log(cluster.bootstrap_servers, topic, committed=True)) == acknowledged


@pytest.mark.usefixtures("admin")
def test_orders_in_transactions_without_groups_for_people(loading_lab):
    done = _run(loading_lab, "orders", "--count", "100", "--transactional", "--no-groups", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert "orders on primary: 100 of 100 events" in done.stdout
    assert "1 committed, 1 aborted" in done.stdout
    assert "orders-live" not in done.stdout
    again = _run(loading_lab, "orders", "--count", "100", "--no-groups")
    assert "appending to what exists: orders.orders, orders.items" in again.stderr


def test_another_cluster_of_the_lab(loading_lab):
    done = _run(loading_lab, "orders", "--count", "20", "--no-groups", "--cluster", "other", "-o", "json")
    assert done.returncode == 0, done.stderr
    orders = read_log(loading_lab.bootstrap("other"), "orders.orders", committed=True)
    assert len(orders) == 20


@pytest.mark.parametrize("transactional", sampled("a load and Ctrl-C", [False, True], 1))
def test_ctrl_c_says_how_far_it_came(admin, loading_lab, cluster, transactional):
    arguments = ["orders", "--count", "1000000", "--rate", "2000", "-o", "json", *(["--transactional"] * transactional)]
    process = subprocess.Popen(
        _command(loading_lab, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    tps = [TopicPartition("orders.orders", number) for number in range(4)]
    try:
        wait_until(
            lambda: sum(admin.end_offsets(tps, committed=True).values()) > 200, timeout=60, what="records on the log"
        )
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1
    document = _document(stdout)
    assert (document["outcome"], document["unacknowledged"]) == ("interrupted", 0)
    assert 0 < document["events_sent"] < 1_000_000
    assert len(read_log(cluster.bootstrap_servers, "orders.orders", committed=True)) == document["events_sent"]
    assert "ended early" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["flights", "--rate", "-5"], 2, "rate must be above 0"),
        (["flights", "--rate", "0"], 2, "rate must be above 0"),
        (["flights", "--rate", "many"], 2, "--rate"),
        (["flights", "--repeat", "-1"], 2, "repeat must be at least 1"),
        (["flights", "--limit", "0"], 2, "limit must be at least 1"),
        (["flights", "--count", "5"], 2, "count is only for orders"),
        (["flights", "--topic", "trains"], 2, "trains is not a topic"),
        (["trains"], 2, "trains"),
        (["orders", "--cluster", "mars"], 2, "no cluster 'mars'"),
        (["orders", "--delivery-timeout", "0"], 2, "at least 1"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(loading_lab, arguments, code, said):
    done = _run(loading_lab, *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_without_a_lab_it_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "drkit", "lab", "load", "orders", "--dir", str(tmp_path), "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3
    assert "there is no lab" in _document(done.stdout, "error")["error"]["what"]


@pytest.mark.usefixtures("admin")
def test_a_cluster_that_stands_still_or_is_down_is_said_with_the_remedy(loading_lab):
    loading_lab.pause("primary-1")
    still = _run(loading_lab, "orders", "--count", "10", "-o", "json")
    loading_lab.resume("primary-1")
    loading_lab.kill("primary-1")
    down = _run(loading_lab, "orders", "--count", "10", "-o", "json")
    for done in (still, down):
        assert done.returncode == 1
        error = _document(done.stdout, "error")["error"]
        assert "primary" in error["what"]
        assert "drkit lab status" in error["remedy"]
