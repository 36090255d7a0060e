"""The pinned releases can be installed on each Python that the README names, the oldest patch release included."""

from __future__ import annotations

from importlib.metadata import distributions

from packaging.specifiers import SpecifierSet

OLDEST = "3.11.0"


def test_no_pinned_release_needs_a_later_python():
    """As soupsieve 4 did, which needs 3.11.5: on Debian's 3.11.2 nothing could be set up."""
    wanted = {each.metadata["Name"]: each.metadata.get("Requires-Python") or "" for each in distributions()}
    assert wanted
    assert {name: needs for name, needs in wanted.items() if OLDEST not in SpecifierSet(needs)} == {}
