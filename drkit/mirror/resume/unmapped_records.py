"""Keeps a mirror from beginning behind records of the target that may be its own (`records_unmapped`).

A partition begins anew where the store has no mapping rows of it: nothing was mirrored, or the store lost them. What
the target holds then is somebody else's, or is known by the rows of the topic's former epochs. It may be copied records
where the link's producer has written to it, and where the store was recovered, or begun anew beside a copy without
records: a copy may lack a watermark, its rows or the whole topic.
"""

from __future__ import annotations

from drkit.mapping.unmapped_records import unmapped_problem
from drkit.mirror.health.problems import Problems
from drkit.mirror.resume.offset_alignment.fill_decision import Observed
from drkit.model.clock import now
from drkit.model.link_state import RECORDS_UNMAPPED, Problem
from drkit.model.topology import LinkId
from drkit.state_topic.guard import BEGUN_ANEW, RECOVERY, STATE
from drkit.store.api import LinkStore


class UnmappedRecords:
    """See the module docstring. Not thread-safe.

    Args:
        link: the link.
        notes: its notes.
        problems: those on record.
    """

    def __init__(self, link: LinkId, notes: LinkStore, problems: Problems) -> None:
        self._link = link
        self._notes = notes
        self._problems = problems

    def problem(self, seen: Observed) -> Problem | None:
        """Why a partition of which the store has no rows can't begin; None: it can.

        Raises:
            Unreachable: the store doesn't answer.
        """
        if seen.target_start >= seen.target_end:
            return None
        state = seen.topic.state
        known = self._problems.standing(RECORDS_UNMAPPED, seen.tp, state.epoch)
        if known is not None or state.epoch > 1:  # of a later epoch an operator has accepted what is there
            return known
        why = self._why(seen)
        return None if why is None else unmapped_problem(self._link, seen.tp, state.target_topic, why, now())

    def _why(self, seen: Observed) -> str | None:
        begun = (
            f"the store has {'neither a watermark nor' if seen.watermark is None else 'no'} mapping rows of {seen.tp}"
        )
        if seen.last_sequence is not None:
            return f"this link's mirror has written there, and {begun}"
        notes = self._notes.notes(self._link, RECOVERY)
        if STATE in notes:
            return f"the store was recovered or restored, and {begun}"
        if BEGUN_ANEW in notes:
            copy = notes[BEGUN_ANEW]
            return f"the store was new when {self._link.target} had {copy} of an earlier one already, and {begun}"
        return None
