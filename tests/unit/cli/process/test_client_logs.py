"""What Kafka clients log themselves is not for a terminal."""

import logging

from drkit.cli.wiring.context import set_client_logs

CLIENTS = ("kafka", "aiokafka", "drkit.librdkafka")


def test_clients_are_silent_unless_asked_for():
    before = {name: logging.getLogger(name).level for name in CLIENTS}
    try:
        set_client_logs(verbose=False)
        assert not any(logging.getLogger(name).isEnabledFor(logging.ERROR) for name in (*CLIENTS, "aiokafka.conn"))
        set_client_logs(verbose=True)
        assert all(logging.getLogger(name).isEnabledFor(logging.WARNING) for name in CLIENTS)
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
