"""DescribeShareGroupOffsets (API 90, KIP-932): where share groups begin on each partition."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

from drkit.kafka.admin import schemas


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Share-partition start offsets of groups by id."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Each group's start offsets; -1 where a partition has none yet."""
