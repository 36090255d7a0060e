"""A store that is out of reach from one of its writes on."""

from __future__ import annotations

from typing import Any

from drkit.model.errors import Unreachable

_WRITES = ("put_", "append_", "set_", "forget_", "raise_", "remove_")


class CutOff:
    """A store that takes so many writes and then none; `written` counts them."""

    def __init__(self, store: Any, writes: int = 10**9) -> None:
        self._store = store
        self._writes = writes
        self.written = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith(_WRITES):
            if self.written == self._writes:
                raise Unreachable("cut off")
            self.written += 1
        return getattr(self._store, name)
