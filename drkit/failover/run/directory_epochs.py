"""Taking over the epochs of a link's directories into a store that doesn't know them: it was lost, and rebuilt.

An entry's epoch is the version of a decision. A store that begins again counts from 1, so nothing that it decides
would replace what stands in the directories. Its version is raised to theirs, and only that: who serves must be what
they say, else it isn't the count that is lost but the decision.
"""

from __future__ import annotations

from dataclasses import replace

from drkit.directory import Entry
from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.run.journal.journal import new_run_id
from drkit.failover.run.lease import RunLease
from drkit.failover.stages.directory_update import serving
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import LinkId


def recover_epoch(estate: ClusterContext, link: LinkId) -> tuple[LinkControl, bool]:
    """Raise a configured link's version to the greatest epoch in its directories; its control, and whether it changed.

    Raises:
        Refused: an entry is another link's, or says that another cluster serves than the store; a run is under way.
        Unreachable: a directory or the store doesn't answer: an epoch that isn't seen might be greater.
    """
    with RunLease(estate.store, link, new_run_id()):
        kept = estate.store.link_control(link)
        control = kept or LinkControl(link, Direction.ACTIVE, 0, now(), "", None, frozenset())
        serves = serving(link, control.direction)
        greatest = 0
        for directory in estate.directories(link):
            entry = directory.read()
            if entry is not None:
                _check(entry, link, serves, directory.name)
                greatest = max(greatest, entry.epoch)
        if greatest <= control.version:
            return control, False
        raised = replace(control, version=greatest)
        if not estate.store.set_link_control(raised, expected_version=None if kept is None else kept.version):
            raise Refused(f"the state of {link} was changed at the same moment", remedy="Try again")
        return raised, True


def _check(entry: Entry, link: LinkId, serves: str, where: str) -> None:
    if entry.link not in {str(link), str(link.reversed())}:
        raise Refused(
            f"{where} holds the entry of {entry.link}, not of {link}",
            remedy="Mend the directory's `url` or `link` in the configuration",
        )
    if entry.active != serves:
        raise Refused(
            f"{where} says that {entry.active} serves (epoch {entry.epoch}, run {entry.run}); by the store {serves} "
            "does",
            meaning="More than a count is lost: what is decided on this store would lead clients away from where they "
            "are",
            remedy=f"Restore the store. Or, if {serves} does serve, remove the entry by hand; if {entry.active} does, "
            f'give the link source = "{entry.active}" in the configuration',
        )
