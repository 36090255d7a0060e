"""The error tree. Every error carries what happened, what it means and what to do next.

    DrkitError                    1  failed
     ├─ ConfigError               2  a configuration file, variable or flag is wrong
     │   ├─ AuthenticationError   2  a cluster answers, but one side refuses the other: certificates, credentials
     │   └─ ExtraMissing          2  what the command needs comes with an extra that is not installed
     ├─ Refused                   3  a precondition does not hold; nothing was changed
     │   ├─ NoAuthorizer          3  a cluster keeps no ACLs
     │   ├─ Denied                3  a cluster denies drkit's principal an operation
     │   ├─ StoreMissing          3  there is no store at `store.url`, or it is gone; nothing was created
     │   └─ OtherSchema           3  the store has the schema of another release of drkit, or is being migrated
     ├─ StalePlan                 4  the clusters changed since the plan was made
     ├─ PartlyDone                7  some stages are done; `drkit resume` continues
     ├─ OutcomeUnknown            8  an attempt got no answer
     ├─ Fenced                    1  another worker has taken partitions; nothing of theirs was written
     └─ Unreachable               1  a cluster or store did not answer in time (transient)
         └─ NotShown              3  a cluster answers, but doesn't show drkit what it must see there

Exit codes 5 (audit deviation) and 6 (objective missed) are results, not errors: see `ExitCode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from drkit.model.topology import TopicPartition


class ExitCode(IntEnum):
    """Exit codes of the outside contract (docs/contract.md)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    STALE = 4
    DEVIATION = 5
    OBJECTIVE_MISSED = 6
    PARTLY_DONE = 7
    UNKNOWN = 8
    INTERRUPTED = 130
    TERMINATED = 143


class DrkitError(Exception):
    """Base of every error that drkit raises on purpose.

    Args:
        what: what happened, one sentence without a trailing period.
        meaning: what it means for the operator, or ``""`` where `what` already says it.
        remedy: what to do next.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, what: str, *, meaning: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.meaning = meaning
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [self.what, self.meaning, self.remedy]
        return ". ".join(part.rstrip(".") for part in parts if part) + "."


def answered(error: DrkitError) -> bool:
    """Whether the cluster answered: it is up, its clients may work, and the fault is between it and drkit."""
    return isinstance(error, AuthenticationError | NotShown)


def unreached(*, refused: bool) -> str:
    """A predicate that says why nothing is read from a cluster. `refused`: it `answered`."""
    return "answers, but drkit can't work with it" if refused else "does not answer"


def error_body(error: DrkitError) -> dict[str, Any]:
    """An error as JSON (docs/schemas/error.schema.json, the value of `error`)."""
    return {
        "what": error.what,
        "meaning": error.meaning or None,
        "remedy": error.remedy or None,
        "kind": type(error).__name__,
        "exit_code": int(error.exit_code),
    }


class ConfigError(DrkitError):
    """A configuration file, environment variable or flag is wrong."""

    exit_code = ExitCode.USAGE


class AuthenticationError(ConfigError):
    """A cluster answers, but its certificate can't be trusted, or it doesn't accept our credentials.

    Commands that only look at a cluster report this as a fact about it, like `Unreachable`.
    """


class BrokerTooOld(AuthenticationError):
    """A broker lacks a version of a request without which drkit can't keep its promises."""


class ExtraMissing(ConfigError):
    """The command needs an extra of drkit that is not installed: see `drkit.config.extras`."""


class FolderUnusable(DrkitError):
    """No file can be written to a folder: it is full, read-only, or not a folder."""


class Refused(DrkitError):
    """A precondition does not hold; nothing was changed."""

    exit_code = ExitCode.REFUSED


class NoAuthorizer(Refused):
    """A cluster has no authorizer, so it keeps no ACLs."""


class Denied(Refused):
    """A cluster denies drkit's principal an operation."""


class StoreMissing(Refused):
    """There is no store at `store.url`, or it was removed while it was open; nothing was created.

    Args:
        what: what is missing, and where.
        recover_from: aliases of clusters that may hold a copy of its state, where the caller knows the links.
    """

    def __init__(self, what: str, recover_from: Sequence[str] = ()) -> None:
        commands = " or ".join(f"drkit store recover --from {alias}" for alias in recover_from)
        super().__init__(
            what,
            meaning="Runs, mapping and group positions are in the store; a new, empty one would know nothing of them, "
            "so drkit created none",
            remedy="Check store.url first. Where the store was lost: "
            f"{commands or 'drkit store recover --from the cluster mirrored to'} fills a new one from that "
            "cluster's own copy. Where nothing was ever mirrored: start `drkit mirror`, which creates it",
        )


class OtherSchema(Refused):
    """The store has another schema version than this drkit works with; nothing was changed."""


class StalePlan(DrkitError):
    """The clusters changed since the plan was made."""

    exit_code = ExitCode.STALE


class PartlyDone(DrkitError):
    """Some stages are done and in the journal; `drkit resume` continues."""

    exit_code = ExitCode.PARTLY_DONE


class OutcomeUnknown(DrkitError):
    """An attempt got no answer: observe before acting again."""

    exit_code = ExitCode.UNKNOWN


class Unreachable(DrkitError):
    """A cluster or store did not answer within its timeout. Transient: trying again may work."""


class NotShown(Unreachable):
    """A cluster answers, but doesn't show drkit what it must see there: a permission is missing, or it is another
    cluster than the link's. Waiting doesn't help.
    """

    exit_code = ExitCode.REFUSED


class Fenced(DrkitError):
    """A newer generation holds partitions that this worker tried to write: nothing of theirs was kept.

    Args:
        partitions: the taken partitions, by source topic.
    """

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        shown = ", ".join(map(str, self.partitions[:5])) + (" …" if len(self.partitions) > 5 else "")  # noqa: PLR2004
        super().__init__(
            f"another worker has taken {shown}",
            meaning="This worker was stopped or cut off for a while; the store refused what it tried to record of them",
            remedy="Nothing: it releases them and continues with the partitions that the group assigns to it",
        )


class Interrupted(DrkitError):
    """The keyboard interrupted a command that had changed nothing. A run that had is `PartlyDone`."""

    exit_code = ExitCode.INTERRUPTED


class Terminated(DrkitError):
    """SIGTERM ended a command that had changed nothing."""

    exit_code = ExitCode.TERMINATED
