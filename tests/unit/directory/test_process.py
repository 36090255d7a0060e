"""Commands of the user's: their time is bounded whatever they leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from drkit.directory.command import run_bounded
from drkit.model.deadline import Deadline
from drkit.model.errors import Unreachable

HOLDS = "touch $0.began; n=0; while [ ! -e $0.gate ] && [ $n -lt 200 ]; do n=$((n+1)); sleep 0.1; done; touch $0.ended"
"""Holds what it inherited until the gate is there, 20 s at most."""


def test_what_was_put_into_another_session_is_not_waited_for(tmp_path: Path) -> None:
    held = tmp_path / "child"
    command = ("sh", "-c", 'setsid sh -c "$1" "$0" & wait', str(held), HOLDS)

    with pytest.raises(Unreachable, match="did not end within 1 s and was killed"):
        run_bounded(command, {}, "given" * 100_000, Deadline.after(1.0))

    ended = held.with_suffix(".ended").exists()
    held.with_suffix(".gate").touch()
    assert held.with_suffix(".began").exists()
    assert not ended, "it was waited for"


def test_what_a_command_says_and_is_given_goes_through() -> None:
    done = run_bounded(
        ("sh", "-c", "cat; echo $MORE; echo oh >&2; exit 3"), {"MORE": "told"}, "given\n", Deadline.after(60.0)
    )
    assert (done.code, done.out, done.said) == (3, "given\ntold\n", "oh")
