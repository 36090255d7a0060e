"""The logs of the Kafka clients that drkit uses, at a terminal."""

from __future__ import annotations

import logging


def set_client_logs(*, verbose: bool) -> None:
    """Show what the clients log with `--verbose` only: it repeats what drkit says itself, once a try."""
    for client in ("kafka", "aiokafka"):
        logging.getLogger(client).setLevel(logging.WARNING if verbose else logging.CRITICAL)
    logging.getLogger("drkit.librdkafka").setLevel(logging.DEBUG if verbose else logging.CRITICAL)
