"""What a session's threads look at keeps on although one of them, or the store, doesn't answer."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from drkit.mirror.engine.interface import NOT_MOVING, Notice
from drkit.mirror.runtime.session import Session
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def session() -> Any:
    """One whose parts are all mocks: nothing is started."""
    session: Any = Session.__new__(Session)
    for part in ("worker", "engine", "assignment", "open", "source_cuts", "problems", "stalls", "options", "progress"):
        setattr(session, f"_{part}", MagicMock())
    session._options.until_caught_up = False
    session._notices = {}
    return session


@pytest.mark.parametrize("silent", ["_open", "_source_cuts"])
def test_the_looks_for_cuts_and_for_transactions_do_not_depend_on_each_other(session: Any, silent: str) -> None:
    getattr(session, silent).check.side_effect = Unreachable("no answer")
    with pytest.raises(Unreachable):
        session._watch_source()
    assert session._source_cuts.check.called
    assert session._open.check.called


def test_a_notice_that_could_not_be_stored_is_stored_later(session: Any) -> None:
    """An engine says each of them once."""
    session._engine.notices.side_effect = [
        [
            Notice(A, "markers_refused", "r", "m"),
            Notice(B, NOT_MOVING, "n", "m"),
            Notice(B, "offsets_differ", "o", "m"),
        ],
        [Notice(A, "later", "l", "m")],
        [],
    ]
    session._problems.put.side_effect = [Unreachable("no answer"), None, None, None]
    with pytest.raises(Unreachable):
        session._save_watermarks()
    session._save_watermarks()
    session._save_watermarks()
    told = [each.args[:3] for each in session._problems.put.call_args_list]
    assert told == [("markers_refused", *A), ("markers_refused", *A), ("offsets_differ", *B), ("later", *A)]
    session._stalls.failed.assert_called_once_with(B, "n", "m")


def test_notices_are_taken_while_nothing_can_be_stored(session: Any) -> None:
    """Each partition that doesn't move says so five times a second, for as long as the store is away."""
    session._worker.valid.return_value = False
    session._engine.notices.return_value = [Notice(B, NOT_MOVING, "n", "m"), Notice(A, "markers_refused", "r", "m")]
    for _ in range(100):
        session._save_watermarks()
    assert session._stalls.failed.call_count == 100
    assert not session._problems.put.called
    assert len(session._notices) == 1
    session._worker.valid.return_value = True
    session._save_watermarks()
    session._problems.put.assert_called_once_with("markers_refused", *A, "r", "m", halted=False)
