"""Benchmarks of drkit's mirror and MirrorMaker 2: `python -m bench`. See README.md."""

from os import environ

# An installed drkit has compiled code, like the peers; without permission to write it, each run would compile again.
environ.pop("PYTHONDONTWRITEBYTECODE", None)
