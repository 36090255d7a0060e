"""The text of a new `drkit.toml`, with a comment on each key that users may want to change. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drkit.config.schema.config import SECRET_PROPERTIES

ENV = "env:"
FILE = "file:"


@dataclass(frozen=True, slots=True)
class ClusterDraft:
    """A cluster to be configured. `client`: by librdkafka names; a secret is `env:NAME` or `file:PATH`."""

    alias: str
    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Excluded:
    """A pattern of excluded names, and why they are."""

    pattern: str
    why: str


@dataclass(frozen=True, slots=True)
class ConfigDraft:
    """The content of a new configuration. `remarks`: what was found on the clusters, one line each."""

    source: ClusterDraft
    target: ClusterDraft
    store_url: str
    topics: tuple[str, ...] = (".*",)
    exclude_topics: tuple[Excluded, ...] = ()
    groups: tuple[str, ...] = (".*",)
    exclude_groups: tuple[Excluded, ...] = ()
    offsets: str = "preserve"
    remarks: tuple[str, ...] = ()


def render(draft: ConfigDraft) -> str:
    """The file's text. It holds no secret."""
    link = f"{draft.source.alias}->{draft.target.alias}"
    lines = [
        "# drkit's configuration, written by `drkit init`. `drkit config check --connect` checks it,",
        "# `drkit config show` prints every effective value, the defaults included.",
        "",
        "# The cluster that serves clients now.",
        *_cluster(draft.source),
        "# The standby: the target of the mirror and of a failover.",
        *_cluster(draft.target),
        f"# drkit's store. It must survive {draft.source.alias}: keep it on the side of {draft.target.alias}.",
        "# For several hosts: cassandra://user:password@h1,h2:9042/drkit?dc=DC&replication_factor=3",
        "[store]",
        f"url = {_secret_or_text(draft.store_url)}",
        "",
        f"# The link from {draft.source.alias} to {draft.target.alias}. Patterns are regular expressions, each",
        "# matched against the whole name; internal topics (__…) are always left out.",
        *(f"# {_one_line(remark)}" for remark in draft.remarks),
        "[[links]]",
        f"source = {_text(draft.source.alias)}",
        f"target = {_text(draft.target.alias)}",
        f"topics = {_list(draft.topics)}",
        *_excluded("exclude_topics", draft.exclude_topics),
        f"groups = {_list(draft.groups)}",
        *_excluded("exclude_groups", draft.exclude_groups),
        "# preserve: offsets are equal on both sides; translate: if the target's topics hold records already",
        f"offsets = {_text(draft.offsets)}",
        'policy = "identity"  # or "prefix": source alias and a dot before each topic, for active-active',
        "# canary = true  # measure the end-to-end latency: drkit sends itself a record a second through the link",
        "",
        f"# The objectives of a failover of {link}: one that misses them exits 6.",
        "[objectives]",
        "rpo_records = 0",
        "rpo_seconds = 5",
        "rto_seconds = 60",
        "",
    ]
    return "\n".join(lines)


def parse_client(given: Sequence[str]) -> dict[str, str]:
    """Client properties from NAME=VALUE.

    Raises:
        ValueError: not of that form, or a secret that is written out.
    """
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name or not value:
            raise ValueError(f"{name!r} is not NAME=VALUE")
        if name in SECRET_PROPERTIES and not value.startswith((ENV, FILE)):
            raise ValueError(f"{name} is a secret: write {name}=env:NAME or {name}=file:PATH, never the value itself")
        found[name] = value
    return found


def _cluster(cluster: ClusterDraft) -> list[str]:
    lines = [f"[clusters.{cluster.alias}]", f"bootstrap_servers = {_text(cluster.bootstrap_servers)}"]
    lines.append(f"[clusters.{cluster.alias}.client]  # connection and security, by librdkafka's names")
    client = {"security.protocol": "PLAINTEXT"} | dict(cluster.client)
    lines += [f"{_text(name)} = {_secret_or_text(value)}" for name, value in client.items()]
    return [*lines, ""]


def _excluded(key: str, excluded: Sequence[Excluded]) -> list[str]:
    if not excluded:
        return [f"{key} = []"]
    return [f"{key} = [", *(f"  {_text(each.pattern)},  # {each.why}" for each in excluded), "]"]


def _secret_or_text(value: str) -> str:
    for begins in (ENV, FILE):
        if value.startswith(begins):
            return f"{{ {begins[:-1]} = {_text(value.removeprefix(begins))} }}"
    return _text(value)


def _one_line(text: str) -> str:
    """Keep a comment on one line: names of groups may hold any character."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _list(values: Sequence[str]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML basic string
