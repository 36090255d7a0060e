"""The producer ids of a link's mirrors on its target clusters: the one in use, and those that were fenced off.

The id in use is a lease that doesn't end; a note has it, too, for a store that is recovered from the copy of a link's
state, or restored from a backup: leases are in neither.
"""

from __future__ import annotations

from drkit.model.clock import now
from drkit.model.topology import LinkId
from drkit.store.api import LinkStore, Store

PRODUCER_LEASES = "producer:"
_USED, _RETIRED, _REFUSED = "producer", "retired_producer", "refused"
_FOR_EVER_SECONDS = 100 * 365 * 86_400.0


def producer_lease(link: LinkId, cluster_id: str) -> str:
    """The lease whose owner is the producer id of the link's mirror on a target cluster."""
    return f"{PRODUCER_LEASES}{link}:{cluster_id}"


def used_producer(store: Store, link: LinkId, cluster_id: str) -> int | None:
    """The producer id of the link's mirror on a target cluster; None: the next mirror takes a new one."""
    kept = store.lease(producer_lease(link, cluster_id))
    return None if kept is None else int(kept.owner)


def use_producer(store: Store, link: LinkId, cluster_id: str, proposed: int) -> int:
    """The producer id in use: the proposed one if there is none. Durable on return."""
    name = producer_lease(link, cluster_id)
    kept = store.lease(name) or store.acquire_lease(name, str(proposed), _FOR_EVER_SECONDS, now())
    if store.notes(link, _USED).get(cluster_id) != kept.owner:
        store.put_notes(link, _USED, {cluster_id: kept.owner})
    return int(kept.owner)


def retire_noted_producers(store: LinkStore, link: LinkId) -> None:
    """Retire the ids that are noted, in a store that was filled from a copy or a backup: a mirror of before may still
    send by them, and a partition may refuse them already."""
    for cluster_id, noted in store.notes(link, _USED).items():
        if int(noted) not in retired_producers(store, link, cluster_id):
            retire_producer(store, link, cluster_id, int(noted))


def drop_producer(store: Store, link: LinkId, cluster_id: str) -> None:
    """The next mirror takes another id than the one in use."""
    name = producer_lease(link, cluster_id)
    kept = store.lease(name)
    if kept is not None:
        store.break_lease(name, kept.owner)


def retire_producer(
    store: LinkStore, link: LinkId, cluster_id: str, producer_id: int, *, refused: bool = False
) -> None:
    """Note that no mirror of the link uses this producer id on that cluster again; durable on return. `refused`: all
    partitions refuse what it still sends."""
    store.put_notes(link, _RETIRED, {f"{cluster_id} {producer_id}": _REFUSED if refused else ""})


def employ_producer(store: LinkStore, link: LinkId, cluster_id: str, producer_id: int) -> None:
    """Take `retire_producer` back: no partition refuses it."""
    store.forget_notes(link, _RETIRED, [f"{cluster_id} {producer_id}"])


def retired_producers(store: LinkStore, link: LinkId, cluster_id: str) -> dict[int, bool]:
    """The producer ids that were retired on that cluster, and whether all partitions refuse what they still send."""
    noted = ((name.rpartition(" "), state) for name, state in store.notes(link, _RETIRED).items())
    return {int(number): state == _REFUSED for (cluster, _, number), state in noted if cluster == cluster_id}
