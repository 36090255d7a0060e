"""What a run reads and acts on: configuration, store, and bounded connections to both clusters."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from drkit.config import Config
from drkit.directory import Directory, open_directories
from drkit.kafka.admin import ClusterAdmin
from drkit.kafka.groups import GroupAdmin
from drkit.model.errors import ConfigError
from drkit.model.topology import Link, LinkId
from drkit.store.api import Store

DEFAULT_TIMEOUT_SECONDS = 10.0
_GLANCE_SECONDS = 0.5


class Estate:
    """A configured estate, opened. Connections are made at first use and shared by threads.

    Args:
        config: clusters and links.
        store: drkit's memory; the caller closes it.
        timeout_seconds: the bound of every call to a cluster that must answer.
        patience_seconds: the bound of the first call to a cluster that may be gone. Once it was found
            gone, a later look is far shorter: a run doesn't wait for a dead cluster at every stage.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        patience_seconds: float = 3.0,
    ) -> None:
        self.config = config
        self.store = store
        self.timeout_seconds = timeout_seconds
        self._patience_seconds = patience_seconds
        self._gone: set[str] = set()
        self._lock = threading.Lock()
        self._admins: dict[tuple[str, float], ClusterAdmin] = {}
        self._groups: dict[tuple[str, float], GroupAdmin] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the connections to the clusters."""
        with self._lock:
            opened: list[ClusterAdmin | GroupAdmin] = [*self._admins.values(), *self._groups.values()]
            self._admins.clear()
            self._groups.clear()
        for connection in opened:
            connection.close()

    def patience_seconds(self, alias: str) -> float:
        """How long to wait for a cluster that may be gone."""
        return min(_GLANCE_SECONDS, self._patience_seconds) if alias in self._gone else self._patience_seconds

    def found(self, alias: str, *, gone: bool) -> None:
        """Remember whether a cluster that may be gone answered."""
        if gone:
            self._gone.add(alias)
        else:
            self._gone.discard(alias)

    def admin(self, alias: str, *, timeout_seconds: float | None = None) -> ClusterAdmin:
        """Topics and offsets of a cluster."""
        bound = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        cluster = self.config.clusters[alias]
        with self._lock:
            if (alias, bound) not in self._admins:
                self._admins[alias, bound] = ClusterAdmin(alias, cluster, timeout_seconds=bound)
            return self._admins[alias, bound]

    def groups(self, alias: str, *, timeout_seconds: float | None = None) -> GroupAdmin:
        """Consumer groups of a cluster."""
        bound = self.timeout_seconds if timeout_seconds is None else timeout_seconds
        cluster = self.config.clusters[alias]
        with self._lock:
            if (alias, bound) not in self._groups:
                self._groups[alias, bound] = GroupAdmin(alias, cluster, timeout_seconds=bound)
            return self._groups[alias, bound]

    def endpoint(self, alias: str) -> str:
        """Where clients find a cluster: its bootstrap servers."""
        return ",".join(server.strip() for server in self.config.clusters[alias].bootstrap_servers.split(","))

    def directories(self, link: LinkId) -> tuple[Directory, ...]:
        """Where clients of a link look for their cluster; none: nothing is configured."""
        return open_directories(self.config, link)

    def link(self, wanted: LinkId) -> Link:
        """The configured link of this name.

        Raises:
            ConfigError: it isn't configured (any more).
        """
        for configured in self.config.links:
            link = configured.link()
            if link.id == wanted:
                return link
        raise ConfigError(f"no link {wanted} is configured", remedy="Put it back into the configuration")
