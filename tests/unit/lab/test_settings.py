"""What the lab writes: drkit.toml, and the nodes' own settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drkit.config import load_config
from drkit.lab import cassandra_node, kafka_node
from drkit.lab.lab import bootstrap, render, store_url
from drkit.lab.layout import LabDir, Layout, Node, cluster_uuid, new_layout, refuse_other_shape, usable_folder
from drkit.lab.start import available_mib, refuse_too_little_memory
from drkit.model.errors import ConfigError, DrkitError, Refused


def _layout(folder: Path, brokers: int = 1, store: str = "cassandra", clusters: tuple[str, ...] = ("primary", "dr")):
    return new_layout(LabDir(folder), brokers, store, clusters, {})  # type: ignore[arg-type]  # literals by parameter


def test_the_configuration_is_one_that_drkit_reads(tmp_path: Path):
    layout = _layout(tmp_path, brokers=2)
    (tmp_path / "drkit.toml").write_text(render(layout, LabDir(tmp_path).secure))
    config = load_config(tmp_path / "drkit.toml")
    ports = [node.port for node in layout.peers("primary")]
    assert config.clusters["primary"].bootstrap_servers == ",".join(f"127.0.0.1:{port}" for port in ports)
    assert config.clusters["dr"].properties() == {"security.protocol": "PLAINTEXT"}
    assert [str(link.link().id) for link in config.links] == ["primary->dr"]
    assert (config.objectives.rpo_records, config.objectives.rpo_seconds, config.objectives.rto_seconds) == (0, 5, 60)
    port = layout.peers("cassandra")[0].port
    assert config.store.plain_url == f"cassandra://127.0.0.1:{port}/drkit?dc=datacenter1&replication_factor=1"


def test_a_lab_with_sqlite_keeps_its_store_beside_the_configuration(tmp_path: Path):
    layout = _layout(tmp_path, store="sqlite")
    (tmp_path / "drkit.toml").write_text(render(layout, LabDir(tmp_path).secure))
    assert load_config(tmp_path / "drkit.toml").store.plain_url == f"sqlite:///{tmp_path / 'drkit.db'}"
    assert store_url(layout) == "sqlite:///drkit.db"


def test_nodes_are_named_by_cluster_and_number_and_share_no_port(tmp_path: Path):
    layout = _layout(tmp_path, brokers=3)
    names = ["primary-1", "primary-2", "primary-3", "dr-1", "dr-2", "dr-3", "cassandra-1"]
    assert [node.name for node in layout.nodes] == names
    ports = [port for node in layout.nodes for port in (node.port, node.peer_port)]
    assert len(set(ports)) == len(ports)
    assert len(set(layout.cluster_ids.values())) == 2


def test_the_layout_reads_back_equal(tmp_path: Path):
    layout = _layout(tmp_path, brokers=2)
    LabDir(tmp_path).write_layout(layout)
    assert LabDir(tmp_path).read_layout() == layout


@pytest.mark.parametrize("text", ["", "{}", '{"format": 99}', "[1]", '{"format": 1, "nodes": 3, "clusters": []}'])
def test_a_damaged_layout_is_said_with_the_way_out(tmp_path: Path, text: str):
    LabDir(tmp_path).layout_file.write_text(text)
    with pytest.raises(DrkitError, match="drkit lab down"):
        LabDir(tmp_path).read_layout()


def test_an_alias_means_all_its_nodes_and_none_twice(tmp_path: Path):
    layout = _layout(tmp_path, brokers=2)
    assert [node.name for node in layout.select(("dr", "dr-1", "primary-2"))] == ["dr-1", "dr-2", "primary-2"]


def test_an_unknown_node_is_refused_and_the_known_are_listed(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no node 'primary-9'.*primary-1, dr-1, cassandra-1.*primary, dr, cassandra"):
        _layout(tmp_path).select(("primary-9",))


def test_another_shape_is_refused_with_both_named(tmp_path: Path):
    layout = _layout(tmp_path, store="sqlite")
    with pytest.raises(Refused, match=r"1 broker per cluster, not 3 and sqlite as its store, not cassandra"):
        refuse_other_shape(LabDir(tmp_path), layout, 3, "cassandra")
    assert refuse_other_shape(LabDir(tmp_path), layout, None, "sqlite") is None


def test_somebody_elses_configuration_is_never_overwritten(tmp_path: Path):
    (tmp_path / "drkit.toml").write_text("mine")
    with pytest.raises(Refused, match="never overwrites"):
        _layout(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="can't be written"):
        usable_folder(tmp_path / "file" / "lab")


def test_a_folder_that_kafkas_settings_cannot_name_is_refused(tmp_path: Path):
    with pytest.raises(Refused, match="can't hold a lab"):
        usable_folder(tmp_path / "a,b")
    assert not (tmp_path / "a,b").exists()


def test_too_little_memory_is_refused_with_both_figures():
    need = available_mib() + 100_000
    with pytest.raises(Refused, match=f"{need:,} MiB"):
        refuse_too_little_memory(need)
    assert refuse_too_little_memory(1) is None


@pytest.mark.parametrize(
    ("brokers", "replication", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_internal_topics_are_replicated_as_far_as_the_cluster_can(brokers: int, replication: str, in_sync: str):
    peers = [Node(f"primary-{i}", "kafka", "primary", i, 20000 + i, 21000 + i) for i in range(1, brokers + 1)]
    found = kafka_node.properties(peers[0], peers, Path("/data"), {})
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert found[f"{name}.replication.factor"] == replication
    assert found["min.insync.replicas"] == found["transaction.state.log.min.isr"] == in_sync


def test_extra_settings_win_but_never_move_the_broker():
    node = Node("primary-1", "kafka", "primary", 1, 20001, 20002)
    found = kafka_node.properties(
        node, [node], Path("/data"), {"num.io.threads": "9", "node.id": "7", "listeners": "x"}
    )
    assert found["num.io.threads"] == "9"
    assert found["node.id"] == "1"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002"


def test_every_listener_is_on_loopback(tmp_path: Path):
    node = Node("cassandra-1", "cassandra", "cassandra", 1, 20003, 20004)
    found = cassandra_node.settings(node, tmp_path / "data")
    assert found["listen_address"] == found["rpc_address"] == "127.0.0.1"
    cassandra_node.prepare(node, tmp_path)
    assert json.loads((tmp_path / "cassandra.yaml").read_text()) == found


def test_cluster_ids_are_as_kafka_writes_them():
    for _ in range(200):
        text = cluster_uuid()
        assert len(text) == 22
        assert not text.startswith("-")


def test_a_layout_without_clusters_is_a_store_alone(tmp_path: Path):
    layout = _layout(tmp_path, clusters=())
    assert isinstance(layout, Layout)
    assert [node.name for node in layout.nodes] == ["cassandra-1"]


def test_users_get_a_listener_and_an_authorizer(tmp_path: Path):
    layout = new_layout(LabDir(tmp_path), 1, "sqlite", ("primary",), {}, {"app": "s3cret"})
    (node,) = layout.nodes
    settings = kafka_node.properties(node, [node], tmp_path / "data", {"super.users": "User:app"}, layout.users)
    assert f"SASL://127.0.0.1:{node.sasl_port}" in settings["advertised.listeners"]
    assert 'user_app="s3cret"' in settings["listener.name.sasl.plain.sasl.jaas.config"]
    assert settings["super.users"] == "User:ANONYMOUS"
    assert bootstrap(layout, "primary", sasl=True) == f"127.0.0.1:{node.sasl_port}"
    assert "authorizer.class.name" not in kafka_node.properties(node, [node], tmp_path / "data", {})
    with pytest.raises(ConfigError, match="letters and digits"):
        new_layout(LabDir(tmp_path), 1, "sqlite", ("primary",), {}, {"app": 'a"b'})


def test_further_listeners_have_their_own_ports_and_settings(tmp_path: Path):
    wanted = {"tls": {"security.protocol": "SSL", "ssl.client.auth": "required"}}
    layout = new_layout(LabDir(tmp_path), 1, "sqlite", ("primary", "dr"), {}, None, wanted)
    nodes = layout.nodes
    assert len({port for node in nodes for port in node.ports}) == 6
    settings = kafka_node.properties(nodes[0], [nodes[0]], tmp_path / "data", {}, {}, layout.listeners)
    address = f"127.0.0.1:{nodes[0].listener_ports['tls']}"
    assert f"TLS://{address}" in settings["listeners"].split(",")
    assert settings["advertised.listeners"] == f"PLAINTEXT://{nodes[0].address},TLS://{address}"
    assert "TLS:SSL" in settings["listener.security.protocol.map"].split(",")
    assert settings["listener.name.tls.ssl.client.auth"] == "required"
    assert bootstrap(layout, "primary", listener="tls") == address
    with pytest.raises(ConfigError, match="lower-case letters"):
        new_layout(LabDir(tmp_path), 1, "sqlite", ("primary",), {}, None, {"T-1": wanted["tls"]})
