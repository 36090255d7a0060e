"""A child process that sends records at a steady rate, each stamped with its time of sending.

    python -m bench.live_producer ADDRESS TOPIC PARTITIONS BYTES CODEC RATE

Every 2 ms one produce request goes out that holds what is due since the last one, spread over the
partitions. It runs until it is ended; where it can't keep the rate, it says so on stderr and exits 1.
"""

from __future__ import annotations

import sys
import time
from itertools import count

from bench.batches import Codec, json_values, record_batch
from bench.stamps import OVERHEAD, now_ns, stamped
from bench.wire import Connection

_TICK_NS = 2_000_000
_IN_FLIGHT = 5
_LATEST_NS = 5_000_000_000
_FILLERS = 500


def produce(address: str, topic: str, partitions: int, record_bytes: int, codec: Codec, rate: int) -> None:
    """Send forever.

    Raises:
        TimeoutError: more than five seconds behind the rate.
    """
    fillers = [value.replace(b'"', b"'")[: record_bytes - OVERHEAD] for value in json_values(record_bytes, _FILLERS)]
    began, sent, unanswered = now_ns(), 0, 0
    with Connection(address) as connection:
        for tick in count(1):
            wait = began + tick * _TICK_NS - now_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            elif wait < -_LATEST_NS:
                raise TimeoutError(f"{rate} records/s can't be kept on this machine")
            due = tick * _TICK_NS * rate // 1_000_000_000
            values: dict[int, list[bytes]] = {}
            for number in range(sent, due):
                filler = fillers[number % _FILLERS]
                values.setdefault(number % partitions, []).append(stamped(filler, now_ns()))
            sent = due
            if not values:
                continue
            if unanswered >= _IN_FLIGHT:
                connection.receive_produce()
                unanswered -= 1
            connection.send_produce(topic, {place: record_batch(each, codec) for place, each in values.items()})
            unanswered += 1


if __name__ == "__main__":
    _address, _topic, _partitions, _bytes, _codec, _rate = sys.argv[1:]
    produce(_address, _topic, int(_partitions), int(_bytes), _codec, int(_rate))  # type: ignore[arg-type]  # a codec
