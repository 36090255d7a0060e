"""The flags by which an operator accepts a precondition's risk; `Obstacle.waived_by` names one of them."""

from __future__ import annotations

ACCEPT_UNFENCED = "--accept-unfenced"
ACCEPT_SALVAGE_ONLY = "--accept-salvage-only"
ACCEPT_LOSS = "--accept-loss"
ALLOW_REWIND = "--allow-rewind"
CLUSTER_ID = "--cluster-id"
