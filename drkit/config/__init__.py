"""Reading `drkit.toml`: schema, environment overrides, secrets, and the selected links."""

from drkit.config.load import load_config
from drkit.config.schema.config import ClusterConfig, Config, LinkConfig, Objectives, StoreConfig

__all__ = ["ClusterConfig", "Config", "LinkConfig", "Objectives", "StoreConfig", "load_config"]
