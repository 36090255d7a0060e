"""Checks the links around a running one by real topics and cluster ids: no cycle, no second writer.

The configuration is checked when it is read (`drkit.config.schema.config`), by aliases and addresses, with
example names. Kafka's cluster ids and the existing topics show what that check couldn't know.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.errors import DrkitError, Refused
from drkit.model.topics.cycles import clash_error, cycle_error, find_clash, find_cycle, names_to_try, sharing
from drkit.model.topology import Link

log = logging.getLogger(__name__)

_ASK_SECONDS = 3.0
_AGAIN_SECONDS = 30.0

Identify = Callable[[str, str], None]
"""Called with Kafka's ids of the source and the target, once both are known."""

_NO_ID = "A" * 22
"""Sixteen zero bytes in Kafka's text form: the broker is older than topic ids."""


class TopologyGuard:
    """Checks the configuration's links around the running one. Not thread-safe.

    Args:
        config: all clusters.
        link: the link that runs.
        beside: the links around it (`drkit.store.links_beside`).
        source, target: its clusters.
        identify: called with both ids.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        beside: Sequence[Link],
        source: ClusterAdmin,
        target: ClusterAdmin,
        identify: Identify,
    ) -> None:
        self._config = config
        self._link = link
        self._links = [link, *beside]
        self._names = names_to_try(self._links)
        self._aliases = {alias for each in self._links for alias in (each.id.source, each.id.target)}
        self._own = {link.id.source: source, link.id.target: target}
        self._identify = identify
        self._ids: dict[str, str] = {}
        self._twins: dict[frozenset[str], bool] = {}
        self._asked_at: float | None = None
        self._checked: tuple[dict[str, str], set[str]] = ({}, set())
        self.refusal: Refused | None = None

    def check(self, topics: Iterable[str] = ()) -> None:
        """Check whether the links around this one let it run; results are cached.

        Sets `refusal` where they don't.

        Args:
            topics: existing topics of the source.

        Raises:
            Unreachable: the link's own clusters don't answer.
        """
        self._learn()
        clusters = self._clusters()
        seen, tried = self._checked
        if seen != clusters:
            tried = set()
        names = {*self._names, *topics} - tried
        if names and self.refusal is None:
            self.refusal = self._judge(clusters, sorted(names))
            self._checked = (clusters, tried | names)

    def _clusters(self) -> dict[str, str]:
        """Map each alias to its cluster: the id, or the first alias among those with the same id that are one
        cluster."""
        clusters: dict[str, str] = {}
        for alias in sorted(self._aliases):
            known = self._ids.get(alias)
            twins = [other for other in clusters if known is not None and self._ids.get(other) == known]
            same = next((other for other in twins if self._are_one(other, alias)), None)
            clusters[alias] = clusters[same] if same is not None else alias
        return clusters

    def _are_one(self, one: str, other: str) -> bool:
        """Whether two aliases with the same cluster id reach one cluster; checked until there is evidence."""
        pair = frozenset({one, other})
        if pair not in self._twins:
            first, second = self._sight(one), self._sight(other)
            verdict = None if first is None or second is None else same_cluster(first, second)
            if verdict is None:
                return False
            self._twins[pair] = verdict
        return self._twins[pair]

    def _sight(self, alias: str) -> ClusterIdentity | None:
        if alias in self._own:
            return ClusterIdentity.of(self._own[alias])
        try:
            with self._admin(alias) as admin:
                return ClusterIdentity.of(admin)
        except DrkitError as error:
            log.info("%s: the cluster id of %s isn't known yet: %s", self._link.id, alias, error)
            return None

    def _judge(self, clusters: dict[str, str], names: list[str]) -> Refused | None:
        cycle = find_cycle(self._links, clusters, names, through=self._link)
        if cycle is not None:
            what, meaning, remedy = cycle_error(cycle)
            return Refused(what, meaning=meaning, remedy=remedy)
        clash = find_clash(self._links, clusters, names, of=self._link)
        if clash is not None:
            what, meaning, remedy = clash_error(clash, clusters)
            return Refused(what, meaning=meaning, remedy=remedy)
        source_id, target_id = self._ids.get(self._link.id.source), self._ids.get(self._link.id.target)
        if self._link.marks and source_id == target_id:
            return Refused(
                f"{self._link.id.source} and {self._link.id.target} are two clusters with one cluster id, {source_id}",
                meaning="Provenance names a record's origin by its cluster's id, which doesn't tell these apart",
                remedy='Use policy = "prefix", or format one of the clusters with an id of its own '
                "(kafka-storage.sh random-uuid; CLUSTER_ID of a container image)",
            )
        alone = self._link.marks and not self._link.shares_target
        if alone and self._link in sharing(self._links, clusters, names):
            return Refused(
                f"links lead from {self._link.id.target} back to {self._link.id.source} under another alias, with the "
                f"topics that {self._link.id} carries",
                meaning="The configuration could not tell that these links belong together",
                remedy="Name each cluster by one alias in these links",
            )
        return None

    def _learn(self) -> None:
        """Ask for cluster ids: the link's own at once, others now and then until they answer."""
        for alias, admin in self._own.items():
            if alias not in self._ids:
                self._ids[alias] = admin.cluster_id()
        self._identify(self._ids[self._link.id.source], self._ids[self._link.id.target])
        unknown = sorted(self._aliases - self._ids.keys())
        at = time.monotonic()
        if not unknown or (self._asked_at is not None and at - self._asked_at < _AGAIN_SECONDS):
            return
        self._asked_at = at
        with ThreadPoolExecutor(max_workers=min(len(unknown), 8)) as pool:
            for alias, cluster_id in zip(unknown, pool.map(self._ask, unknown), strict=True):
                if cluster_id is not None:
                    self._ids[alias] = cluster_id

    def _ask(self, alias: str) -> str | None:
        try:
            with self._admin(alias) as admin:
                return admin.cluster_id()
        except DrkitError as error:
            log.info("%s: the cluster id of %s isn't known yet: %s", self._link.id, alias, error)
            return None

    def _admin(self, alias: str) -> ClusterAdmin:
        return ClusterAdmin(alias, self._config.clusters[alias], timeout_seconds=_ASK_SECONDS)


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """The identity of the cluster behind an alias.

    A cluster id tells clusters apart only if each was formatted with its own. Container images have a fixed one
    (apache/kafka's and testcontainers' are the same on every machine), and a cluster restored from a copy of another's
    disks has that one's. So the brokers' advertised addresses and the topics' ids (KIP-516) count, too.
    `topics`: ids by name; None from a broker that knows no topic ids.
    """

    cluster_id: str
    addresses: frozenset[tuple[str, int]]
    topics: Mapping[str, str | None]

    @classmethod
    def of(cls, admin: ClusterAdmin) -> ClusterIdentity:
        """Read a cluster's current identity.

        Raises:
            Unreachable: the cluster doesn't answer.
        """
        addresses = frozenset((broker.host, broker.port) for broker in admin.brokers())
        topics = {name: None if info.topic_id == _NO_ID else info.topic_id for name, info in admin.topics().items()}
        return cls(admin.cluster_id(), addresses, topics)


def same_cluster(one: ClusterIdentity, other: ClusterIdentity) -> bool | None:
    """Whether both are one cluster; None: there is no evidence yet.

    Where brokers know no topic ids, equal names count as one cluster: a refusal is the safe mistake.
    """
    if one.cluster_id != other.cluster_id:
        return False
    if one.addresses & other.addresses:
        return True
    shared = one.topics.keys() & other.topics.keys()
    if any(None in (ids := {one.topics[name], other.topics[name]}) or len(ids) == 1 for name in shared):
        return True
    return False if one.topics and other.topics else None
