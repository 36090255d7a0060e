"""The `drkit.toml` of a lab."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from drkit.lab.cassandra_node import DATACENTER
from drkit.lab.layout import CASSANDRA, Layout
from drkit.lab.secure import APPLICATION, LISTENER, SecureDir, drkit_user

KEYSPACE = "drkit"


@dataclass(frozen=True, slots=True)
class LabLink:
    """A link of the configuration. `policy`: `identity` or `prefix`; `topics`: regular expressions."""

    source: str
    target: str
    policy: str = "identity"
    topics: tuple[str, ...] = (".*",)


def render(layout: Layout, secure: SecureDir, links: Sequence[LabLink] | None = None) -> str:
    """The configuration for a lab's clusters, with the contract's objectives.

    Args:
        layout: the lab.
        secure: the certificates and passwords of a secured lab.
        links: default: one from the first cluster to each other.
    """
    first, *others = layout.clusters or ("",)
    links = [LabLink(first, target) for target in others] if links is None else links
    lines = ["# Written by `drkit lab up`; removed by `drkit lab down`.", ""]
    for alias in layout.clusters:
        lines += _secured(layout, alias, secure) if layout.secure else _open(layout, alias)
    lines += ["[store]", f"url = {_text(store_url(layout))}", ""]
    for link in links:
        lines += [
            "[[links]]",
            f"source = {_text(link.source)}",
            f"target = {_text(link.target)}",
            f"topics = [{', '.join(map(_text, link.topics))}]",
            *([] if link.policy == "identity" else [f"policy = {_text(link.policy)}"]),
            "",
        ]
    lines += ["[objectives]", "rpo_records = 0", "rpo_seconds = 5", "rto_seconds = 60", ""]
    return "\n".join(lines)


def _open(layout: Layout, alias: str) -> list[str]:
    lines = [f"[clusters.{alias}]", f"bootstrap_servers = {_text(bootstrap(layout, alias))}", "drill = true"]
    return [*lines, f"[clusters.{alias}.client]", '"security.protocol" = "PLAINTEXT"', ""]


def _secured(layout: Layout, alias: str, secure: SecureDir) -> list[str]:
    """A cluster with drkit's own user; the applications' user proves a fence."""
    servers = f"bootstrap_servers = {_text(bootstrap(layout, alias, listener=LISTENER))}"
    lines = []
    for table, user in ((f"clusters.{alias}", drkit_user(alias)), (f"clusters.{alias}.fence", APPLICATION)):
        lines += [f"[{table}]", servers, *(["drill = true"] if user != APPLICATION else []), f"[{table}.client]"]
        lines += [f"{_text(name)} = {_value(value)}" for name, value in secure.client(user).items()]
        lines.append("")
    return lines


def _value(value: str | dict[str, str]) -> str:
    if isinstance(value, str):
        return _text(value)
    return "{ " + ", ".join(f"{name} = {_text(text)}" for name, text in value.items()) + " }"


def bootstrap(layout: Layout, alias: str, *, sasl: bool = False, listener: str | None = None) -> str:
    """`host:port,…` of a cluster's brokers; `sasl`: of the users' listener; `listener`: of this listener."""
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
