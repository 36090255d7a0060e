"""The network between drkit and the primary: a TCP proxy that delays, drops or cuts traffic.

    python -m drkit.drill.environment.wan_proxy CONTROL PARENT LISTEN FORWARD PORT…

listens on LISTEN:PORT and forwards to FORWARD:PORT, in both directions. CONTROL is a file with a `NetworkState`, which
is polled; its number is written to CONTROL.seen once it is in force. The process ends with PARENT.

A proxy sees streams, not packets, so a lost packet has the effect that applications see: later bytes on its connection
wait for the retransmission. A connection in a partition is silent, and continues afterwards, unless the network
`forgets` it, as a stateful firewall does: then it stays silent forever, and only new connections get through. In a
partition connecting itself succeeds (the proxy is near), but there is no response.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from drkit.files import write_atomically

Direction = Literal["to_primary", "from_primary"]
_LOOK_SECONDS: Final = 0.02
_CHUNK: Final = 64 * 1024
_MOST_IN_FLIGHT: Final = 4 << 20
"""The most bytes in flight in one direction of a connection; then reading stops, as with a full window."""
_PACKET: Final = 1460
_RETRANSMISSION_SECONDS: Final = 0.2
"""The least time after which TCP sends a packet again on Linux."""
_LINGER_NONE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


@dataclass(frozen=True, slots=True)
class NetworkState:
    """The state of the network.

    `delay_ms`, `jitter_ms`: each way; `loss`: share of packets; `kilobytes_per_second`: each way, 0: no limit;
    `blocked`: directions in which nothing passes; `forgets`: connections that were open while something was blocked
    stay silent; `resets`: how often all connections were reset so far; `number`: grows with each change.
    """

    number: int = 0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    kilobytes_per_second: float = 0.0
    blocked: tuple[Direction, ...] = ()
    forgets: bool = False
    resets: int = 0

    def write(self, control: Path) -> None:
        """Put it into force."""
        write_atomically(control, json.dumps(asdict(self)))

    @classmethod
    def read(cls, control: Path) -> NetworkState:
        """The last written state."""
        found = json.loads(control.read_text(encoding="utf-8"))
        return cls(**{**found, "blocked": tuple(found["blocked"])})


class NetworkEmulator:
    """All connections of the proxy, and their shared network state."""

    def __init__(self, state: NetworkState) -> None:
        self.state = state
        self._free_at: dict[Direction, float] = {"to_primary": 0.0, "from_primary": 0.0}
        self._connections: set[_Connection] = set()
        self.changed = asyncio.Event()

    def apply(self, state: NetworkState) -> None:
        """Put another state into force."""
        before, self.state = self.state, state
        if before.forgets and before.blocked and not state.blocked:
            for each in self._connections:
                each.forgotten = True
        if state.resets > before.resets:
            for each in list(self._connections):
                each.reset()
        self.changed.set()
        self.changed = asyncio.Event()

    def due(self, direction: Direction, size: int) -> float:
        """The arrival time at the other end of bytes sent now, by the loop's clock."""
        state, at = self.state, asyncio.get_running_loop().time()
        if state.kilobytes_per_second:
            at = max(at, self._free_at[direction]) + size / (state.kilobytes_per_second * 1000)
            self._free_at[direction] = at
        at += (state.delay_ms + random.uniform(-state.jitter_ms, state.jitter_ms)) / 1000  # noqa: S311 - no secret
        packets = -(-size // _PACKET)
        if random.random() > (1 - state.loss) ** packets:  # noqa: S311 - as above
            at += _RETRANSMISSION_SECONDS + 2 * state.delay_ms / 1000
        return at

    async def accept(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter, upstream: tuple[str, int]
    ) -> None:
        """Forward one connection, to its end."""
        try:
            server_reader, server_writer = await asyncio.open_connection(*upstream)
        except OSError:
            client_writer.transport.abort()
            return
        connection = _Connection(self, client_writer, server_writer)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                connection.forward("to_primary", client_reader, server_writer),
                connection.forward("from_primary", server_reader, client_writer),
            )
        finally:
            self._connections.discard(connection)


class _Connection:
    """One connection through the proxy: a stream to each end."""

    def __init__(
        self, network: NetworkEmulator, client_writer: asyncio.StreamWriter, server_writer: asyncio.StreamWriter
    ) -> None:
        self._network = network
        self._ends = (client_writer, server_writer)
        self.forgotten = False

    def reset(self) -> None:
        """RST to both ends."""
        for end in self._ends:
            raw = end.get_extra_info("socket")
            if raw is not None:
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
            end.transport.abort()

    async def forward(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction: read at once, write when due, in order."""
        in_flight: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        bytes_in_flight = _BytesInFlight()
        delivery = asyncio.create_task(self._deliver(direction, in_flight, bytes_in_flight, writer))
        last = 0.0
        try:
            while not delivery.done():
                await bytes_in_flight.wait_for_room()
                data = await reader.read(_CHUNK)
                last = max(last, self._network.due(direction, len(data)))
                bytes_in_flight.add(len(data))
                in_flight.put_nowait((last, data))
                if not data:
                    break
        except (ConnectionError, OSError):
            in_flight.put_nowait((last, b""))
        await delivery

    async def _deliver(
        self,
        direction: Direction,
        in_flight: asyncio.Queue[tuple[float, bytes]],
        bytes_in_flight: _BytesInFlight,
        writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError, OSError):
            while True:
                due, data = await in_flight.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                while (self.forgotten or direction in self._network.state.blocked) and not writer.is_closing():
                    await self._network.changed.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
                bytes_in_flight.add(-len(data))
        bytes_in_flight.add(-_MOST_IN_FLIGHT)  # let a waiting reader see the end
        writer.close()


class _BytesInFlight:
    """The number of bytes in flight."""

    def __init__(self) -> None:
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    def add(self, size: int) -> None:
        self._bytes += size
        if self._bytes < _MOST_IN_FLIGHT:
            self._has_room.set()
        else:
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        await self._has_room.wait()


async def serve(control: Path, parent: int, listen: str, forward: str, ports: Sequence[int]) -> None:
    """Run the proxy until the parent is gone."""
    network = NetworkEmulator(NetworkState.read(control))

    def accepting(port: int) -> Any:
        return lambda reader, writer: network.accept(reader, writer, (forward, port))

    for port in ports:
        await asyncio.start_server(accepting(port), listen, port)
    seen = control.with_suffix(".seen")
    write_atomically(seen, str(network.state.number))
    while os.getppid() == parent:
        state = NetworkState.read(control)
        if state.number != network.state.number:
            network.apply(state)
            write_atomically(seen, str(state.number))
        await asyncio.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    given, of, host, target, *numbers = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(Path(given), int(of), host, target, [int(number) for number in numbers]))
