"""The fixture that starts drills; imported here alone."""

from tests.support.drills import play

__all__ = ["play"]
