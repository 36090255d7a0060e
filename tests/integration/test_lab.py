"""The shared lab answers, and its configuration is one that every command can read."""

from __future__ import annotations

import pytest

from drkit.config import load_config
from drkit.lab import Lab

pytestmark = pytest.mark.lab


def test_every_node_answers(lab: Lab):
    assert {each.name: each.state for each in lab.status()} == {"primary-1": "up", "dr-1": "up"}


def test_the_written_configuration_names_the_clusters(lab: Lab):
    config = load_config(lab.config_path)
    assert config.clusters["primary"].bootstrap_servers == lab.bootstrap("primary")
    assert config.clusters["dr"].bootstrap_servers == lab.bootstrap("dr")
    assert str(config.links[0].link().id) == "primary->dr"
    assert config.store.plain_url == lab.store_url()


@pytest.mark.cassandra
def test_each_test_gets_a_keyspace_of_its_own_on_a_node_that_answers(cassandra_lab: Lab, cassandra_url: str):
    assert [each.state for each in cassandra_lab.status()] == ["up"]
    assert cassandra_url != cassandra_lab.store_url()
    assert cassandra_lab.nodes[0].address in cassandra_url
