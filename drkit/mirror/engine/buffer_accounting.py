"""Accounts for the memory that the batch engine's queues really hold.

A batch that is forwarded is a view into the answer that it was read in. As long as one batch of an answer waits, all of
the answer's memory is in use, be it 100 bytes of 12 MiB. So what is counted is whole answers, each once, until no batch
of it waits any more; a batch that was built here counts by itself, and so does one that was handed to a connection,
which has copied it.

Usually all batches of an answer go out one soon after the other. Where they don't (a broker that doesn't answer, a row
that can't be kept) and memory is short, what is left of an answer is copied, and the answer given up.
"""

from __future__ import annotations

from collections.abc import Iterable

from drkit.kafka.protocol.coalescing import Found
from drkit.kafka.protocol.fetch_produce import Payload
from drkit.kafka.protocol.record_batch import Batch
from drkit.mirror.engine.partition_queue import Append, Markers

_SENT: Payload = (b"", b"")
_LITTLE = 2
"""An answer of which less than one part in so many waits is copied rather than kept."""


class _Answer:
    """Memory that an answer was read into, and the batches of it that wait."""

    __slots__ = ("memory", "size", "used", "waiting")

    def __init__(self, memory: object, size: int) -> None:
        self.memory = memory
        self.size = size
        self.used = 0
        self.waiting: dict[Append, None] = {}


class BufferAccounting:
    """See the module docstring. Used on the engine's event loop; `held` may be read from any thread."""

    def __init__(self) -> None:
        self.held = 0
        """Bytes in use."""
        self._answers: dict[int, _Answer] = {}
        self._of: dict[Append, _Answer] = {}

    def wait(self, items: Iterable[Append | Markers]) -> None:
        """These were queued."""
        for item in items:
            records = item.payload[1] if isinstance(item, Append) else None
            if not isinstance(item, Append) or not isinstance(records, memoryview):
                self.held += item.size
                continue
            memory = records.obj
            answer = self._answers.get(id(memory))
            if answer is None:  # the entry refers to the memory, so nothing else gets its id meanwhile
                answer = self._answers[id(memory)] = _Answer(memory, memoryview(memory).nbytes)
                self.held += answer.size
            answer.used += item.size
            answer.waiting[item] = None
            self._of[item] = answer

    def sent(self, item: Append) -> None:
        """It was handed to a connection, which keeps a copy until it is sent."""
        if self._leave(item):
            self.held += item.size
        item.payload = _SENT

    def free(self, item: Append | Markers) -> None:
        """It is acknowledged, or dropped."""
        if not isinstance(item, Append) or not self._leave(item):
            self.held -= item.size

    def copy_out(self, items: Iterable[Append | Markers]) -> None:
        """Let these wait by themselves."""
        for item in items:
            if isinstance(item, Append) and self._leave(item):
                head, records = item.payload
                item.payload = head, bytes(records)
                self.held += item.size

    def compact(self) -> None:
        """Copy what waits of answers of which only little does."""
        for answer in [each for each in self._answers.values() if each.used * _LITTLE < each.size]:
            self.copy_out(list(answer.waiting))

    def _leave(self, item: Append) -> bool:
        """It refers to its answer no longer; false where it didn't."""
        answer = self._of.pop(item, None)
        if answer is None:
            return False
        del answer.waiting[item]
        answer.used -= item.size
        if not answer.waiting:
            del self._answers[id(answer.memory)]
            self.held -= answer.size
        return True


def apart(batches: Iterable[Found]) -> list[Found]:
    """These batches in memory of their own, for whoever keeps them without counting their answer."""
    return [each._replace(whole=memoryview(bytes(each.whole))) if isinstance(each, Batch) else each for each in batches]
