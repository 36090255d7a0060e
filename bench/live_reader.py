"""A child process that reads a topic from its end and measures how old each record is when it arrives.

    python -m bench.live_reader ADDRESS TOPIC SECONDS

Prints `reading` once the first record has come, then one line of JSON after SECONDS: records, seconds,
percentiles in milliseconds.
"""

from __future__ import annotations

import json
import sys
from array import array

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from bench.stamps import now_ns, sent_ns
from bench.stats import percentile

_FIRST_RECORD_SECONDS = 30.0
_AT_ONCE = 10_000
_SHARES = (*(number / 100 for number in range(1, 100)), 0.999)


def read(address: str, topic: str, seconds: float) -> dict[str, object]:
    """Read for so many seconds, counted from the first record on.

    Raises:
        TimeoutError: no record came for 30 s.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "fetch.error.backoff.ms": 10,
            "isolation.level": "read_committed",
        }
    )
    ages = array("q")
    try:
        known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in known])
        began = 0
        while not began or now_ns() - began < seconds * 1e9:
            message = consumer.poll(_FIRST_RECORD_SECONDS)
            if message is None:
                raise TimeoutError(f"no record of {topic} came for {_FIRST_RECORD_SECONDS:.0f} s")
            if not began:
                began = now_ns()
                print("reading", flush=True)
            for each in (message, *consumer.consume(_AT_ONCE, 0)):  # `consume` with a timeout waits all of it
                value = None if each.error() else each.value()
                if value is not None:
                    ages.append(now_ns() - sent_ns(value))
        took = (now_ns() - began) / 1e9
    finally:
        consumer.close()
    ordered = [age / 1e6 for age in sorted(ages)]
    return {
        "records": len(ordered),
        "seconds": took,
        "percentiles": [round(percentile(ordered, share), 3) for share in _SHARES],
        "max": round(ordered[-1], 3),
    }


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1], sys.argv[2], float(sys.argv[3]))), flush=True)
