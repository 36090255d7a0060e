"""The network between drkit and the primary: a TCP proxy that delays, drops or cuts traffic.

    python -m drkit.drill.environment.wan_proxy CONTROL PARENT HERE THERE PORT…

listens on HERE:PORT and forwards to THERE:PORT, in both directions. CONTROL is a file with a `LineState`, which is
polled; its number is written to CONTROL.seen once it is in force. The process ends with PARENT.

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

from drkit.lab.toolchain.cache import write_atomically

Direction = Literal["to_primary", "from_primary"]
_LOOK_SECONDS: Final = 0.02
_CHUNK: Final = 64 * 1024
_MOST_HELD: Final = 4 << 20
"""The most bytes in flight in one direction of a connection; then reading stops, as with a full window."""
_PACKET: Final = 1460
_RETRANSMISSION_SECONDS: Final = 0.2
"""The least time after which TCP sends a packet again on Linux."""
_LINGER_NONE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


@dataclass(frozen=True, slots=True)
class LineState:
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
    def read(cls, control: Path) -> LineState:
        """The last written state."""
        found = json.loads(control.read_text(encoding="utf-8"))
        return cls(**{**found, "blocked": tuple(found["blocked"])})


class WanLine:
    """All connections of the proxy, and their shared network state."""

    def __init__(self, state: LineState) -> None:
        self.state = state
        self._free_at: dict[Direction, float] = {"to_primary": 0.0, "from_primary": 0.0}
        self._connections: set[_Connection] = set()
        self.changed = asyncio.Event()

    def turn(self, state: LineState) -> None:
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

    async def accept(self, near: asyncio.StreamReader, back: asyncio.StreamWriter, there: tuple[str, int]) -> None:
        """Forward one connection, to its end."""
        try:
            far, forth = await asyncio.open_connection(*there)
        except OSError:
            back.transport.abort()
            return
        connection = _Connection(self, back, forth)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                connection.carry("to_primary", near, forth), connection.carry("from_primary", far, back)
            )
        finally:
            self._connections.discard(connection)


class _Connection:
    """One connection through the proxy: a stream to each end."""

    def __init__(self, line: WanLine, back: asyncio.StreamWriter, forth: asyncio.StreamWriter) -> None:
        self._line = line
        self._ends = (back, forth)
        self.forgotten = False

    def reset(self) -> None:
        """RST to both ends."""
        for end in self._ends:
            raw = end.get_extra_info("socket")
            if raw is not None:
                with suppress(OSError):
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
            end.transport.abort()

    async def carry(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction: read at once, write when due, in order."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        held = _BytesInFlight()
        delivery = asyncio.create_task(self._deliver(direction, under_way, held, writer))
        last = 0.0
        try:
            while not delivery.done():
                await held.room()
                data = await reader.read(_CHUNK)
                last = max(last, self._line.due(direction, len(data)))
                held.add(len(data))
                under_way.put_nowait((last, data))
                if not data:
                    break
        except (ConnectionError, OSError):
            under_way.put_nowait((last, b""))
        await delivery

    async def _deliver(
        self,
        direction: Direction,
        under_way: asyncio.Queue[tuple[float, bytes]],
        held: _BytesInFlight,
        writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError, OSError):
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                while (self.forgotten or direction in self._line.state.blocked) and not writer.is_closing():
                    await self._line.changed.wait()
                if not data:
                    break
                writer.write(data)
                await writer.drain()
                held.add(-len(data))
        held.add(-_MOST_HELD)  # let a waiting reader see the end
        writer.close()


class _BytesInFlight:
    """The number of bytes in flight."""

    def __init__(self) -> None:
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def add(self, size: int) -> None:
        self._bytes += size
        if self._bytes < _MOST_HELD:
            self._room.set()
        else:
            self._room.clear()

    async def room(self) -> None:
        await self._room.wait()


async def serve(control: Path, parent: int, here: str, there: str, ports: Sequence[int]) -> None:
    """Run the proxy until the parent is gone."""
    line = WanLine(LineState.read(control))

    def accepting(port: int) -> Any:
        return lambda reader, writer: line.accept(reader, writer, (there, port))

    for port in ports:
        await asyncio.start_server(accepting(port), here, port)
    seen = control.with_suffix(".seen")
    write_atomically(seen, str(line.state.number))
    while os.getppid() == parent:
        state = LineState.read(control)
        if state.number != line.state.number:
            line.turn(state)
            write_atomically(seen, str(state.number))
        await asyncio.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    given, of, host, target, *numbers = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(Path(given), int(of), host, target, [int(number) for number in numbers]))
