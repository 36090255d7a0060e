"""The code of drkit for Spark's Python workers: they have the packages it needs, not drkit itself."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import drkit

ARCHIVE = "drkit.zip"
"""Its name; Spark takes one file of a name."""


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


def main() -> None:
    """Write the archive into the working directory; say where: ``python -m drkit.audit.shipping``."""
    sys.stdout.write(f"{code_archive(Path.cwd())}\n")


if __name__ == "__main__":
    main()
