"""Two Kafka clusters and Cassandra in containers, by compose and by testcontainers; skipped where no engine answers.

An engine is there if it answers and holds the images: a `docker` on PATH proves neither. Set
`TEST_PULL=1` to let missing images be pulled (a machine with a registry).
"""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import docker
import pytest
from cassandra.cluster import Cluster, NoHostAvailable
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from testcontainers.core.container import DockerContainer

from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[3]
COMPOSE_CONFIG = ROOT / "chaos" / "compose.drkit.toml"
KAFKA_IMAGE = "apache/kafka:4.3.1"
CASSANDRA_IMAGE = "cassandra:5.0"
START_SECONDS = 300.0
COMPOSE_TOKEN = "a-token-of-16-characters"  # noqa: S105 - made up

Command = Callable[..., tuple[int, str]]
"""`docker compose` with these words: its exit code and what it wrote."""


@dataclass(frozen=True)
class Estate:
    """Two clusters and a store, however they were started.

    `environment` points drkit's commands at them; `kill_primary` is SIGKILL for its broker.
    """

    primary: str
    dr: str
    environment: Mapping[str, str] = field(repr=False)
    kill_primary: Callable[[], None] = field(repr=False)


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    """A container engine that answers and holds the images; else the test is skipped with the reason."""
    client, why = _ask_engine()
    if client is None:
        pytest.skip(f"no container engine answers: {why}")
    for image in (KAFKA_IMAGE, CASSANDRA_IMAGE):
        try:
            client.images.get(image)
        except docker.errors.ImageNotFound:
            if os.environ.get("TEST_PULL") != "1":
                pytest.skip(f"the container engine has no image {image}, and TEST_PULL=1 is not set")
            client.images.pull(image)
    return client


def _ask_engine() -> tuple[docker.DockerClient | None, str]:
    """The engine's client, or why there is none. Docker's client leaks its socket when nobody answers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            client = docker.from_env()
            client.ping()
        except docker.errors.DockerException as error:
            why = str(error).splitlines()[0][:200]
        else:
            return client, ""
        gc.collect()
    return None, why


@pytest.fixture
def composed(engine: docker.DockerClient) -> Iterator[Estate]:
    """`docker compose up --wait` of the project's own file, under a unique name and on free ports."""
    _require_compose()
    with _up(engine, [ROOT / "docker-compose.yml"], {}, []) as (estate, _):
        yield estate


@contextmanager
def composed_with_drkit(
    engine: docker.DockerClient, image: str, also: Sequence[str] = (), **settings: str
) -> Iterator[tuple[Estate, int, Command]]:
    """The same with mirror and page of `deploy/compose`, by an image that was built: the clusters, the page's port, and
    `docker compose` for them. `also`: further services; `settings`: of the environment.
    """
    _require_compose()
    (port,) = free_ports(1)
    files = [ROOT / "docker-compose.yml", ROOT / "deploy" / "compose" / "compose.yaml"]
    more = {"DRKIT_IMAGE": image, "PAGE_PORT": str(port), "PAGE_TOKEN": COMPOSE_TOKEN}
    services = ["--no-build", "primary", "dr", "cassandra", "mirror", "page", *also]
    with _up(engine, files, {**more, **settings}, services) as (estate, command):
        yield estate, port, command


@contextmanager
def _up(
    engine: docker.DockerClient, files: Sequence[Path], more: Mapping[str, str], services: Sequence[str]
) -> Iterator[tuple[Estate, Command]]:
    """`docker compose up --wait` of these files; nothing is left of it at the end."""
    project = f"drkit-test-{uuid.uuid4().hex[:8]}"
    primary, dr, cassandra = free_ports(3)
    environment = {
        **os.environ,
        "PRIMARY_PORT": str(primary),
        "DR_PORT": str(dr),
        "CASSANDRA_PORT": str(cassandra),
        **more,
        **_settings(f"127.0.0.1:{primary}", f"127.0.0.1:{dr}", cassandra),
    }
    base = ["-p", project, *(word for file in files for word in ("-f", str(file)))]

    def command(*words: str) -> tuple[int, str]:
        done = _compose(base, *words, environment=environment)
        return done.returncode, done.stdout or done.stderr

    try:
        wait = ["up", "--wait", "--wait-timeout", str(int(START_SECONDS))]
        up = _compose(base, *wait, *services, environment=environment)
        if up.returncode:
            logs = _compose(base, "logs", "--tail", "20", environment=environment).stdout
            pytest.fail(f"docker compose up --wait ended with {up.returncode}: {up.stderr[-2000:]}\n{logs[-4000:]}")
        yield (
            Estate(
                f"127.0.0.1:{primary}",
                f"127.0.0.1:{dr}",
                environment,
                lambda: _compose(base, "kill", "primary", environment=environment, check=True),
            ),
            command,
        )
    finally:
        down = _compose(base, "down", "-v", "--timeout", "5", environment=environment)
    assert down.returncode == 0, down.stderr
    assert not engine.containers.list(all=True, filters={"label": f"com.docker.compose.project={project}"})
    assert not engine.volumes.list(filters={"label": f"com.docker.compose.project={project}"})


@pytest.fixture
def containers(engine: docker.DockerClient) -> Iterator[Estate]:  # noqa: ARG001  # skips where there is none
    """The same, each container started by testcontainers."""
    primary, dr, cassandra = free_ports(3)
    started: list[DockerContainer] = []
    try:
        nodes = {}
        for name, node in (
            ("primary", kafka(primary)),
            ("dr", kafka(dr)),
            ("cassandra", cassandra_node(cassandra)),
        ):
            node.start()
            started.append(node)
            nodes[name] = node
        for port in (primary, dr):
            wait_until(lambda port=port: _kafka_answers(port), START_SECONDS, f"Kafka on port {port}")
        wait_until(lambda: _cassandra_answers(cassandra), START_SECONDS, f"Cassandra on port {cassandra}")
        yield Estate(
            f"127.0.0.1:{primary}",
            f"127.0.0.1:{dr}",
            {**os.environ, **_settings(f"127.0.0.1:{primary}", f"127.0.0.1:{dr}", cassandra)},
            lambda: nodes["primary"].get_wrapped_container().kill(),
        )
    finally:
        for node in started:
            node.stop(force=True, delete_volume=True)


def kafka(port: int) -> DockerContainer:
    """One Kafka cluster of one combined node, reached on a port of loopback."""
    node = DockerContainer(KAFKA_IMAGE, mem_limit="1g")
    node.with_envs(
        KAFKA_NODE_ID="1",
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9094",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_INTER_BROKER_LISTENER_NAME="INTERNAL",
        KAFKA_LISTENERS="INTERNAL://localhost:9092,EXTERNAL://:9093,CONTROLLER://localhost:9094",
        KAFKA_ADVERTISED_LISTENERS=f"INTERNAL://localhost:9092,EXTERNAL://127.0.0.1:{port}",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
        KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="1",
        KAFKA_TRANSACTION_STATE_LOG_MIN_ISR="1",
        KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR="1",
        KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR="1",
        KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
        KAFKA_LOG_DIRS="/var/lib/kafka/data",
        KAFKA_HEAP_OPTS="-Xms256m -Xmx512m",
    )
    node.ports["9093/tcp"] = ("127.0.0.1", port)  # type: ignore[assignment]  # docker-py takes the address too
    for name in ("log4j2.yaml", "tools-log4j2.yaml"):  # see docker-compose.yml: the image writes to a copy of its own
        node.with_copy_into_container(_LOG_CONFIG.encode(), f"/mnt/shared/config/{name}")
    return node


def cassandra_node(port: int) -> DockerContainer:
    """One Cassandra node in data centre `dr`, reached on a port of loopback."""
    node = DockerContainer(CASSANDRA_IMAGE, mem_limit="2g")
    node.with_envs(
        CASSANDRA_CLUSTER_NAME="drkit",
        CASSANDRA_DC="dr",
        CASSANDRA_ENDPOINT_SNITCH="GossipingPropertyFileSnitch",
        MAX_HEAP_SIZE="512M",
    )
    node.ports["9042/tcp"] = ("127.0.0.1", port)  # type: ignore[assignment]  # docker-py takes the address too
    return node


_LOG_CONFIG = """\
Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout:
        Pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: STDOUT
    Logger:
      - name: org.apache.kafka
        level: WARN
"""


def _settings(primary: str, dr: str, cassandra: int) -> dict[str, str]:
    """What makes the checked-in configuration of compose fit these ports."""
    return {
        "DRKIT_CONFIG": str(COMPOSE_CONFIG),
        "DRKIT_CLUSTERS__PRIMARY__BOOTSTRAP_SERVERS": primary,
        "DRKIT_CLUSTERS__DR__BOOTSTRAP_SERVERS": dr,
        "DRKIT_STORE__URL": f"cassandra://127.0.0.1:{cassandra}/drkit?dc=dr&replication_factor=1",
    }


def _require_compose() -> None:
    if shutil.which("docker") is None or _compose([], "version").returncode:
        pytest.skip("the engine answers, but `docker compose` is not installed")


def _compose(
    base: list[str], *arguments: str, environment: Mapping[str, str] | None = None, check: bool = False
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", "compose", *base, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=check,
        timeout=START_SECONDS + 60,
    )


def free_ports(count: int) -> list[int]:
    """Ports that are free now; held open together so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _kafka_answers(port: int) -> bool:
    try:
        return bool(
            AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}).list_topics(timeout=2).brokers
        )
    except KafkaException:
        return False


def _cassandra_answers(port: int) -> bool:
    cluster = Cluster(["127.0.0.1"], port=port, connect_timeout=3)
    try:
        cluster.connect().execute("SELECT release_version FROM system.local")
    except (NoHostAvailable, OSError):
        return False
    finally:
        cluster.shutdown()
    return True
