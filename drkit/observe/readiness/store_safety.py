"""Checks whether the store survives a loss: where it runs, on how many nodes, and how complete its copy is."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import psutil

from drkit.config import Config
from drkit.kafka.admin.clusters import Clusters
from drkit.model.errors import DrkitError
from drkit.model.topology import Link
from drkit.model.wording import and_more, counted
from drkit.observe.readiness.check import Check, CheckOutcome, asked_again
from drkit.state_topic.copy_topic import copy_name
from drkit.state_topic.guard import holds
from drkit.state_topic.link_copy import read_copy
from drkit.state_topic.other_store import mirrors_of_other_stores, other_store
from drkit.state_topic.store_age import older_than
from drkit.store.api import Store
from drkit.store.cassandra.url import parse_cassandra_url

OLD_SECONDS = 60.0
"""A copy whose last record is older than this isn't updated (a record is written every few seconds)."""
_RESOLVE_SECONDS = 2.0
_PLACEMENT = "store placement"
_REPLICATION = "store replication"
_SAFE_REPLICAS = 3
"""A quorum of them is left when a node is lost."""
STORE_COPY = "copy of the store"


def placement(config: Config, link: Link, clusters: Clusters) -> Check:
    """Whether the store runs on hosts of the source."""
    url = config.store.plain_url
    here, what = _store_hosts(url)
    hosts, all_known = {}, {}
    for alias in (link.id.source, link.id.target):
        hosts[alias], all_known[alias] = _hosts_of(config, clusters, alias)
    sides = {alias: _addresses(found) for alias, found in hosts.items()}
    if here is None or any(found is None for found in sides.values()):
        return Check(
            _PLACEMENT,
            CheckOutcome.UNKNOWN,
            f"the addresses of {what}, or of a cluster's brokers, can't be resolved",
            "Check the names in store.url and bootstrap_servers, and the resolver of this host",
        )
    shared = here & (sides[link.id.source] or set())
    if not shared and not all_known[link.id.source]:
        return Check(
            _PLACEMENT,
            CheckOutcome.UNKNOWN,
            f"{what} shares no host with {link.id.source}'s bootstrap_servers; which other brokers it has it doesn't "
            "tell now",
            asked_again(link.id.source),
        )
    if not shared:
        return Check(_PLACEMENT, CheckOutcome.OK, f"{what} shares no host with {link.id.source}")
    both = f" (and with {link.id.target}: one host carries all)" if shared & (sides[link.id.target] or set()) else ""
    return Check(
        _PLACEMENT,
        CheckOutcome.WARN,
        f"{what} shares a host with {link.id.source}{both}: {and_more(sorted(shared))}. Losing that host loses both",
        f"Keep the store on the side of {link.id.target} (docs/store.md); until then a loss costs "
        f"`drkit store recover --from {link.id.target}`",
    )


def store_checks(config: Config, store: Store, link: Link, clusters: Clusters) -> list[Check]:
    """Where the store is, and, where it has nodes, on how many of them each row is kept.

    Raises:
        Unreachable: the store doesn't answer.
    """
    checks = [placement(config, link, clusters)]
    replicas = store.replicas()
    if replicas is not None:
        location = parse_cassandra_url(config.store.plain_url)
        checks.append(judged_replication(location.keyspace, location.dc, replicas))
    return checks


def judged_replication(keyspace: str, dc: str, replicas: Mapping[str, int]) -> Check:
    """The check of a keyspace whose quorum is asked in this data centre, by its replicas in each (`Store.replicas`)."""
    here = replicas.get(dc, 0)
    if "" in replicas:
        count = counted(replicas[""], "replica")
        why = f"keyspace {keyspace} (SimpleStrategy) has {count} of a row on any nodes, maybe on none of {dc}"
    elif here >= _SAFE_REPLICAS:
        return Check(_REPLICATION, CheckOutcome.OK, f"keyspace {keyspace} has {here} replicas in {dc}")
    elif here > 1:
        why = f"keyspace {keyspace} has {here} replicas in {dc}: a quorum is both, so the store stops with either"
    elif here:
        why = f"keyspace {keyspace} has one replica in {dc}: the store stops with a node, and loses what its disk has"
    else:
        why = f"keyspace {keyspace} has no replica in {dc}, whose quorum drkit asks"
    wanted = f"{{'class': 'NetworkTopologyStrategy', '{dc}': {_SAFE_REPLICAS}}}"
    repaired = f"then nodetool repair -full {keyspace} on each node"
    return Check(
        _REPLICATION, CheckOutcome.WARN, why, f"ALTER KEYSPACE {keyspace} WITH replication = {wanted}, {repaired}"
    )


def copy_of_store(
    config: Config, store: Store, link: Link, clusters: Clusters, at: datetime, *, runs: Callable[[], bool]
) -> Check:
    """The age of the copy of the link's state, and its lag behind the store.

    Args:
        config: the clusters.
        store: the store.
        link: a configured link.
        clusters: connections to them.
        at: now.
        runs: whether a mirror of the link is running; called after the copy was read.

    Raises:
        Unreachable: the target doesn't answer.
    """
    return _beside_another(config, store, link, clusters) or _compared(config, store, link, clusters, at, runs=runs)


def _beside_another(config: Config, store: Store, link: Link, clusters: Clusters) -> Check | None:
    """The problem that a mirror uses another store; None: none does."""
    groups = clusters.groups(link.id.target, may_be_gone=True)
    elsewhere = mirrors_of_other_stores(groups, link, store, config.store.plain_url)
    if not elsewhere:
        return None
    why = other_store(link, elsewhere)
    return Check(STORE_COPY, CheckOutcome.FAIL, why.what, why.remedy or "")


def _compared(
    config: Config, store: Store, link: Link, clusters: Clusters, at: datetime, *, runs: Callable[[], bool]
) -> Check:
    alias = link.id.target
    admin = clusters.admin(alias, may_be_gone=True)
    copy = read_copy(link, store, config.clusters[alias], admin)
    if copy is None or copy.written_at is None:
        return Check(
            STORE_COPY,
            CheckOutcome.WARN,
            f"{alias} has no copy of the link's state: with the store the mapping and group positions would be lost",
            f"`drkit mirror` keeps one in topic {copy_name(link, store)}; it needs the rights in docs/store.md",
        )
    recover = f"drkit store recover --from {alias} --link '{link.id}'"
    if copy.topics and not holds(store, link):
        why = f"the store has no data of the link, but {alias} has a copy of its state"
        return Check(STORE_COPY, CheckOutcome.FAIL, why, f"The store was lost, or it is another store: {recover}")
    marks = store.watermarks(link.id)
    behind = {
        tp: mark.source_through - copy.partitions[tp].watermark.source_through if tp in copy.partitions else None
        for tp, mark in marks.items()
    }
    epochs = {state.topic: state.epoch for state in store.topic_states(link.id).values()}
    held = sorted(tp for tp, found in copy.partitions.items() if found.rows and tp in marks)
    places = [(tp, copy.partitions[tp].watermark.epoch) for tp in held]
    bare = {tp for tp, rows in zip(held, store.mappings_of(link.id, places), strict=True) if not rows}
    lost = sorted(
        tp
        for tp, mark in copy.watermarks.items()
        if mark.epoch >= epochs.get(tp.topic, 0)  # else the topic was accepted as a new one since
        if tp not in marks
        or (marks[tp].epoch, marks[tp].source_through) < (mark.epoch, mark.source_through)
        or tp in bare
    )
    gone = {(p.group, p.topic, p.partition) for p in copy.positions}
    gone -= {(p.group, p.topic, p.partition) for p in store.group_positions(link.id)}
    older = older_than(copy, store, link, admin)
    if older is not None and (older.decision is not None or older.unknown):
        why = f"the store is older than its copy on {alias}, {older.knows_more()}"
        return Check(STORE_COPY, CheckOutcome.FAIL, why, f"If a backup was restored, move it away, then {recover}")
    if (lost or gone) and not runs():
        what = [f"{counted(len(lost), 'partition')}, first {lost[0]}"] if lost else []
        what += [f"{counted(len(gone), 'group position')}, first of {min(gone)[0]}"] if gone else []
        remedy = f"The store has lost rows, or is an older one: move it away, then {recover}"
        return Check(
            STORE_COPY, CheckOutcome.FAIL, f"the store is behind its copy on {alias}: {'; '.join(what)}", remedy
        )
    missing = sorted(tp for tp, offsets in behind.items() if offsets is None)
    late = sum(max(0, offsets) for offsets in behind.values() if offsets is not None)
    age = max(0.0, (at - copy.written_at).total_seconds())  # it may have been written during the check
    said = f"written {age:.1f} s ago, {counted(late, 'offset')} behind the store"
    if missing:
        said += f", and proves nothing of {counted(len(missing), 'partition')}, first {missing[0]}"
    if missing or (age > OLD_SECONDS and runs()):
        remedy = f"The mirror writes it: see its log, and the rights on {copy.topic} that docs/store.md names"
        return Check(STORE_COPY, CheckOutcome.WARN, said, remedy)
    return Check(STORE_COPY, CheckOutcome.OK, said)


def _store_hosts(url: str) -> tuple[set[str] | None, str]:
    """The addresses of the store's hosts, and its description."""
    if url.startswith("cassandra://"):
        points = [host for host, _ in parse_cassandra_url(url).contact_points]
        return _addresses(points), f"the store (Cassandra, contact points {and_more(points)})"
    own = {each.address.partition("%")[0] for found in psutil.net_if_addrs().values() for each in found}
    return {each for each in own if _is_address(each)}, "the store (SQLite on this host)"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _hosts_of(config: Config, clusters: Clusters, alias: str) -> tuple[list[str], bool]:
    """The hosts of a cluster: the configured ones, and those of its brokers, and whether it told these."""
    servers = config.clusters[alias].bootstrap_servers.split(",")
    hosts = {server.strip().rpartition(":")[0].strip("[]") for server in servers}
    try:
        brokers = {broker.host for broker in clusters.admin(alias, may_be_gone=True).brokers()}
    except DrkitError:
        return sorted(hosts), False
    return sorted(hosts | brokers), True


def _addresses(hosts: Sequence[str]) -> set[str] | None:
    """The addresses of these hosts; None: one doesn't resolve, or not in time."""
    found: dict[str, set[str]] = {}

    def resolve(names: Iterable[str]) -> None:
        for name in names:
            try:
                found[name] = {str(each[4][0]) for each in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
            except OSError:
                return

    thread = threading.Thread(target=resolve, args=(list(hosts),), daemon=True)
    thread.start()
    thread.join(_RESOLVE_SECONDS)
    known = dict(found)
    return set().union(*known.values()) if len(known) == len(set(hosts)) else None
