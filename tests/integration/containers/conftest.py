"""The container fixtures; imported here alone, so that other tests don't load Docker's client."""

from tests.support.containers import composed, containers, engine

__all__ = ["composed", "containers", "engine"]
