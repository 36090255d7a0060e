"""What an unplanned failover may lose without an operator's consent (`max_loss_…` of objectives and waves). Pure.

A loss with only a known minimum counts as unknown, so no number of records bounds it. Its age is bounded: records that
came after the last look at the source are younger than that look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from drkit.config import Objectives
from drkit.failover.context.state_machine import Loss, TopicLoss
from drkit.model.errors import Refused
from drkit.model.runs import ACCEPT_LOSS
from drkit.model.topology import LinkId
from drkit.model.wording import and_more, bounds, counted

_EVERYTHING = (".*",)


@dataclass(frozen=True, slots=True)
class LossBudget:
    """The allowed loss of a link's matching topics together; None: unlimited.

    `of`: the name for these topics; "": their patterns.
    """

    topics: tuple[str, ...]
    records: int | None
    seconds: float | None
    of: str = ""

    def covers(self, topic: str) -> bool:
        """Whether a topic (by the source's name) counts."""
        return any(re.fullmatch(pattern, topic) for pattern in self.topics)


class OverBudget(Refused):
    """The loss would exceed the budget; the run is undone."""


def budgets_of(link: LinkId, objectives: Objectives) -> tuple[LossBudget, ...]:
    """The budgets of a link: the general one, and those whose patterns match it."""
    found = []
    if objectives.max_loss_records is not None or objectives.max_loss_seconds is not None:
        found.append(LossBudget(_EVERYTHING, objectives.max_loss_records, objectives.max_loss_seconds))
    found += [
        LossBudget(each.topics, each.max_loss_records, each.max_loss_seconds)
        for each in objectives.max_loss
        if any(re.fullmatch(pattern, str(link)) for pattern in each.links)
    ]
    return tuple(found)


def over_budget(loss: Loss, budgets: Iterable[LossBudget]) -> Iterator[str]:
    """How a loss exceeds its budgets, or can't be shown to be within them, one sentence each."""
    for budget in budgets:
        topics = [each for each in loss.by_topic if budget.covers(each.topic)]
        if loss.by_topic and not topics:
            continue
        of = "" if budget.topics == _EVERYTHING else f" of {budget.of or and_more(budget.topics)}"
        if budget.records is not None:
            yield from _records(loss, topics, budget.records, of)
        if budget.seconds is not None:
            yield from _seconds(loss, topics, budget.seconds, of)


def accepted(loss: Loss, accept_loss: int | str | None) -> bool:
    """Whether an operator has accepted a loss: any, or a known one up to a number of records."""
    needed = what_accepts(loss)
    return accept_loss == "unknown" or (isinstance(accept_loss, int) and needed != "unknown" and needed <= accept_loss)


def what_accepts(loss: Loss) -> int | Literal["unknown"]:
    """The least that an operator has to accept for a loss."""
    return "unknown" if loss.records is None or loss.lower_bound else loss.records


def flag_for(loss: Loss) -> str:
    """The flag that accepts a loss."""
    return f"{ACCEPT_LOSS} {what_accepts(loss)}"


def _records(loss: Loss, topics: Sequence[TopicLoss], most: int, of: str) -> Iterator[str]:
    numbers = [each.records for each in topics]
    least = sum(each or 0 for each in numbers)
    if least > most:
        more = bounds(lower=loss.lower_bound or None in numbers, upper=loss.upper_bound)
        yield f"{counted(least, 'record')}{more}{of} would be lost, but max_loss_records is {most:,}"
    elif not topics or None in numbers or loss.lower_bound:
        known = f"it is {counted(least, 'record')} or more" if topics else "nothing is known"
        why = f": {loss.reason}" if loss.reason else ""
        yield f"whether no more than max_loss_records = {most:,}{of} would be lost isn't known, {known}{why}"


def _seconds(loss: Loss, topics: Sequence[TopicLoss], most: float, of: str) -> Iterator[str]:
    ages = [each.seconds for each in topics]
    oldest = max((each for each in ages if each is not None), default=0.0)
    if oldest > most:
        yield f"records{of} up to {oldest:,.1f} s old would be lost, but max_loss_seconds is {most:g}"
    elif not topics or None in ages:
        why = f": {loss.reason}" if loss.reason else ""
        yield f"whether records{of} older than max_loss_seconds = {most:g} would be lost isn't known{why}"
