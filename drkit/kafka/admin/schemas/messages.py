"""ConsumerGroupDescribe (API 69, KIP-848: members of groups on the newer protocol) and DescribeShareGroupOffsets
(API 90, KIP-932: the start offsets of share groups)."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

from drkit.kafka.admin import schemas


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Describe groups by id."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Each group's state and members."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Share-partition start offsets of groups by id."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Each group's start offsets; -1 where a partition has none yet."""
