"""The code for Spark's Python workers: drkit's own, and the modules of the user's callables.

Workers have the packages that drkit needs, not drkit itself. A callable that the configuration names (`filter`,
`transform`, a foreign key's `decoder`) is sent along where its module is a file or folder of the user's; what a package
manager installed here must be installed on every node, too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Iterable
from pathlib import Path
from zipimport import zipimporter

import drkit
from drkit.config.schema.config import ForeignKeyConfig
from drkit.model.topology import Link

ARCHIVE = "drkit.zip"
"""Its name; Spark takes one file of a name."""

_INSTALLED = {"site-packages", "dist-packages"}
"""Folders that package managers install into."""


def code_archive(folder: Path) -> Path:
    """Write drkit's modules as an archive that Python imports from; what `spark-submit --py-files` takes.

    Args:
        folder: where to; it exists.
    """
    path = folder / ARCHIVE
    if isinstance(drkit.__loader__, zipimporter):  # by `spark-submit --py-files`: this process has it from one, too
        shutil.copyfile(drkit.__loader__.archive, path)
        return path
    root = Path(drkit.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file() and file.parent.name != "__pycache__":
                archive.write(file, Path(root.name) / file.relative_to(root))
    return path


def callables_of(link: Link, foreign_keys: Iterable[ForeignKeyConfig] = ()) -> set[str]:
    """The user's callables that an audit's tasks import (``module:function``)."""
    own = () if link.inverse else (link.filter, link.transform)
    decoders = (name for each in foreign_keys for name in (each.decoder, each.parent_decoder))
    return {name for name in (*own, *decoders) if name is not None}


def callables_archive(names: Iterable[str], folder: Path) -> Path | None:
    """Write the modules of callables as an archive that Python imports from.

    A module is sent with the whole outermost package that it is in, as it lies in its folder; not what else it imports.

    Args:
        names: callables, as ``module:function``.
        folder: where to; it exists.

    Returns:
        The archive, named after what it holds; None where all of them are installed, or in an archive already.
    """
    found = {own for name in names for own in [_own_module(name.partition(":")[0])] if own is not None}
    files = {
        (Path(within, root.name) / each.relative_to(root)).as_posix().removesuffix("/."): each.read_bytes()
        for within, root in sorted(found)
        for each in ([root] if root.is_file() else sorted(root.rglob("*")))
        if each.is_file() and each.parent.name != "__pycache__"
    }
    if not files:
        return None
    known = hashlib.sha256()
    for name, content in files.items():
        known.update(f"{name} {len(content)} ".encode() + content)
    path = folder / f"callables-{known.hexdigest()[:16]}.zip"  # Spark takes one file of a name
    if not path.exists():
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            folders = {f"{each.as_posix()}/" for name in files for each in Path(name).parents if each.name}
            for each in sorted(folders):  # without them Python doesn't find packages that have no __init__.py
                archive.writestr(each, b"")
            for name, content in files.items():
                archive.writestr(name, content)
    return path


def _own_module(name: str) -> tuple[str, Path] | None:
    """The file or folder of a module's outermost package, and the folder that it lies in within those that have no
    __init__.py; None where it is drkit's, installed, or not on a disk."""
    parts = name.split(".")
    if parts[0] == drkit.__name__:
        return None
    for depth in range(1, len(parts) + 1):
        spec = importlib.util.find_spec(".".join(parts[:depth]))
        if spec is None:
            return None
        if spec.origin is not None:
            file = Path(spec.origin)
            own = _own(file.parent if spec.submodule_search_locations else file)
            return None if own is None else ("/".join(parts[: depth - 1]), own)
    return None


def _own(path: Path) -> Path | None:
    """A path, unless what is there was installed by a package manager."""
    library = Path(sysconfig.get_path("stdlib")).resolve()
    installed = not _INSTALLED.isdisjoint(path.parts) or path.resolve().is_relative_to(library)
    return None if installed or not path.exists() else path


def main() -> None:
    """Write the archive into the working directory; say where: ``python -m drkit.audit.read.shipped_code``."""
    sys.stdout.write(f"{code_archive(Path.cwd())}\n")


if __name__ == "__main__":
    main()
