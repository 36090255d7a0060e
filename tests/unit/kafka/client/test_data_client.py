"""Metadata of the data path: which topics' leaders may be others, and who reads them when their reader has failed."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Any

import uvloop
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.metadata import MetadataResponse_v5

from drkit.config import ClusterConfig
from drkit.kafka.client.data_client import DataClient


def answer(**leaders: list[int]) -> MetadataResponse_v5:
    """Metadata of these topics: the leader of each partition."""
    topics = [
        (0, topic, False, [(0, number, leader, [1, 2], [1, 2], []) for number, leader in enumerate(led)])
        for topic, led in leaders.items()
    ]
    brokers = [(1, "a", 9092, None), (2, "b", 9092, None)]
    return MetadataResponse_v5(throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=1, topics=topics)


def test_only_topics_of_which_something_else_was_heard_are_told_each_once() -> None:
    client = DataClient("primary", ClusterConfig(bootstrap_servers="127.0.0.1:1"), timeout_seconds=1)
    cluster = ClusterMetadata()
    cluster.add_listener(client._heard)
    cluster.update_metadata(answer(orders=[1, 2], flights=[1]))
    assert client.take_changed() == {"orders", "flights"}
    cluster.update_metadata(answer(orders=[1, 2], flights=[1]))
    assert client.take_changed() == set()
    cluster.update_metadata(answer(orders=[1, 1], flights=[1], new=[-1]))
    cluster.update_metadata(answer(orders=[1, 1], flights=[1], new=[2]))
    assert client.take_changed() == {"orders", "new"}
    cluster.update_metadata(answer(flights=[1], new=[2]))
    assert client.take_changed() == {"orders"}  # it is gone
    cluster.update_metadata(answer(orders=[1, 1], flights=[1], new=[2]))
    assert client.take_changed() == {"orders"}


class Broker:
    """Answers ApiVersions and Metadata. `leader`: of the topic's partition; -1: there is none."""

    def __init__(self) -> None:
        self.leader = -1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                api, _, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
                port = writer.get_extra_info("sockname")[1]
                body = struct.pack(">h i hhh", 0, 1, 3, 0, 5) if api == 18 else self._metadata(port)
                writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)
        writer.close()

    def _metadata(self, port: int) -> bytes:
        topics = [(0, "orders", False, [(0, 0, self.leader, [1], [1], [])])]
        answer = MetadataResponse_v5(0, [(1, "127.0.0.1", port, None)], "c", 1, topics)
        return bytes(answer.encode())


def test_metadata_are_read_on_after_an_error_that_ends_their_reader() -> None:
    """uvloop raises RuntimeError for a request on a connection that was reset in this moment: aiokafka's task ends."""

    async def play() -> None:
        broker = Broker()
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = DataClient("primary", ClusterConfig(bootstrap_servers=f"127.0.0.1:{port}"), timeout_seconds=20)
        await client.connect()
        made = client._client
        assert made is not None
        plain = made._metadata_update

        async def fails(*_: Any) -> bool:
            made._metadata_update = plain
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

        made._metadata_update = fails
        broker.leader = 1
        asked = client.track(["orders"])
        assert asked is not None
        assert client.leader("orders", 0) is None
        while client.leader("orders", 0) is None:
            client.refresh()
            await asyncio.sleep(0.01)
        assert await asked is False, "who waited for the one that failed is told"
        await client.close()
        server.close()

    uvloop.run(asyncio.wait_for(play(), 30))
