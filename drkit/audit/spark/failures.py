"""Converts Spark's failures to drkit's errors: the root cause, never a Java trace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from drkit.audit.read.log_tasks import FAILED
from drkit.audit.spark.session import how_jvm_ended, log_tail, quietly, stop_session
from drkit.kafka.client.log_reader import OffsetsGone, TopicGone
from drkit.model.errors import AuthenticationError, ConfigError, DrkitError, Refused, Unreachable

_MOST_CAUSES = 20
_TRACE = "Traceback (most recent call last):"
_MOVED = (
    "may have been lost",
    "OffsetOutOfRange",
    "UnknownTopicOrPartition",
    "UNRESOLVED_OFFSETS",
    "COULD_NOT_READ_OFFSET_RANGE",
)


_KEPT = ("Checkpoint block rdd_", "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND")


class LogMoved(DrkitError):
    """Records were removed while they were read (retention, a deleted topic): start again."""


class ExecutorLost(DrkitError):
    """An executor was lost with its part of the work so far: start again."""


_KINDS: dict[str, type[DrkitError]] = {
    "OffsetsGone": LogMoved,
    "TopicGone": LogMoved,
    "Unreachable": Unreachable,
    "Refused": Refused,
    "Denied": Refused,
    "ConfigError": ConfigError,
    "AuthenticationError": AuthenticationError,
}
_TOLD = re.compile(re.escape(FAILED) + r"(\{.*\})")


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Run Spark work; its failures become drkit's errors.

    Args:
        what: what is being done, as in "the audit".

    Raises:
        LogMoved: offsets, or a whole topic, went away while they were read.
        Unreachable: a cluster doesn't answer.
        Refused: a cluster denies access.
        DrkitError: anything else, by its root cause.
    """
    try:
        with quietly():
            yield
    except KeyboardInterrupt:
        stop_session(gently=False)
        raise
    except (OffsetsGone, TopicGone) as error:  # the driver reads some things itself
        raise LogMoved(error.what, meaning=error.meaning, remedy="Run it again") from error
    except (PySparkException, Py4JError, ConnectionError) as error:
        answered = isinstance(error, (PySparkException, Py4JJavaError))
        told = told_by_task(error)
        if told is not None:
            raise told from error
        ended = None if answered else how_jvm_ended()
        if ended is not None:
            raise DrkitError(
                f"Spark's JVM died during {what} ({ended})",
                meaning=f"Its log ends with: {log_tail()}",
                remedy="It may have run out of memory: give it more with --driver-memory, and run it again",
            ) from error
        raise _translated(what, causes(error)) from error


def told_by_task(error: BaseException) -> DrkitError | None:
    """The error of drkit's own with which a task of its data sources failed; None where it was another."""
    found = _TOLD.search(str(error)) or _TOLD.search(" ".join(_messages(_java_exception(error))))
    if found is None:
        return None
    try:
        told = json.JSONDecoder().raw_decode(found.group(1))[0]
    except ValueError:
        return None
    kind = _KINDS.get(told["type"], DrkitError)
    return kind(told["what"], meaning=told["meaning"], remedy=told["remedy"])


def causes(error: BaseException) -> list[str]:
    """The chain of causes, outermost first: `class: message`, each on one line."""
    java = _java_exception(error)
    if java is None:
        return [_one_line(str(error)) or type(error).__name__]
    found: list[str] = []
    while java is not None and len(found) < _MOST_CAUSES:
        name = java.getClass().getSimpleName()
        message = _one_line(java.getMessage() or "")
        line = f"{name}: {message}" if message else name
        if line not in found:
            found.append(line)
        java = java.getCause()
    return found


def _translated(what: str, found: list[str]) -> DrkitError:  # noqa: PLR0911 - one for each cause
    text, root = " ".join(found), found[-1]
    if any(word in text for word in _MOVED):
        return LogMoved(
            f"records were removed while {what} read them: {root}",
            meaning="Retention or compaction removed them, or a topic was deleted meanwhile",
            remedy="Run it again",
        )
    if any(word in text for word in _KEPT):
        return ExecutorLost(
            f"an executor was lost during {what}, and with it what it kept of the work so far: {root}",
            remedy="Run it again; Spark's web UI shows why the executor was lost",
        )
    if "OutOfMemoryError" in text or "SparkOutOfMemory" in text:
        return DrkitError(f"Spark ran out of memory during {what}: {root}", remedy="Give it more with --driver-memory")
    if "AuthorizationException" in text or "AuthenticationException" in text:
        return Refused(
            f"a cluster denies {what} access: {root}",
            remedy="Grant drkit's principal READ on the topics",
        )
    if "TimeoutException" in text or "DisconnectException" in text or "Failed to construct kafka consumer" in text:
        return Unreachable(
            f"a cluster stopped answering during {what}: {root}", remedy="Check its brokers and run it again"
        )
    if "SocketException" in text:
        return DrkitError(
            f"a connection between Spark's processes was cut during {what}: {root}",
            meaning="The data is fine; a worker or the network between them failed",
            remedy="Run it again",
        )
    return DrkitError(
        f"{what} failed in Spark: {root}", remedy="Run it with --verbose for the trace; report it if that doesn't help"
    )


def _messages(java: Any) -> list[str]:
    found: list[str] = []
    while java is not None and len(found) < _MOST_CAUSES:
        found.append(java.getMessage() or "")
        java = java.getCause()
    return found


def _java_exception(error: BaseException) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def _one_line(text: str) -> str:
    """The line that says most: the first, or of a Python trace the last."""
    if _TRACE in text:
        lines = [
            line for line in text.split(_TRACE, 1)[1].splitlines() if line and not line.startswith((" ", "SQLSTATE"))
        ]
        return (lines or [""])[-1]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    return lines[0] if lines else ""
