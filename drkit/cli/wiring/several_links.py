"""For verbs that do the same for several links, each by itself: which failed, and one exit code for all."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drkit.model.errors import DrkitError, OutcomeUnknown, PartlyDone, error_body
from drkit.model.topology import LinkId
from drkit.model.wording import and_more, counted


@dataclass(frozen=True, slots=True)
class LinkFailure:
    """A link for which it could not be done, and why. `again`: the command for this link alone."""

    link: LinkId
    error: DrkitError
    again: str


def failure_documents(failures: Sequence[LinkFailure]) -> list[dict[str, Any]]:
    """The `failures` of a document: each error, with its link."""
    return [{"link": str(each.link), **error_body(each.error)} for each in failures]


def combined_error(failures: Sequence[LinkFailure], done: int) -> DrkitError | None:
    """What the operator is told, whose class gives the exit code; None: no link failed.

    Args:
        failures: the links that failed.
        done: for how many links it was done.

    Returns:
        Where nothing was done, the first link's error, naming all that failed. Else `PartlyDone`, or `OutcomeUnknown`
        where of each that failed no more than the outcome isn't known.
    """
    if not failures:
        return None
    first = failures[0].error
    why = and_more([f"{each.link}: {each.error.what}" for each in failures], separator="; ")
    again = "; ".join(each.again for each in failures)
    remedy = f"{first.remedy.rstrip('. ')}; then {again}" if first.remedy else again
    if not done:
        combined = copy.copy(first)
        combined.what, combined.remedy = why, remedy
        return combined
    kind = OutcomeUnknown if all(isinstance(each.error, OutcomeUnknown) for each in failures) else PartlyDone
    return kind(
        f"{len(failures)} of {counted(len(failures) + done, 'link')} failed: {why}",
        meaning=f"It is done for the other {done}",
        remedy=remedy,
    )
