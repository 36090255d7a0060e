"""A child process that only forwards record batches from one broker to another.

    python -m bench.bare_forwarder SOURCE TARGET TOPIC PARTITIONS

Two sockets and one thread, no mapping, no sequence numbers, no state, no checks: any failure makes it lose or duplicate
records. Its cost and latency are the lower bound for a forwarder in Python on this machine; it is not a mirror.
"""

from __future__ import annotations

import struct
import sys
from itertools import zip_longest

from bench.wire import Connection, Session
from drkit.kafka.protocol.record_batch import HEADER_BYTES, LOG_OVERHEAD

_LAST_DELTA_AT = 23
_BASE_OFFSET = bytes(8)  # a producer's batches begin at 0; the broker sets the base offset


def forward(source: str, target: str, topic: str, partitions: int) -> None:
    """Forward new records of the source forever."""
    with Connection(source) as reading, Connection(target) as writing:
        positions = reading.ends(topic, range(partitions))
        changed, session = dict(positions), Session(topic)
        while True:
            found = reading.fetch(session, changed)
            changed = {}
            queues: list[list[tuple[int, bytes]]] = []
            for partition, data in found.items():
                batches, changed[partition] = _batches(data, positions[partition])
                queues.append([(partition, batch) for batch in batches])
            positions.update(changed)
            requests = [dict(filter(None, each)) for each in zip_longest(*queues)]  # one batch of a partition in each
            for request in requests:
                writing.send_produce(topic, request)
            for _ in requests:
                writing.receive_produce()


def _batches(data: memoryview, position: int) -> tuple[list[bytes], int]:
    """The whole batches from a position on, in a producer's form, and the position after them."""
    found, at = [], 0
    while at + HEADER_BYTES <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        after = at + LOG_OVERHEAD + length
        if after > len(data):
            break
        last = base + struct.unpack_from(">i", data, at + _LAST_DELTA_AT)[0]
        if last >= position:
            found.append(_BASE_OFFSET + bytes(data[at + len(_BASE_OFFSET) : after]))
            position = last + 1
        at = after
    return found, position


if __name__ == "__main__":
    _source, _target, _topic, _partitions = sys.argv[1:]
    forward(_source, _target, _topic, int(_partitions))
