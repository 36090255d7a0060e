"""What an operator must know of a record, or a target, that can't be written: the incident with its remedy. Pure."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from drkit.mirror.engine import Incident, IncidentKind
from drkit.mirror.producers import Fatal
from drkit.model.topology import TopicPartition

RETRY_NOW = "`drkit link resume` the topic: it is tried again"
RETRY = f"Then {RETRY_NOW}"
DENIED = (
    "Grant drkit's principal IDEMPOTENT_WRITE on the target cluster, or WRITE on its topics (since Kafka 2.8 that is "
    f"enough). {RETRY}"
)


def rejection(tp: TopicPartition, target_topic: str, message: Message, error: KafkaError) -> Incident:
    """What an operator must know of a record that the target refuses."""
    size = len(message.key() or b"") + len(message.value() or b"")
    reason = (
        f"the target refuses the record at source offset {message.offset()} of {tp} "
        f"({size} bytes of key and value): {error.str()}"
    )
    remedies = {
        KafkaError.MSG_SIZE_TOO_LARGE: f"Raise max.message.bytes of {target_topic} on the target above its size",
        KafkaError.TOPIC_AUTHORIZATION_FAILED: f"Grant drkit's principal WRITE on {target_topic} on the target",
        KafkaError.INVALID_TIMESTAMP: f"Raise message.timestamp.after.max.ms of {target_topic} on the target",
    }
    remedy = remedies.get(error.code(), "Remove the cause named on the target")
    return Incident(tp, IncidentKind.REJECTED, reason, f"{remedy}. {RETRY}")


def denied(tp: TopicPartition, error: Fatal) -> Incident:
    """What an operator must know of a target that doesn't let drkit produce at all."""
    reason = f"the target refuses to let drkit's principal produce idempotently: {error.reason}"
    return Incident(tp, IncidentKind.REJECTED, reason, DENIED)


def too_large(tp: TopicPartition, message: Message) -> Incident:
    """What an operator must know of a record that the link's buffer can't hold."""
    size = size_with_headers(message)
    reason = f"the record at source offset {message.offset()} of {tp} ({size} bytes) is larger than the link may hold"
    return Incident(
        tp,
        IncidentKind.REJECTED,
        reason,
        f"Raise the link's buffer_bytes to {3 * size} or more and start the mirror anew",
    )


def size_of(message: Message) -> int:
    """Bytes of key and value."""
    return len(message.value() or b"") + len(message.key() or b"")


def size_with_headers(message: Message) -> int:
    """Bytes of key, value and headers."""
    return size_of(message) + sum(len(header[0]) + len(header[1] or b"") for header in message.headers() or [])
