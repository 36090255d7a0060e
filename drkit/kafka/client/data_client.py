"""Connections of the data path to one cluster: aiokafka's client, its metadata, a connection per purpose.

Everything runs on one event loop. The client reconnects by itself at the next request; this module adds what
the mirror needs: a start that waits for a cluster that is down, leaders by partition, and a refresh of stale
metadata, at most every half second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.structs import TopicPartition as KafkaPartition

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.client.connection import Connection, ResponseReader, lost_transport
from drkit.kafka.config.client_config import aiokafka_config
from drkit.kafka.protocol.broker_versions import REMEDY, lacking, what_is_lacking
from drkit.model.errors import BrokerTooOld

log = logging.getLogger(__name__)

_REFRESH_SECONDS = 0.5
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_METADATA_MS = 60_000
_GOODBYE_SECONDS = 0.5
"""How long a broker has to take its leave by TLS (a frozen one never does; uvloop would wait 30 s for it)."""

StreamError = (errors.KafkaError, OSError, asyncio.TimeoutError)
"""Errors of a request whose outcome is unknown: the connection failed, or it timed out."""


async def _close(client: AIOKafkaClient) -> None:
    """Close all connections of a client; those that a broker doesn't close in turn are cut."""
    connections = [each for each in client._conns.values() if each._writer is not None]  # noqa: SLF001 - no public name
    transports = [each._writer.transport for each in connections]  # noqa: SLF001 - likewise
    try:
        await asyncio.wait_for(client.close(), _GOODBYE_SECONDS)
    except TimeoutError:
        for transport in transports:
            transport.abort()


class DataClient:
    """The data path's connections to one cluster. Used on one event loop.

    Args:
        alias: the cluster's name in messages.
        cluster: how to reach it.
        timeout_seconds: how long a connection with a due response may be silent before it is closed.
    """

    def __init__(self, alias: str, cluster: ClusterConfig, *, timeout_seconds: float) -> None:
        self.alias = alias
        self._config = aiokafka_config(cluster)
        self._timeout_seconds = timeout_seconds
        self._lines: dict[tuple[int, str], ResponseReader] = {}
        self._client: AIOKafkaClient | None = None
        self._topics: set[str] = set()
        self._refreshed = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self.trouble: str | None = None
        self._heard_of: Mapping[str, object] = {}
        self._changed: set[str] = set()

    async def connect(self) -> None:
        """Discover the brokers, waiting until one answers."""
        pause = _FIRST_PAUSE
        while True:
            client = AIOKafkaClient(
                **self._config,
                request_timeout_ms=int(self._timeout_seconds * 1000),
                metadata_max_age_ms=_METADATA_MS,
                connections_max_idle_ms=None,
            )
            try:
                await _bootstrap(client)
            except StreamError as error:
                self.trouble = f"cluster {self.alias} can't be reached: {error}"
                await _close(client)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            except BaseException:
                await _close(client)
                raise
            else:
                self.trouble = None
                self._client = client
                client.cluster.add_listener(self._heard)
                return

    async def close(self) -> None:
        """Close all connections."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        if self._client is not None:
            client, self._client = self._client, None
            await _close(client)

    def _heard(self, cluster: Any) -> None:
        """Metadata were read: note the topics whose metadata changed."""
        before, now = self._heard_of, cluster._partitions  # noqa: SLF001 - no public name has all of a topic
        self._changed |= {topic for topic in before.keys() | now.keys() if before.get(topic) != now.get(topic)}
        self._heard_of = now

    def take_changed(self) -> set[str]:
        """The topics whose metadata changed since the last call: they may have other leaders."""
        changed, self._changed = self._changed, set()
        return changed

    def track(self, topics: Iterable[str]) -> Awaitable[object] | None:
        """Track the leaders of these topics' partitions from now on; returns an awaitable if some are new."""
        fresh = set(topics) - self._topics
        if not fresh or self._client is None:
            return None
        self._topics |= fresh
        asked: Awaitable[object] = self._client.set_topics(self._topics)
        return asked

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader of a partition, by the latest metadata; None if there is none."""
        if self._client is None:
            return None
        node = self._client.cluster.leader_for_partition(KafkaPartition(topic, partition))
        return node if node is not None and node >= 0 else None

    def denies(self, topic: str, partition: int) -> bool:
        """Whether the latest metadata say that there is no such partition. Only for tracked topics."""
        if self._client is None or self.trouble is not None or not self._client.cluster.brokers():
            return False
        cluster = self._client.cluster
        hidden = topic in cluster.unauthorized_topics
        return not hidden and partition not in (cluster.partitions_for_topic(topic) or ())

    def refresh(self) -> None:
        """Refresh the metadata soon: it proved stale."""
        if self._client is None or time.monotonic() - self._refreshed < _REFRESH_SECONDS:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshed = time.monotonic()
            self._refreshing = asyncio.create_task(self._refresh(self._client))

    async def _refresh(self, client: AIOKafkaClient) -> None:
        """Ask a known broker; if none answers, the configured ones."""
        try:
            if not await _updated(client):
                _close_silent(client)
                await _bootstrap(client)
                await _updated(client)
        except StreamError as error:
            self.trouble = f"cluster {self.alias} can't be reached: {error}"
        else:
            self.trouble = None

    async def connection(self, node: int, purpose: str) -> Connection | None:
        """The connection to a broker for one purpose; None if it can't be made now.

        Raises:
            BrokerTooOld: it is older than drkit supports.
        """
        if self._client is None or self._client.cluster.broker_metadata(node) is None:
            return None  # gone from the cluster: the client would log that at each try
        try:
            made = await self._client._get_conn(node, group=purpose)  # noqa: SLF001 - its `send` connects and sends in one, so requests could overtake each other
        except RuntimeError as error:
            log.info("%s", lost_transport(str(node), error))
            return None
        if made is None:
            return None
        if lacks := lacking(made._versions):  # noqa: SLF001 - it has no public name
            what = what_is_lacking(f"{made.host}:{made.port}", lacks)
            raise BrokerTooOld(f"cluster {self.alias}: {what}", remedy=REMEDY)
        line = self._lines.get((node, purpose))
        if line is None or line.made is not made:
            line = self._lines[node, purpose] = ResponseReader(made, self._timeout_seconds)
        return Connection(line)


async def _bootstrap(client: AIOKafkaClient) -> None:
    """Read the brokers from the configured ones.

    Raises:
        StreamError: none of them answers.
    """
    try:
        await client.bootstrap()
    except RuntimeError as error:
        raise lost_transport("of bootstrap_servers", error) from error


async def _updated(client: AIOKafkaClient) -> bool:
    """Read the metadata; returns whether that was possible.

    aiokafka's task that reads them ends for good by an error that it doesn't expect (`lost_transport`); whoever waits
    for it would then wait forever. So another one is begun.
    """
    reading = client._sync_task  # noqa: SLF001 - it has no public name
    asked = asyncio.ensure_future(client.force_metadata_update())
    await asyncio.wait([asked, reading], return_when=asyncio.FIRST_COMPLETED)
    if not reading.done():
        return bool(asked.result())
    if not reading.cancelled():
        log.warning("metadata are read by another task, as this one failed: %r", reading.exception())
    waiting, client._md_update_fut = client._md_update_fut, None  # noqa: SLF001 - as above
    if waiting is not None and not waiting.done():
        waiting.set_result(False)
    client._md_update_waiter = asyncio.get_running_loop().create_future()  # noqa: SLF001 - as above
    client._sync_task = asyncio.create_task(client._md_synchronizer())  # noqa: SLF001 - as above
    return bool(await asked)


def _close_silent(client: AIOKafkaClient) -> None:
    """Close the connections that failed to return metadata.

    aiokafka keeps a connection that timed out, and uses it again: one that a firewall has dropped from its table is
    silent forever.
    """
    for (_, group), made in list(client._conns.items()):  # noqa: SLF001 - it has no public name
        if group == ConnectionGroup.DEFAULT:
            made.close()
