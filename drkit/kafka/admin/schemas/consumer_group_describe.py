"""ConsumerGroupDescribe (API 69, KIP-848): members of groups on the newer consumer protocol."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

from drkit.kafka.admin import schemas


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Describe groups by id."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Each group's state and members."""
