"""The oldest brokers that drkit works with, recognised by the request versions that they offer. Pure.

Without topic ids drkit can't tell a recreated topic from the mirrored one, without leader epochs in Fetch it can't tell
a log that lost its tail from an intact one, and without the state of producers no append is conditional. So older
brokers are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

OLDEST = "2.8"


class RequiredVersion(NamedTuple):
    """A request that drkit sends in this version. `since`: of Kafka."""

    api_key: int
    name: str
    version: int
    since: str


NEEDED = (
    RequiredVersion(0, "Produce", 8, "2.4"),
    RequiredVersion(1, "Fetch", 12, "2.7"),  # leader epochs are compared (KIP-595)
    RequiredVersion(3, "Metadata", 10, "2.8"),  # topic ids (KIP-516)
    RequiredVersion(23, "OffsetForLeaderEpoch", 3, "2.3"),  # for consumers (KIP-320)
    RequiredVersion(61, "DescribeProducers", 0, "2.8"),  # KIP-664
)


def lacking(offered: Mapping[int, tuple[int, int]]) -> list[str]:
    """What a broker with these versions (lowest and highest, by API key) lacks, for messages."""
    found = []
    for need in NEEDED:
        lowest, highest = offered.get(need.api_key, (0, -1))
        if lowest <= need.version <= highest:
            continue
        has = "doesn't offer it" if highest < 0 else f"offers {lowest} to {highest}"
        found.append(f"{need.name} version {need.version} (it {has}; since Kafka {need.since})")
    return found


def what_is_lacking(broker: str, lacks: list[str]) -> str:
    """The error's text about a broker, given by host and port."""
    return f"broker {broker} lacks {', '.join(lacks)}"


REMEDY = f"Upgrade that broker: drkit needs Kafka {OLDEST} or later on both sides"
