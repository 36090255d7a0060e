"""Everything that a run reads and changes: configuration, store, and connections with deadlines to both clusters."""

from __future__ import annotations

from drkit.config import Config
from drkit.directory import Directory, open_directories
from drkit.failover.context.anchors import Anchors
from drkit.kafka.admin.clusters import PATIENCE_SECONDS, TIMEOUT_SECONDS, Clusters
from drkit.model.errors import ConfigError
from drkit.model.runs import Approval
from drkit.model.topology import Link, LinkId
from drkit.store.api import Store
from drkit.store.open import store_identity


class ClusterContext(Clusters):
    """An opened estate: configuration, clusters and store.

    Args:
        config: clusters and links.
        store: drkit's store; the caller closes it.
        timeout_seconds: the deadline of every call to a cluster.
        patience_seconds: how long to wait for a connection to a cluster that may be gone (`Clusters`).
        known: facts from other connections of this command, or None.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        known: Clusters | None = None,
    ) -> None:
        super().__init__(
            config.clusters, timeout_seconds=timeout_seconds, patience_seconds=patience_seconds, known=known
        )
        self._patience_seconds = patience_seconds
        self.config = config
        self.store = store
        self.approval: Approval | None = None
        self.anchors = Anchors(self, store_identity(config.store.plain_url))

    def another(self) -> ClusterContext:
        """The same estate with its own connections; the caller closes it."""
        other = ClusterContext(
            self.config,
            self.store,
            timeout_seconds=self.timeout_seconds,
            patience_seconds=self._patience_seconds,
            known=self,
        )
        other.approval = self.approval
        return other

    def close(self) -> None:
        """Finish pending anchors; close the connections."""
        self.anchors.close()
        super().close()

    def endpoint(self, alias: str) -> str:
        """A cluster's address for clients: its bootstrap servers."""
        return ",".join(server.strip() for server in self.config.clusters[alias].bootstrap_servers.split(","))

    def directories(self, link: LinkId) -> tuple[Directory, ...]:
        """The directories where clients of a link look up their cluster; may be empty."""
        return open_directories(self.config, link)

    def link(self, wanted: LinkId) -> Link:
        """The configured link of this name.

        Raises:
            ConfigError: it isn't configured.
        """
        for configured in self.config.links:
            link = configured.link()
            if link.id == wanted:
                return link
        raise ConfigError(f"no link {wanted} is configured", remedy="Put it back into the configuration")
