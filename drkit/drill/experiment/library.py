"""The library of experiments: those of chaos/, which an installed drkit has with it.

The files in `drkit/drill/library` are links to those in chaos/.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from drkit.model.errors import ConfigError

LIBRARY: Final = Path(__file__).resolve().parents[1] / "library"


def library_files() -> list[Path]:
    """The experiments of the library, by name."""
    return sorted(LIBRARY.glob("*.yaml"))


def experiment_file(given: Path) -> Path:
    """The file that is meant: one that is there, else the experiment of that name in the library."""
    named = LIBRARY / f"{given}.yaml"
    return named if not given.exists() and given.name == str(given) and named.exists() else given


def experiment_files(given: Sequence[Path], *, whole_library: bool) -> list[Path]:
    """The experiments that are meant, each once, in order: files, names of the library, all of a folder, the library.

    Raises:
        ConfigError: a folder holds no experiment.
    """
    found: list[Path] = []
    for each in given:
        if not each.is_dir():
            found.append(experiment_file(each))
            continue
        inside = sorted(each.glob("*.yaml"))
        if not inside:
            raise ConfigError(f"{each} holds no experiment", remedy="Name a folder with *.yaml files, or a file")
        found += inside
    if whole_library:
        found += library_files()
    by_file: dict[Path, Path] = {}
    for each in found:
        by_file.setdefault(each.resolve(), each)
    return list(by_file.values())
