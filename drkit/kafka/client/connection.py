"""One connection of the data path: requests and responses with as little code as possible above the socket.

aiokafka's client makes the connection: it does TLS, SASL and the negotiation of versions. From then on its own reading
would cost more than the mirror's work on a small response: a stream's buffer, a task that waits for four bytes and then
for the rest, a future, each with an iteration of the event loop. So this module splits the incoming bytes into
responses itself and runs each request's callback in the same iteration. aiokafka has no public names for a connection's
internals; only this module uses them.

**Buffers.** A response of megabytes is allocated and freed many times a second. If it were mapped anew each time, the
kernel would fault in and zero every page, some two fifths of the cost of a record; malloc would fragment its heap. So
large responses use blocks of a pool. A block is free when only the list of all blocks refers to it: each view of it,
and each slice of a view, holds a reference.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from aiokafka import errors
from aiokafka.conn import CloseReason

from drkit.kafka.protocol import encoding as form

_ROUND = 1 << 20
_KEPT = 12 << 20
"""Bytes of free blocks to keep, or twice the last request if that is more."""
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class BufferPool:
    """Buffers, free or lent. Shared by threads."""

    def __init__(self) -> None:
        self._blocks: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def lend(self, size: int) -> memoryview:
        """A writable buffer of this size with arbitrary content. Free again once no view of it is left."""
        with self._lock:
            fitting = [block for block in _free(self._blocks) if size <= len(block) <= 2 * size + _ROUND]
            if fitting:
                block = min(fitting, key=len)
            else:
                block = mmap.mmap(-1, -(-size // _ROUND) * _ROUND, flags=_PRIVATE)
                self._blocks.append(block)
            lent = memoryview(block)[:size]
            del fitting, block
            self._release(max(_KEPT, 2 * size))
        return lent

    def release(self) -> None:
        """Return free buffers to the system."""
        with self._lock:
            self._release(0)

    def _release(self, kept: int) -> None:
        for block in _free(self._blocks):
            kept -= len(block)
            if kept < 0:
                self._blocks.remove(block)


def _free(blocks: list[mmap.mmap]) -> list[mmap.mmap]:
    return [block for block in blocks if sys.getrefcount(block) == _UNUSED]


def _unused() -> int:
    """The reference count that `_free` sees for a block that only the list holds."""
    return [sys.getrefcount(block) for block in [mmap.mmap(-1, _ROUND)]][0]  # noqa: RUF015 - the very expression of `_free`


_UNUSED = _unused()


log = logging.getLogger(__name__)

_HEADER = struct.Struct(">ihhih")  # size, API, version, correlation id, length of the client's name
_SIZE_BYTES = _LEAST_ANSWER = 4  # an answer holds its correlation id at least
_NO_TAGS = b"\0"
_LARGE = 512 * 1024
"""Responses from this size on use the buffer pool; smaller ones are quickly allocated."""
_FRAMES = BufferPool()


class Reply:
    """The outcome of a request: a response, or why there is none."""

    __slots__ = ("_answer", "_error")

    def __init__(self, answer: Any, error: BaseException | None = None) -> None:
        self._answer = answer
        self._error = error

    def result(self) -> Any:
        """The answer; raises what went wrong."""
        if self._error is not None:
            raise self._error
        return self._answer


def lost_transport(broker: str, error: RuntimeError) -> errors.KafkaConnectionError:
    """A connection was lost in this moment, and whoever reads it isn't told yet: uvloop raises RuntimeError for a
    write then, where asyncio writes nothing, and aiokafka expects neither."""
    return errors.KafkaConnectionError(f"the connection to broker {broker} was lost: {error}")


ResponseCallback = Callable[[Reply], None]
"""Called with the outcome of a request. It may send others, and must not raise."""


class _PendingResponse:
    """Stands in for the future of a response where aiokafka expects one."""

    __slots__ = ("_callback", "_done", "_loop")

    def __init__(self, callback: ResponseCallback, loop: asyncio.AbstractEventLoop) -> None:
        self._callback = callback
        self._loop = loop
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, answer: Any) -> None:
        self._done = True
        self._callback(Reply(answer))

    def set_exception(self, error: BaseException) -> None:
        self._done = True
        self._loop.call_soon(self._callback, Reply(None, error))  # the connection is closing, with all due responses


class ResponseReader:
    """Reads the responses of a connection; closes it if one is due and no byte arrives within the timeout.

    aiokafka's own timeout covers the whole response: a large one on a slow line would never be complete in time and
    be requested again forever.

    Args:
        made: aiokafka's connection, without requests in flight.
        seconds: the timeout.
    """

    def __init__(self, made: Any, seconds: float) -> None:
        self.made = made
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._moved_at = self._loop.time()
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._held: list[bytes] = []  # the beginning of a response
        self._held_bytes = 0
        self._needed = _SIZE_BYTES
        self._frame: memoryview | None = None  # a large incomplete response
        self._filled = 0
        reader: Any = made._reader  # an asyncio.StreamReader  # noqa: SLF001 - see above
        if reader is None:
            return  # closed meanwhile
        reader.feed_data = self._hear  # every byte goes here; aiokafka still handles the end of the stream

    def owes(self) -> None:
        """A request was sent: a response is due."""
        if len(self.made._requests) == 1:  # noqa: SLF001 - see above
            self._moved_at = self._loop.time()  # nothing was due until now
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds / 4, self._look)

    def _look(self) -> None:
        self._timer = None
        _FRAMES.release()
        made = self.made
        if made._writer is None:  # noqa: SLF001 - see above
            self._frame = None
            self._held.clear()
            return
        if not made._requests:  # noqa: SLF001 - see above
            return
        unsent: int = made._writer.transport.get_write_buffer_size()  # noqa: SLF001 - see above
        if unsent != self._unsent:
            self._unsent, self._moved_at = unsent, self._loop.time()
        if self._loop.time() - self._moved_at >= self._seconds:
            made.close(CloseReason.CONNECTION_TIMEOUT, TimeoutError(f"silent for {self._seconds:g} s"))
        else:
            self._timer = self._loop.call_later(self._seconds / 4, self._look)

    def _hear(self, data: bytes) -> None:
        """Bytes arrived: pass on every response that is complete."""
        self._moved_at = self._loop.time()
        data = self._gathered(data)
        if not data:
            return
        view, at, end = memoryview(data), 0, len(data)
        self._needed = _SIZE_BYTES
        while end - at >= _SIZE_BYTES:
            (size,) = form.I32.unpack_from(view, at)
            if size < _LEAST_ANSWER:
                self._out_of_sync(ValueError(f"an answer of {size} bytes"))
                return
            self._needed = _SIZE_BYTES + size
            if end - at < self._needed:
                if size >= _LARGE:
                    self._begin(size, view[at + _SIZE_BYTES :])
                    return
                break
            at += self._needed
            if not self._answer(view[at - size : at]):
                return
            self._needed = _SIZE_BYTES
        if at < end:
            self._held.append(data[at:] if at else data)
            self._held_bytes = end - at

    def _gathered(self, data: bytes) -> bytes:
        """The bytes so far; nothing until they hold a whole response."""
        if self._frame is not None:
            return self._continue(self._frame, data)
        if not self._held:
            return data
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes < self._needed:
            return b""
        data = b"".join(self._held)
        self._held.clear()
        return data

    def _begin(self, size: int, come: memoryview) -> None:
        """The first bytes of a large response arrived: assemble it in a pooled buffer."""
        self._frame, self._filled = _FRAMES.lend(size), len(come)
        self._frame[: len(come)] = come
        self._needed = _SIZE_BYTES

    def _continue(self, frame: memoryview, data: bytes) -> bytes:
        """More of the large response arrived; returns the bytes after it."""
        taken = min(len(data), len(frame) - self._filled)
        frame[self._filled : self._filled + taken] = data[:taken]
        self._filled += taken
        if self._filled < len(frame):
            return b""
        self._frame = None
        return data[taken:] if self._answer(frame) else b""

    def _answer(self, frame: memoryview) -> bool:
        """Pass a response on; false if the connection is then closed."""
        made = self.made
        try:
            answer = self._decoded(frame)
        except Exception as error:  # noqa: BLE001 - whatever came isn't Kafka's protocol: nothing after it can be trusted
            self._out_of_sync(error)
            return False
        _, _, owed = made._requests.popleft()  # noqa: SLF001 - see above
        if not owed.done():
            owed.set_result(answer)
        return made._writer is not None  # noqa: SLF001 - see above

    def _out_of_sync(self, error: Exception) -> None:
        made = self.made
        log.warning("broker %s:%s sent unreadable bytes, so its connection is closed: %r", made.host, made.port, error)
        made.close(CloseReason.OUT_OF_SYNC, error)

    def _decoded(self, frame: memoryview) -> Any:
        """The response to the oldest request."""
        correlation_id, request, _ = self.made._requests[0]  # noqa: SLF001 - see above
        (heard,) = form.I32.unpack_from(frame, 0)
        if heard != correlation_id:
            raise errors.CorrelationIdError(f"the answer to request {heard} came for request {correlation_id}")
        at = form.I32.size
        return request.RESPONSE_TYPE.decode(frame, form.tags(frame, at) if request.FLEXIBLE_VERSION else at)


class Connection:
    """One connection to a broker: requests sent on it are handled in the order in which they were sent."""

    __slots__ = ("_line", "_made")

    def __init__(self, line: ResponseReader) -> None:
        self._line = line
        self._made = line.made

    @property
    def open(self) -> bool:
        """Whether requests can be sent."""
        connected: bool = self._made.connected()
        return connected

    def send(self, request: Any) -> asyncio.Future[Any]:
        """Hand a request to the socket at once; the result is its response.

        Raises:
            KafkaError: the connection is closed (nothing was sent).
            NotImplementedError: the broker knows no version of the request that drkit knows.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._send(request, answer)
        return answer

    def send_with_callback(self, request: Any, callback: ResponseCallback) -> None:
        """Hand a request to the socket at once; `callback` is called with its outcome, as soon as it arrives.

        Raises:
            As `send`; `callback` is not called then.
        """
        self._send(request, _PendingResponse(callback, asyncio.get_running_loop()))

    def _send(self, request: Any, owed: asyncio.Future[Any] | _PendingResponse) -> None:
        made = self._made
        if made._writer is None:  # noqa: SLF001 - see `ResponseReader`
            raise errors.KafkaConnectionError(f"no connection to broker at {made.host}:{made.port}")
        encoded = request.prepare(made._versions)  # noqa: SLF001 - see `ResponseReader`
        client = made._client_id.encode()  # noqa: SLF001 - see `ResponseReader`
        tags = _NO_TAGS if encoded.FLEXIBLE_VERSION else b""
        correlation_id = made._next_correlation_id()  # noqa: SLF001 - see `ResponseReader`
        size = _HEADER.size - _SIZE_BYTES + len(client) + len(tags) + sum(map(len, encoded.parts))
        head = _HEADER.pack(size, encoded.API_KEY, encoded.API_VERSION, correlation_id, len(client))
        try:
            made._writer.write(b"".join((head, client, tags, *encoded.parts)))  # noqa: SLF001 - see `ResponseReader`
        except RuntimeError as error:
            made.close(CloseReason.CONNECTION_BROKEN, error)
            raise lost_transport(f"{made.host}:{made.port}", error) from error
        made._requests.append((correlation_id, encoded, owed))  # noqa: SLF001 - see `ResponseReader`
        self._line.owes()
