"""`ResponseReader` on a connection that aiokafka really made: however it ends, whoever waits is told, once."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError

from drkit.kafka.client.connection import Connection, Reply, ResponseReader
from drkit.kafka.protocol.data_requests import Produce, ProduceReply

_VERSIONS = struct.pack(">h i hhh", 0, 1, 0, 3, 8)  # no error; Produce, 3 to 8
_PRODUCED = struct.pack(">ih1sii h q q q i h i", 1, 1, b"t", 1, 0, 0, 5, -1, 0, 0, -1, 0)
_REQUESTS = 3

End = Callable[[asyncio.StreamWriter], None]


def _end_of_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">i", 100) + b"the beginning")
    writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _garbage(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\xff" * 50)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("end", [_end_of_stream, _reset, _garbage])
def test_what_is_under_way_when_a_connection_ends_is_told_once(end: End, run: Callable[..., None]) -> None:
    run(asyncio.wait_for(_play(end), 30))


async def _play(end: End) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(1 + _REQUESTS):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            _, _, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
            if number < 2:  # the versions, and the first request
                body = (_VERSIONS, _PRODUCED)[number]
                writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)
        await answered.wait()
        end(writer)
        with suppress(ConnectionError):
            await reader.read()  # until the client has closed it
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        served.set()

    answered, all_told, served = asyncio.Event(), asyncio.Event(), asyncio.Event()
    told: list[Reply] = []

    def tell(reply: Reply) -> None:
        told.append(reply)
        answered.set()
        if len(told) == _REQUESTS:
            all_told.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made = AIOKafkaConnection("127.0.0.1", port, client_id="drkit")
    await made.connect()
    try:
        connection = Connection(ResponseReader(made, 20.0))
        for _ in range(_REQUESTS):
            connection.send_with_callback(Produce({"t": [(0, (b"head", b"records"))]}, timeout_ms=1_000), tell)
        await all_told.wait()
        assert not connection.open
        answer: ProduceReply = told[0].result()
        assert [(each.topic, each.base_offset) for each in answer.partitions] == [("t", 5)]
        for reply in told[1:]:
            with pytest.raises(KafkaConnectionError):
                reply.result()
        with pytest.raises(KafkaConnectionError, match="no connection"):
            connection.send_with_callback(Produce({}, timeout_ms=1), tell)
        assert len(told) == _REQUESTS
    finally:
        await made.close()
        await served.wait()
        server.close()
        await server.wait_closed()
