"""The connections of one command to its clusters: opened at first use, shared by threads, with timeouts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Self

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.admin_connection import Reachability
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.model.errors import NotShown

TIMEOUT_SECONDS = 10.0
OBSERVE_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""Longer than any round trip, and enough for a second SYN (`connection_manager`)."""
_ANSWER_SECONDS = 5.0


def observing(configs: Mapping[str, ClusterConfig], timeout_seconds: float | None) -> Clusters:
    """Connections for a read-only command: each call ends within these seconds, connecting included.

    None: 5 s, and a cluster that is silent for 1 s counts as gone (`Reachability`).
    """
    if timeout_seconds is None:
        return Clusters(configs, timeout_seconds=OBSERVE_SECONDS)
    return Clusters(configs, timeout_seconds=timeout_seconds, patience_seconds=timeout_seconds)


class Clusters:
    """Connections to configured clusters, by alias.

    drkit gives up on a cluster that may be gone (`may_be_gone`) when no broker sends anything for `patience_seconds`,
    or each refuses connections (`Reachability`). The attempt to connect continues, and later calls on the same object
    get its result: a command doesn't wait for a dead cluster repeatedly.

    Args:
        configs: the clusters by alias.
        timeout_seconds: the bound of every call: connecting, handshakes and response; 5 s at most if the cluster may
            be gone.
        patience_seconds: how long a cluster that may be gone may be silent during connecting.
        known: findings of other connections of this command; None: none yet.
    """

    def __init__(
        self,
        configs: Mapping[str, ClusterConfig],
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        known: Clusters | None = None,
    ) -> None:
        self._configs = configs
        self.timeout_seconds = timeout_seconds
        self._reaches = {
            alias: Reachability(patience_seconds) if known is None else known.reach(alias) for alias in configs
        }
        self._lock = threading.Lock()
        self._admins: dict[tuple[str, bool], ClusterAdmin] = {}
        self._groups: dict[tuple[str, bool], GroupAdmin] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            opened: list[ClusterAdmin | GroupAdmin] = [*self._admins.values(), *self._groups.values()]
            self._admins.clear()
            self._groups.clear()
        for connection in opened:
            connection.close()

    def config_of(self, alias: str) -> ClusterConfig:
        """How a cluster is reached."""
        return self._configs[alias]

    def reach(self, alias: str) -> Reachability:
        """How long to try to connect to a cluster that may be gone, and whether it was found gone before."""
        return self._reaches[alias]

    def leave_out(self, alias: str, why: NotShown) -> None:
        """Have a cluster count as gone from now on, for this object and those that were made from it: what answers at
        its address isn't that cluster, so nothing there may be taken for its own. `why` is raised for each use."""
        self._reaches[alias].left_out = why

    def why_left_out(self, alias: str) -> NotShown | None:
        """Why a cluster counts as gone although its address answers; None: it doesn't."""
        return self._reaches[alias].left_out

    def _check_left_out(self, alias: str) -> None:
        why = self.why_left_out(alias)
        if why is not None:
            raise NotShown(why.what, meaning=why.meaning, remedy=why.remedy)

    def connect_soon(self, aliases: Iterable[str]) -> None:
        """Begin to connect to all clusters that may be gone, so that later calls wait less."""
        for alias in aliases:
            self.admin(alias, may_be_gone=True).connect_soon()

    def adopt(self, other: Clusters, aliases: Iterable[str]) -> None:
        """Take over another object's connections to these clusters, and its findings about them."""
        for alias in aliases:
            key = (alias, True)
            with other._lock:
                begun = other._admins.pop(key, None)
            with self._lock:
                self._reaches[alias] = other.reach(alias)
                if begun is not None and key not in self._admins:
                    self._admins[key], begun = begun, None
            if begun is not None:
                begun.close()

    def admin(self, alias: str, *, may_be_gone: bool = False) -> ClusterAdmin:
        """Topics and offsets of a cluster.

        Raises:
            NotShown: it is left out.
        """
        self._check_left_out(alias)
        key = (alias, may_be_gone)
        with self._lock:
            if key not in self._admins:
                self._admins[key] = ClusterAdmin(
                    alias, self._configs[alias], timeout_seconds=self._bound(may_be_gone), reach=self._reach(*key)
                )
            return self._admins[key]

    def groups(self, alias: str, *, may_be_gone: bool = False) -> GroupAdmin:
        """Consumer groups of a cluster.

        Raises:
            NotShown: it is left out.
        """
        self._check_left_out(alias)
        key = (alias, may_be_gone)
        with self._lock:
            if key not in self._groups:
                self._groups[key] = GroupAdmin(
                    alias, self._configs[alias], timeout_seconds=self._bound(may_be_gone), reach=self._reach(*key)
                )
            return self._groups[key]

    def _bound(self, may_be_gone: bool) -> float:
        return min(self.timeout_seconds, _ANSWER_SECONDS) if may_be_gone else self.timeout_seconds

    def _reach(self, alias: str, may_be_gone: bool) -> Reachability | None:
        return self._reaches[alias] if may_be_gone else None
