"""drkit's own images: built, run as the manifests run them, mirroring between the clusters of the compose files, and
auditing there."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

import docker
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from docker.models.containers import Container

import drkit
from tests.support.clusters.containers import COMPOSE_TOKEN, ROOT, Estate, composed_with_drkit, free_ports
from tests.support.wait import wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1_200)]

UID = 10_001
RESTRICTED: Mapping[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "tmpfs": dict.fromkeys(("/var/lib/drkit", "/var/cache/drkit"), f"uid={UID},gid={UID},mode=0700,exec")
    | {"/tmp": "exec"},  # noqa: S108
    "network_mode": "none",
}
"""As the pods of deploy/kubernetes are; what these commands need of a network is nothing."""
CONFIG = """\
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
[clusters.dr]
bootstrap_servers = "127.0.0.1:2"
[store]
url = "sqlite:////var/lib/drkit/drkit.db"
[[links]]
source = "primary"
target = "dr"
topics = ["x"]
"""


def ran(engine: docker.DockerClient, image: str, *words: str, **more: Any) -> tuple[int, str, str]:
    """A command in a container of its own: exit code, stdout, stderr."""
    container = engine.containers.run(image, list(words), detach=True, **{**RESTRICTED, **more})
    try:
        code = container.wait(timeout=300)["StatusCode"]
        out, err = (container.logs(stdout=which, stderr=not which).decode() for which in (True, False))
    finally:
        container.remove(force=True)
    return code, out, err


def test_the_image_runs_restricted_and_holds_the_base_installation(
    engine: docker.DockerClient, drkit_image: str, tmp_path
) -> None:
    assert engine.images.get(drkit_image).attrs["Config"]["User"] == f"{UID}:{UID}"
    assert ran(engine, drkit_image, "--version") == (0, f"drkit {drkit.__version__}\n", "")
    (tmp_path / "drkit.toml").write_text(CONFIG)
    tmp_path.chmod(0o755)
    mounted = {"volumes": {str(tmp_path): {"bind": "/etc/drkit", "mode": "ro"}}}
    code, out, err = ran(engine, drkit_image, "config", "check", "--output", "json", **mounted)
    assert code == 0, out + err
    code, out, _ = ran(engine, drkit_image, "audit", "--output", "json", **mounted)
    assert (code, json.loads(out)["error"]["kind"]) == (2, "ExtraMissing"), "audits are of the image with all extras"
    who = "import pwd, os; print(os.getuid(), pwd.getpwuid(os.getuid()).pw_dir)"
    code, out, _ = ran(engine, drkit_image, "-c", who, entrypoint="python")
    assert (code, out) == (0, f"{UID} /var/lib/drkit\n"), "Spark starts as no user without a home"
    code, out, err = ran(engine, drkit_image, "-c", "open('/opt/drkit/x', 'w')", entrypoint="python")
    assert code != 0
    assert "Read-only file system" in err


def page(port: int, path: str) -> tuple[int, str]:
    """What the page answers to one who has the token."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {COMPOSE_TOKEN}"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def write(estate: Estate, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": estate.primary})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": estate.primary})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0


def has_prometheus(engine: docker.DockerClient) -> bool:
    compose = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())
    image = compose["services"]["prometheus"]["image"].partition(":-")[2].rstrip("}")
    return any(image in each.tags for each in engine.images.list())


def scraped(port: int) -> dict[str, str]:
    """How the last scrape of each job went, as Prometheus says; nothing where it doesn't answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=30) as answer:
            found = json.load(answer)["data"]["activeTargets"]
    except OSError:
        return {}
    return {each["labels"]["job"]: each["health"] for each in found}


def audited(engine: docker.DockerClient, image: str, beside: Container) -> dict[str, Any]:
    """The result of an audit as the CronJob runs it, in the network and with the configuration of a container."""
    where = {"network_mode": f"container:{beside.id}", "volumes_from": [beside.id], "mem_limit": "2g"}
    words = ("audit", "--fail-on", "unseen:15m", "--output", "json")
    code, out, err = ran(engine, image, *words, **where, environment={"PAGE_TOKEN": COMPOSE_TOKEN})
    assert code == 0, out + err
    found: dict[str, Any] = json.loads(out)
    return found


def test_compose_with_mirror_and_page_and_an_audit_by_the_image_with_all_extras(
    engine: docker.DockerClient, drkit_image: str, drkit_all_image: str
) -> None:
    (watched,) = free_ports(1)
    also = ["prometheus"] if has_prometheus(engine) else []  # its image can be had from a registry only
    with composed_with_drkit(engine, drkit_image, also, PROMETHEUS_PORT=str(watched)) as (estate, port, compose):
        write(estate, "orders", 500)

        def mirrored() -> bool:
            code, text = page(port, "/status.json")
            assert code == 200, text
            (link,) = json.loads(text)["links"]
            rows = [each for each in link["partitions"] if each["topic"] == "orders"]
            return len(rows) == 2 and all(each["mirrored_through"] == 250 and each["lag_records"] == 0 for each in rows)

        wait_until(mirrored, 120, "all of the topic on dr")
        assert page(port, "/healthz")[0] == 200
        code, metrics = page(port, "/metrics")
        assert code == 200
        assert 'drkit_link_state{link="primary->dr",state="mirroring"} 1.0' in metrics
        if also:
            wait_until(lambda: scraped(watched) == {"drkit": "up", "drkit-mirror": "up"}, 120, "both to be scraped")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json", timeout=30)
        assert refused.value.code in {401, 403}, "nobody reads it without the token"
        refused.value.close()

        code, text = compose("exec", "-T", "mirror", "drkit", "doctor", "--output", "json")
        checks = {each["check"]: each["outcome"] for link in json.loads(text)["links"] for each in link["checks"]}
        assert checks, f"{code}: {text}"
        (container,) = engine.containers.list(filters={"name": "mirror", "ancestor": drkit_image})
        audit = audited(engine, drkit_all_image, container)
        orders = [part["matched"] for part in audit["topics"] if part["topic"] == "orders"]
        assert (audit["verdict"], orders) == ("clean", [250, 250])
        assert compose("kill", "--signal", "SIGHUP", "mirror")[0] == 0
        write(estate, "later", 10)
        wait_until(lambda: '"later"' in page(port, "/status.json")[1], 120, "a topic that came after the reload")

        container.stop(timeout=60)
        container.reload()
        assert container.attrs["State"]["ExitCode"] == 0, "SIGTERM ends it in order"
