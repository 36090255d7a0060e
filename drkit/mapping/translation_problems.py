"""Limits a translation by the recorded problems: mapping rows alone can't show that the logs differ. Pure.

| problem | positions | the answer becomes |
|---|---|---|
| `topic_recreated`, `target_recreated` | all of the topic | unavailable: the rows are of another topic |
| `source_truncated`, `foreign_writer` | from where both sides hold other records | conservative: that place |
| `store_recovered` | above what the copy of the state proves | conservative: where that ends |
| any other that names source offsets (`records_misplaced`) | those | conservative, same offset |

So a position is never exact while a recorded problem contradicts it, and a problem never moves it forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from drkit.mapping.translate import unavailable
from drkit.model.link_state import PARTED, RECREATED, STORE_RECOVERED, Problem
from drkit.model.offsets import Certainty, Translation
from drkit.model.topology import TopicPartition


def heed(
    answer: Translation, problems: Iterable[Problem], tp: TopicPartition, again: Callable[[int], Translation]
) -> Translation:
    """Limit an answer by the problems of its partition.

    Args:
        answer: by the mapping rows.
        problems: of the link.
        tp: the partition.
        again: translates another source offset of it by the rows.
    """
    for problem in problems:
        if not problem.concerns(tp):
            continue
        if answer.target_offset is None:
            break
        if problem.kind in RECREATED:
            return unavailable(answer.source_offset, problem.reason)
        if problem.doubts(answer.source_offset):
            answer = _doubted(answer, problem, again)
    return answer


def doubted(answer: Translation, why: str | None) -> Translation:
    """The answer, not exact where something stands against the partition as a whole (None: nothing does)."""
    if why is None or answer.certainty is not Certainty.EXACT:
        return answer
    return replace(answer, certainty=Certainty.CONSERVATIVE, reason=why, reread=None)


def _doubted(answer: Translation, problem: Problem, again: Callable[[int], Translation]) -> Translation:
    reason = problem.reason if answer.reason is None else f"{answer.reason}; {problem.reason}"
    if problem.kind == STORE_RECOVERED and problem.unsure_from is not None:
        known = again(problem.unsure_from).target_offset
        lowest = min(each for each in (known, answer.target_offset) if each is not None)
        return replace(
            answer, certainty=Certainty.CONSERVATIVE, target_offset=lowest, reason=problem.reason, reread=None
        )
    doubted = replace(answer, certainty=Certainty.CONSERVATIVE, reason=reason)
    if problem.kind not in PARTED or problem.unsure_from is None:
        return doubted
    parting = again(problem.unsure_from).target_offset
    if parting is None or answer.target_offset is None or parting >= answer.target_offset:
        return doubted
    # the group may have read either side's records above that place: what it hasn't read of the target's begins there
    return replace(doubted, target_offset=parting, reread=None)
