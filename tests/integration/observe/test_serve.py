"""`drkit serve` and `drkit status` on real clusters."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import jsonschema
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry, generate_latest

from drkit.config import load_config
from drkit.kafka.admin.clusters import observing
from drkit.lab import Lab
from drkit.mirror.control import pause
from drkit.observe.metrics.status_metrics import StatusCollector
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.readiness import MIRROR, readiness
from drkit.observe.status import link_statuses
from drkit.store import open_store
from tests.support.links.estates import mirroring, own_link, texts
from tests.support.wait import wait_until

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.fixture
def topic(lab: Lab, unique_name: str) -> str:
    """A topic of two partitions with seven records on the first, on the primary only."""
    client = {"bootstrap.servers": lab.bootstrap("primary")}
    admin = AdminClient(client)
    for future in admin.create_topics([NewTopic(unique_name, 2, 1)]).values():
        future.result(30)
    producer = Producer(client)
    for number in range(7):
        producer.produce(unique_name, value=str(number), partition=0)
    assert producer.flush(30) == 0
    return unique_name


def config_for(lab: Lab, topic: str, folder: Path) -> Path:
    """The lab's configuration with a link that carries this topic only, and a store of its own."""
    text = lab.config_path.read_text().replace('topics = [".*"]', f'topics = ["{topic}"]')
    path = folder / "drkit.toml"
    path.write_text(text)
    open_store(load_config(path).store.plain_url).close()
    return path


def keeps_schema(document: object, name: str) -> None:
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def verb(config: Path, *words: str, code: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "drkit", *words, "--config", str(config), "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.lab
def test_doctor_and_link_keep_their_schemas(lab, topic, tmp_path):
    config = config_for(lab, topic, tmp_path)
    document = verb(config, "doctor", code=3)
    keeps_schema(document, "doctor")
    assert document["links"][0]["outcome"] == "fail", "nothing was ever mirrored"
    for words, direction in ((("pause", "--topic", topic), "active"), (("pause",), "paused"), (("resume",), "active")):
        document = verb(config, "link", words[0], "primary->dr", *words[1:])
        keeps_schema(document, "link")
        assert document["direction"] == direction
    keeps_schema(verb(config, "link", "pause", "dr->elsewhere", code=2), "error")


@pytest.mark.lab
def test_status_counts_what_was_never_mirrored(lab, topic, tmp_path):
    config = config_for(lab, topic, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "drkit", "status", "--config", str(config), "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json.loads((SCHEMAS / "status.schema.json").read_text()))
    link = document["links"][0]
    assert link["state"] == "stopped"
    assert [(p["partition"], p["source_end"], p["mirrored_through"], p["lag_records"]) for p in link["partitions"]] == [
        (0, 7, None, 7),
        (1, 0, None, 0),
    ]
    point = link["recovery_point"]
    assert (point["records"], point["seconds"], point["lower_bound"]) == (7, None, False)
    assert f"no mirror has recorded anything of {topic}:0: how long its records have been waiting" in point["reason"]


@pytest.mark.lab
def test_a_link_with_a_paused_topic_is_not_healthy_and_one_whose_age_is_not_known_exports_none(
    lab, tmp_path, unique_name
):
    """A mirror runs and moves nothing of one topic; then the link is paused, and a topic comes that nobody mirrored."""
    own = own_link(lab, tmp_path, unique_name)
    try:
        topic = own.create("primary", "t")
        own.produce("primary", topic, texts("early", 5))

        def mirror_check():
            with observing(own.config.clusters, None) as clusters:
                checks = readiness(own.config, own.store, own.link, clusters).checks
            return next(each for each in checks if each.name == MIRROR)

        def point():
            return link_statuses(own.config, own.store, [own.link])[0].recovery_point

        def metrics():
            registry = CollectorRegistry()
            registry.register(StatusCollector(lambda: link_statuses(own.config, own.store, [own.link])))
            return generate_latest(registry).decode()

        with mirroring(own):
            wait_until(lambda: point().records == 0, timeout=120, what="what came early to be mirrored")
            assert mirror_check().outcome is CheckOutcome.OK
            pause(own.store, own.link, topic=topic)
            check = mirror_check()
            assert check.outcome is CheckOutcome.WARN
            assert f"{topic} is paused: `drkit link resume" in check.reason
        pause(own.store, own.link)
        own.produce("primary", topic, texts("more", 3))
        assert "drkit_recovery_point_seconds{" in metrics()

        new = own.create("primary", "new")
        own.produce("primary", new, texts("unseen", 2))

        text = metrics()
        assert 'drkit_link_state{link="primary->dr",state="paused"} 1.0' in text
        assert 'drkit_recovery_point_records{link="primary->dr"} 10.0' in text
        assert "drkit_recovery_point_seconds{" not in text, "DrkitRecoveryPointUnknown fires by that"
        assert f'drkit_lag_seconds{{link="primary->dr",partition="0",topic="{topic}"}}' in text
        assert f"no mirror has recorded anything of {new}:0" in (point().reason or "")
    finally:
        own.store.close()


@pytest.mark.lab
def test_serve_answers_until_it_is_told_to_stop(lab, topic, tmp_path):
    config = config_for(lab, topic, tmp_path)
    server = subprocess.Popen(
        [sys.executable, "-m", "drkit", "serve", "--config", str(config), "--listen", "127.0.0.1:0", "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline() + server.stdout.readline() + server.stdout.readline())
        keeps_schema(told, "serve")
        url = told["url"]
        with urllib.request.urlopen(f"{url}/status.json", timeout=30) as answer:
            document = json.load(answer)
        keeps_schema(document, "status")
        assert document["links"][0]["recovery_point"]["records"] == 7
        with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
            assert (
                f'drkit_lag_records{{link="primary->dr",partition="0",topic="{topic}"}} 7.0' in answer.read().decode()
            )
        with urllib.request.urlopen(f"{url}/api/topics?q={topic}", timeout=30) as answer:
            assert [row["lag_records"] for row in json.load(answer)["rows"]] == [7]
        head = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(head, timeout=30) as answer:
            assert (answer.status, answer.read()) == (200, b"")
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/other", timeout=30)
        server.send_signal(signal.SIGTERM)
        _, stderr = server.communicate(timeout=30)
        assert server.returncode == 0
        assert not stderr
    finally:
        server.kill()
        server.communicate()


@pytest.mark.lab
def test_elsewhere_than_on_loopback_it_needs_a_token(lab, tmp_path, topic):
    config = config_for(lab, topic, tmp_path)
    refused = verb(config, "serve", "--listen", "0.0.0.0:0", code=2)
    keeps_schema(refused, "error")
    assert "the page has no authentication" in refused["error"]["what"]
    config.write_text(config.read_text() + '\n[serve]\ntoken = { env = "NOT_SET_ANYWHERE" }\n')
    assert "NOT_SET_ANYWHERE" in verb(config, "serve", code=2)["error"]["what"]


@pytest.mark.lab
def test_a_taken_address_is_a_usage_error(lab, tmp_path, topic):
    config = config_for(lab, topic, tmp_path)
    port = lab.bootstrap("primary").rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "drkit", "serve", "--config", str(config), "--listen", f"127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert port in done.stderr
    assert "Traceback" not in done.stderr
