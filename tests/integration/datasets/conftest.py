"""A lab for these tests alone: the data sets' topics have fixed names, and its cluster is killed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab import Lab
from tests.support.wait import wait_until

GROUPS = [f"{dataset}-{behaviour}" for dataset in ("flights", "orders") for behaviour in ("live", "lagging", "ahead")]


@pytest.fixture(scope="package")
def loading_lab(tmp_path_factory, lab_guard) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("loading")
    lab_guard.watch(folder)
    lab = Lab.up(
        folder,
        brokers=1,
        store="sqlite",
        clusters=("primary", "other"),
        broker_config={"log.cleaner.backoff.ms": "200"},
    )
    yield lab
    lab.down()


@pytest.fixture(scope="package")
def cluster(loading_lab) -> ClusterConfig:
    return ClusterConfig(bootstrap_servers=loading_lab.bootstrap("primary"))


@pytest.fixture
def client(cluster) -> dict[str, str]:
    """Properties for the library; the independent readers of the tests make their own."""
    return {"bootstrap.servers": cluster.bootstrap_servers}


@pytest.fixture
def admin(loading_lab, cluster) -> Iterator[ClusterAdmin]:
    """The cluster, up, without topics and groups of other tests."""
    if loading_lab.status()[0].state == "paused":
        loading_lab.resume("primary-1")
    if loading_lab.status()[0].state == "down":
        loading_lab.restart("primary-1")
    with ClusterAdmin("primary", cluster, timeout_seconds=30) as admin:
        admin.delete_topics(name for name, topic in admin.topics().items() if not topic.internal)
        with GroupAdmin("primary", cluster, timeout_seconds=30) as groups:
            wait_until(lambda: not any(groups.members(GROUPS).values()), what="groups without members")
            groups.delete_groups([group for group in groups.list_groups() if group in GROUPS])
        yield admin
