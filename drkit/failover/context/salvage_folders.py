"""Where a failback's salvages are. Views print it, so nothing heavy is imported here.

A salvage is a folder on a disk of the machine that made it. An operator may have moved it since, lost it, or ask from
another machine: what names it says, too, when it isn't there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from drkit.failover.context.state_machine import Facts
from drkit.model.wording import and_more, counted


def salvage_folders(facts: Facts) -> list[str]:
    """The folders of a run's newest salvages: one, unless some topics were salvaged again."""
    kept = {each.path for each in facts.kept.values()}
    return sorted(kept or {path for path in [facts.salvage_path] if path})


def not_here(folders: Iterable[str]) -> list[str]:
    """Those of the folders that this machine doesn't have."""
    return [folder for folder in folders if not Path(folder).is_dir()]


def salvaged_where(facts: Facts) -> str:
    """How many records a run has salvaged, in which folders, and which of these aren't on this machine."""
    folders = salvage_folders(facts)
    missing = not_here(folders)
    absent = f"; not on this machine: {and_more(missing)}" if missing else ""
    return f"{counted(facts.salvaged or 0, 'record')} in {and_more(folders)}{absent}"
