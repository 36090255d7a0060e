"""An event that is set by a signal's handler, whatever the signal interrupts."""

from __future__ import annotations

import threading

from drkit.model.process import SignalEvent


def test_a_handler_may_set_it_while_the_interrupted_thread_holds_its_lock() -> None:
    """As `wait` does for some instructions, in which a signal's handler may begin."""
    event = SignalEvent()

    def interrupted() -> None:
        with event._cond:  # type: ignore[attr-defined] - the lock that `wait` takes
            event.set()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it waits for itself"
    assert event.wait(30)
