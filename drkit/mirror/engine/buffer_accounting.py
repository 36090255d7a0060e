"""Accounts for the memory that the batch engine's queues hold.

A forwarded batch is a view into its fetch response. As long as one batch of a response waits, all of the response's
memory is in use, even if that is 100 bytes of 12 MiB. So each response counts once and as a whole until none of its
batches waits. A rebuilt batch counts by itself, and so does one handed to a connection, which has copied it.

Usually all batches of a response are sent soon after each other. Where they aren't (a broker doesn't answer, a row
can't be stored) and memory is short, the remaining batches are copied and the response is freed.
"""

from __future__ import annotations

from collections.abc import Iterable

from drkit.kafka.protocol.coalescing import Found
from drkit.kafka.protocol.data_requests import Payload
from drkit.kafka.protocol.record_batch import Batch
from drkit.mirror.engine.partition_state import Append, Markers

_SENT: Payload = (b"", b"")
_LITTLE = 2
"""A response of which less than this fraction waits is copied rather than kept."""


class _Answer:
    """The memory of a fetch response, and its waiting batches."""

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
        """Account for queued items."""
        for item in items:
            records = item.payload[1] if isinstance(item, Append) else None
            if not isinstance(item, Append) or not isinstance(records, memoryview):
                self.held += item.size
                continue
            memory = records.obj
            answer = self._answers.get(id(memory))
            if answer is None:  # the entry holds a reference, so no other object has its id
                answer = self._answers[id(memory)] = _Answer(memory, memoryview(memory).nbytes)
                self.held += answer.size
            answer.used += item.size
            answer.waiting[item] = None
            self._of[item] = answer

    def sent(self, item: Append) -> None:
        """Account for an item handed to a connection, which keeps a copy until it is sent."""
        if self._leave(item):
            self.held += item.size
        item.payload = _SENT

    def free(self, item: Append | Markers) -> None:
        """Free an item that is acknowledged or dropped."""
        if not isinstance(item, Append) or not self._leave(item):
            self.held -= item.size

    def copy_out(self, items: Iterable[Append | Markers]) -> None:
        """Copy these items out of their responses."""
        for item in items:
            if isinstance(item, Append) and self._leave(item):
                head, records = item.payload
                item.payload = head, bytes(records)
                self.held += item.size

    def compact(self) -> None:
        """Copy the waiting batches of responses of which only a small part waits."""
        for answer in [each for each in self._answers.values() if each.used * _LITTLE < each.size]:
            self.copy_out(list(answer.waiting))

    def _leave(self, item: Append) -> bool:
        """Drop an item's reference to its response; returns False if it had none."""
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
    """Copies of these batches, for callers that keep them without accounting for their response."""
    return [each._replace(whole=memoryview(bytes(each.whole))) if isinstance(each, Batch) else each for each in batches]
