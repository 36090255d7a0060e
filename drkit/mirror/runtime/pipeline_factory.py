"""Builds the parts of a session that depend on what its link does to records and topics.

A link that alters records (filter, transform, provenance) is verified by its callables' results; one whose target has
other writers is resumed by provenance; any link is refused if its records would circulate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import ProducerStateAdmin
from drkit.kafka.client.filler import FillerTrimmer
from drkit.kafka.client.record_probe import OffsetRange
from drkit.kafka.transform.record_transform import Alteration
from drkit.lag.fence_markers import link_producers
from drkit.lag.unmirrored_tail import LinkSides
from drkit.mirror.control import Orders
from drkit.mirror.engine.batch_engine import BatchEngine
from drkit.mirror.engine.interface import Engine, KeepRows
from drkit.mirror.engine.pacing.throttle import Throttle
from drkit.mirror.engine.partition_state import ProducerMemory
from drkit.mirror.engine.producer_id import LinkProducer
from drkit.mirror.health.problems import Problems
from drkit.mirror.resume.offset_alignment.returned_filler import ReturnedFiller
from drkit.mirror.resume.partition_resume import Resumer
from drkit.mirror.resume.shared_target import ProvenanceReader, SharedResumer
from drkit.mirror.resume.shared_target_start import SharedTargetStart
from drkit.mirror.resume.tail_verification import TailVerifier
from drkit.mirror.resume.transformed_tail import AlteredTailVerifier
from drkit.mirror.topics.topology_check import TopologyGuard
from drkit.model.errors import DrkitError
from drkit.model.offsets import Watermark
from drkit.model.topology import Link
from drkit.store.api import MappingStore, Store

_MEMORY_SECONDS = 60.0
"""How often the target's brokers are asked for how long they remember a producer."""


class PipelineFactory:
    """The parts of a session that depend on what its link does.

    Args:
        config: the clusters, and the links around this one.
        link: the link.
        source, target: its clusters.
        beside: the links around it.
        store: has the link's producer ids.

    Raises:
        ConfigError: a callable of the link can't be used.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        source: ClusterAdmin,
        target: ClusterAdmin,
        beside: Sequence[Link],
        store: Store,
    ) -> None:
        self._link = link
        self._configs = config.clusters[link.id.source], config.clusters[link.id.target]
        self._admins = source, target
        self._alteration = Alteration.of(config, link)
        self._memory, self._memory_due = ProducerMemory(), 0.0
        self._guard = TopologyGuard(config, link, beside, source, target, self._identify)
        self._producers = ProducerStateAdmin(link.id.target, self._configs[1], timeout_seconds=target.timeout_seconds)
        self._trimmer = FillerTrimmer(
            link.id.target, self._configs[1], target, lambda: link_producers(store, link.id, target.cluster_id()).ids
        )

    def close(self) -> None:
        """Close its connections."""
        self._producers.close()
        self._trimmer.close()

    def engine(self, *, keep_rows: KeepRows, may_produce: Callable[[], bool]) -> Engine:
        """The engine; arguments as `BatchEngine`'s."""
        link, (source, target) = self._link, self._configs
        throttle = Throttle(link.max_bytes_per_second)
        return BatchEngine(
            (link.id.source, source),
            (link.id.target, target),
            keep_rows=keep_rows,
            may_produce=may_produce,
            trim=self._trimmer.trim,
            committed=link.committed,
            buffer_bytes=link.buffer_bytes,
            throttle=throttle if throttle.limits else None,
            catch_up=link.catch_up,
            rack=source.properties().get("client.rack", ""),
            range_digests=link.keeps_range_digests,
            alteration=self._alteration,
            producer_memory=self._memory,
        )

    def see_producer_memory(self) -> None:
        """Look, now and then, for how long the target's brokers remember a producer: an operator may change it. Where
        they don't tell, what is known stays."""
        if time.monotonic() < self._memory_due:
            return
        self._memory_due = time.monotonic() + _MEMORY_SECONDS
        with suppress(DrkitError):  # drkit may not see it, or no broker answers
            self._memory.told(self._admins[1].producer_expiration())

    def resumer(self, mappings: MappingStore, problems: Problems, whole: Store) -> Resumer:
        """The object that finds where partitions continue; `whole` has the link's producer id and alignments, the other
        arguments are `Resumer`'s.
        """
        link, alteration = self._link, self._alteration
        producer = LinkProducer(link.id, self._admins[1], self._producers, whole)
        if alteration is None:
            verifier = TailVerifier(*self._configs, committed=link.committed)
            return Resumer(
                link.id, *self._admins, mappings, problems, verifier, producer, whole, committed=link.committed
            )
        if link.shares_target:
            reader = ProvenanceReader(*self._configs, committed=link.committed)
            shared = SharedResumer(
                link.id, *self._admins, mappings, problems, reader, producer, whole, committed=link.committed
            )
            return shared.use(reader, alteration)
        altered = AlteredTailVerifier(*self._configs, link, alteration)
        return Resumer(link.id, *self._admins, mappings, problems, altered, producer, whole, committed=link.committed)

    def returned_filler(self, store: Store, problems: Problems) -> ReturnedFiller:
        """The object that removes filler that is visible again."""
        return ReturnedFiller(self._link.id, self._admins[1], store, problems, self._trimmer.trim)

    def gone(self, store: Store) -> Callable[[Watermark], OffsetRange] | None:
        """What a target with other writers has lost at the start of its log; None: the mapping rows say it."""
        if self._alteration is None or not self._link.shares_target:
            return None
        reader = ProvenanceReader(*self._configs, committed=self._link.committed)
        return SharedTargetStart(self._link, *self._admins, store, reader, self._alteration).missing

    def sides(self, store: Store) -> Callable[[], LinkSides] | None:
        """What both sides are compared with; None where others write to the target."""
        link, alteration = self._link, self._alteration
        if link.shares_target:
            return None
        return lambda: LinkSides(link.id, *self._admins, link.target_topic, store, alteration, link.committed)

    def may_run(self, topics: Iterable[str] = ()) -> bool:
        """Whether the links around this one let it run, as far as is known; `topics`: some of its source.

        Raises:
            Unreachable: the link's clusters don't answer.
        """
        self._guard.check(topics)
        return self._guard.refusal is None

    def orders(self, orders: Orders) -> Orders:
        """The link's control state, with the refusal that the links around it require."""
        refusal = self._guard.refusal
        return orders if refusal is None or orders.refusal is not None else replace(orders, refusal=refusal)

    def _identify(self, source_id: str, target_id: str) -> None:
        if self._alteration is not None:
            self._alteration.identify(source_id, target_id)
