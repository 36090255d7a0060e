"""Which cluster a link's source is, by its id, as the mirror last found it: once it is gone it can't be asked."""

from __future__ import annotations

from drkit.model.topology import LinkId
from drkit.store.api import LinkStore

_KIND = "source"
_ID = "cluster_id"


def keep_source_cluster(store: LinkStore, link: LinkId, cluster_id: str) -> None:
    """Note that the mirror reads from this cluster."""
    if known_source_cluster(store, link) != cluster_id:
        store.put_notes(link, _KIND, {_ID: cluster_id})


def known_source_cluster(store: LinkStore, link: LinkId) -> str | None:
    """The id noted; None: no mirror has run."""
    return store.notes(link, _KIND).get(_ID)
