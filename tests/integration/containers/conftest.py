"""The container fixtures; imported here alone, so that other tests don't load Docker's client."""

from tests.support.clusters.containers import composed, containers, engine
from tests.support.clusters.drkit_image import drkit_all_image, drkit_image

__all__ = ["composed", "containers", "drkit_all_image", "drkit_image", "engine"]
