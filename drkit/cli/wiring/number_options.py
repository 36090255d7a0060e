"""Numbers of options that a minimum alone lets through: NaN is below nothing, and there are seconds no clock takes."""

from __future__ import annotations

import typer

_MOST = 1e9


def bounded(value: float | None) -> float | None:
    """A callback of each option that takes a float: the value, unless it is NaN, infinite, or too great to wait for.

    Raises:
        typer.BadParameter: it is.
    """
    if value is not None and not abs(value) <= _MOST:
        raise typer.BadParameter(f"{value:g} is not a number of at most {_MOST:,.0f}.")
    return value
