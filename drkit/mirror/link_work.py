"""What one link does besides carrying records as they are: how a session gets its parts for that.

A link that alters records (filter, transform, provenance) is verified by what it makes of them; one
whose target has other writers too is resumed by provenance; any link is refused where its records would
go round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from drkit.config import Config
from drkit.kafka.admin import ClusterAdmin
from drkit.mirror.altered_tail import AlteredTailVerifier
from drkit.mirror.control import Orders
from drkit.mirror.engine import KeepRows
from drkit.mirror.problems import Problems
from drkit.mirror.producer_id import LinkProducer
from drkit.mirror.record_engine import RecordEngine
from drkit.mirror.record_writer import AppendOdd
from drkit.mirror.resume import Resumer
from drkit.mirror.shared_resume import ProvenanceReader, SharedResumer
from drkit.mirror.tail import TailVerifier
from drkit.mirror.throttle import Throttle
from drkit.mirror.topology import TopologyGuard
from drkit.mirror.transforms import Alteration
from drkit.model.topology import Link
from drkit.store.api import Store


class LinkWork:
    """The parts of a session that depend on what its link does.

    Args:
        config: the clusters, and the links around this one.
        link: the link.
        source, target: its clusters.

    Raises:
        ConfigError: a callable of the link can't be used.
    """

    def __init__(self, config: Config, link: Link, source: ClusterAdmin, target: ClusterAdmin) -> None:
        self._link = link
        self._configs = config.clusters[link.id.source], config.clusters[link.id.target]
        self._admins = source, target
        self._alteration = Alteration.of(config, link)
        self._guard = TopologyGuard(config, link, source, target, self._identify)

    def record_engine(
        self,
        *,
        keep_rows: KeepRows,
        may_produce: Callable[[], bool],
        append_odd: AppendOdd,
        stop: threading.Event,
        compression: str,
    ) -> RecordEngine:
        """The engine that works record by record; arguments as `RecordEngine`'s."""
        return RecordEngine(
            *self._configs,
            keep_rows=keep_rows,
            may_produce=may_produce,
            append_odd=append_odd,
            stop=stop,
            compression=compression,
            alteration=self._alteration,
            throttle=Throttle(self._link.max_bytes_per_second),
            buffer_bytes=self._link.buffer_bytes,
            shared=self._link.shares_target,
            committed=self._link.committed,
        )

    def resumer(self, store: Store, problems: Problems, producer: LinkProducer | None) -> Resumer:
        """Who finds where partitions go on; arguments as `Resumer`'s."""
        link, alteration = self._link, self._alteration
        if alteration is None:
            verifier = TailVerifier(*self._configs)
            return Resumer(link.id, *self._admins, store, problems, verifier, producer)
        if link.shares_target:
            reader = ProvenanceReader(*self._configs)
            return SharedResumer(link.id, *self._admins, store, problems, reader).use(reader, alteration)
        verifier = AlteredTailVerifier(*self._configs, link, alteration)
        return Resumer(link.id, *self._admins, store, problems, verifier)

    def may_run(self, topics: Iterable[str] = ()) -> bool:
        """Whether the links around this one let it run, as far as is known by now; `topics`: some of its source.

        Raises:
            Unreachable: the link's clusters don't answer.
        """
        self._guard.check(topics)
        return self._guard.refusal is None

    def orders(self, orders: Orders) -> Orders:
        """What holds for the link, with the refusal that its surroundings call for."""
        refusal = self._guard.refusal
        return orders if refusal is None or orders.refusal is not None else replace(orders, refusal=refusal)

    def _identify(self, source_id: str, target_id: str) -> None:
        if self._alteration is not None:
            self._alteration.identify(source_id, target_id)
