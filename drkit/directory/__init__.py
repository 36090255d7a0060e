"""The cluster directory: tells clients which cluster serves now. See docs/directory.md."""

from drkit.directory.api import Directory, Entry
from drkit.directory.open import open_directories

__all__ = ["Directory", "Entry", "open_directories"]
