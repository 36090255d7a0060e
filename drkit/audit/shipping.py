"""The code of drkit for Spark's Python workers: they have the packages it needs, not drkit itself."""

from __future__ import annotations

import zipfile
from pathlib import Path

import drkit


def code_archive(folder: Path) -> Path:
    """Write drkit's modules as an archive that Python imports from; what `spark-submit --py-files` takes.

    Args:
        folder: where to; it exists.
    """
    root = Path(drkit.__file__).parent
    path = folder / "drkit.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(root.rglob("*.py")):
            archive.write(module, Path(root.name) / module.relative_to(root))
    return path
