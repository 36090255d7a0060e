"""What a topic had before its writes were blocked comes back, whatever stood in its place meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.failover.fencing.write_block import block_writes, let_writes_in
from drkit.kafka.admin.write_block import BLOCK
from drkit.model.runs import write_block_kind
from drkit.model.topology import LinkId
from drkit.store import open_store

LINK = LinkId("primary", "dr")
OWN = {"max.message.bytes": "2097152", "compression.type": "zstd"}
DEFAULTS = {"max.message.bytes": "1048588", "compression.type": "producer"}


class Cluster:
    """Topics and what they have set; the rest are defaults."""

    def __init__(self):
        self.topics = {"t": dict(OWN)}

    def topic_configs(self, names, **_):
        return {name: DEFAULTS | self.topics[name] for name in names if name in self.topics}

    def set_many_topic_configs(self, changes):
        for name, values in changes.items():
            self.topics[name] = {
                key: value for key, value in {**self.topics[name], **values}.items() if value is not None
            }
        return {}

    def block_writes(self, partitions):
        self.set_many_topic_configs(dict.fromkeys(partitions, BLOCK))


@pytest.fixture
def blocking():
    """A cluster, and the estate that it belongs to."""
    store, cluster = open_store("sqlite:///:memory:"), Cluster()
    yield cluster, SimpleNamespace(store=store, admin=lambda _alias, **_: cluster)
    store.close()


def test_the_note_of_a_deleted_topic_outlives_one_that_a_client_makes_in_its_place(blocking):
    cluster, estate = blocking
    block_writes(estate, LINK, "primary", {"t": 1})
    del cluster.topics["t"]
    let_writes_in(estate, LINK, "primary")
    cluster.topics["t"] = {}  # a client's
    block_writes(estate, LINK, "primary", {"t": 1})
    del cluster.topics["t"]
    let_writes_in(estate, LINK, "primary")
    cluster.topics["t"] = dict(OWN)  # the run's
    let_writes_in(estate, LINK, "primary")
    assert cluster.topics["t"] == OWN
    assert not estate.store.notes(LINK, write_block_kind("primary"))


def test_a_topic_that_is_blocked_once_more_is_noted_as_it_is_then(blocking):
    cluster, estate = blocking
    block_writes(estate, LINK, "primary", {"t": 1})
    let_writes_in(estate, LINK, "primary")
    cluster.topics["t"] = later = {"max.message.bytes": "5000000"}
    block_writes(estate, LINK, "primary", {"t": 1})
    let_writes_in(estate, LINK, "primary")
    assert cluster.topics["t"] == later


def test_a_block_that_comes_after_it_was_lifted_is_lifted_by_its_note(blocking):
    """It had got no answer."""
    cluster, estate = blocking
    block_writes(estate, LINK, "primary", {"t": 1})
    let_writes_in(estate, LINK, "primary", keep_notes=True)
    assert cluster.topics["t"] == OWN
    cluster.block_writes({"t": 1})
    let_writes_in(estate, LINK, "primary")
    assert cluster.topics["t"] == OWN
    assert not estate.store.notes(LINK, write_block_kind("primary"))
