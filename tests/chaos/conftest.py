"""The fixture that starts drills; imported here alone."""

from tests.support.drills.drill_commands import play

__all__ = ["play"]
