"""The `drkit.toml` of a lab."""

from __future__ import annotations

import json

from drkit.lab.cassandra_node import DATACENTER
from drkit.lab.layout import CASSANDRA, Layout

KEYSPACE = "drkit"


def render(layout: Layout) -> str:
    """The configuration for a lab's clusters: a link from the first to each other, the contract's objectives."""
    lines = ["# Written by `drkit lab up`; removed by `drkit lab down`.", ""]
    for alias in layout.clusters:
        lines += [f"[clusters.{alias}]", f"bootstrap_servers = {_text(bootstrap(layout, alias))}", "drill = true"]
        lines += [f"[clusters.{alias}.client]", '"security.protocol" = "PLAINTEXT"', ""]
    lines += ["[store]", f"url = {_text(store_url(layout))}", ""]
    for target in layout.clusters[1:]:
        lines += [
            "[[links]]",
            f"source = {_text(layout.clusters[0])}",
            f"target = {_text(target)}",
            'topics = [".*"]',
            "",
        ]
    lines += ["[objectives]", "rpo_records = 0", "rpo_seconds = 5", "rto_seconds = 60", ""]
    return "\n".join(lines)


def bootstrap(layout: Layout, alias: str, *, sasl: bool = False, listener: str | None = None) -> str:
    """`host:port,…` of a cluster's brokers; `sasl`: of their listener for users; `listener`: of that one."""
    nodes = layout.peers(alias)
    if listener is not None:
        ports = [node.listener_ports[listener] for node in nodes]
    else:
        ports = [node.sasl_port if sasl else node.port for node in nodes]
    return ",".join(f"127.0.0.1:{port}" for port in ports)


def store_url(layout: Layout, keyspace: str = KEYSPACE) -> str:
    """The store's URL; a SQLite path is relative to the configuration file."""
    nodes = layout.peers(CASSANDRA)
    if nodes:
        return f"cassandra://{nodes[0].address}/{keyspace}?dc={DATACENTER}&replication_factor=1"
    return "sqlite:///drkit.db"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML basic string
