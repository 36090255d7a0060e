"""A child process that produces a small record at a steady rate and measures how long each takes to be acknowledged.

    python -m bench.produce_latency ADDRESS TOPIC PARTITIONS RATE

Says `producing` once the first is acknowledged. SIGTERM ends it; then it prints one line of JSON: records, and
percentiles in milliseconds. What counts is the time from when a record was due, so one that waits for another's
answer isn't left out.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from array import array
from itertools import count

from bench.batches import json_values, record_batch
from bench.stats import percentile
from bench.wire import Connection

_BYTES = 100
_VALUES = 500


def produce(address: str, topic: str, partitions: int, rate: float) -> dict[str, object]:
    """Produce until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    values = json_values(_BYTES, _VALUES)
    spent = array("d")
    with Connection(address) as connection:
        began = time.monotonic()
        for number in count():
            due = began + number / rate
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            if ended:
                break
            connection.send_produce(topic, {number % partitions: record_batch([values[number % _VALUES]], "none")})
            connection.receive_produce()
            spent.append(time.monotonic() - due)
            if number == 0:
                print("producing", flush=True)
                began = (
                    time.monotonic() - 1 / rate
                )  # connecting and the broker's first look at the topic aren't counted
                spent.pop()
    ordered = sorted(1000 * each for each in spent)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99}
    found = {name: round(percentile(ordered, share), 3) for name, share in shares.items()}
    return {"records": len(ordered), **found, "max_ms": round(ordered[-1], 3)}


if __name__ == "__main__":
    _address, _topic, _partitions, _rate = sys.argv[1:]
    print(json.dumps(produce(_address, _topic, int(_partitions), float(_rate))), flush=True)
