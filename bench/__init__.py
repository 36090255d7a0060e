"""drkit's mirror side by side with MirrorMaker 2: `python -m bench`. See README.md."""

from os import environ

# An installed drkit has its compiled code, as the peers have theirs; not allowed to keep it, each run compiles again.
environ.pop("PYTHONDONTWRITEBYTECODE", None)
