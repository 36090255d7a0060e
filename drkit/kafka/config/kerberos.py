"""What the installed clients lack for SASL mechanism GSSAPI (Kerberos): they are asked, not assumed."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

_MECHANISM = "GSSAPI"
_INSTEAD = "Give drkit a listener with SCRAM-SHA-512, OAUTHBEARER or TLS certificates"
_CREATED = "Failed to create producer: "


@cache
def why_not() -> str:
    """Why drkit refuses it here, in words that follow the property's name.

    A principal of Kerberos is a keytab, a ticket or a service's name: each client has them by other properties, and
    drkit maps none of these. Where all clients could do it, that is the reason.
    """
    lacks = [each for each in (_librdkafka_lacks(), _python_lacks()) if each]
    why = "; ".join(lacks) or (
        "the installed clients have it, but drkit maps none of the properties of Kerberos to them, as nobody has tried "
        "it on brokers"
    )
    return f"can't be {_MECHANISM}: {why}. {_INSTEAD}"


def _librdkafka_lacks() -> str:
    """At the creation of a client librdkafka tells what it was built with."""
    from confluent_kafka import KafkaException, Producer, libversion  # noqa: PLC0415 - where it is asked for only

    client = {
        "log_level": 0,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": _MECHANISM,
        "sasl.kerberos.min.time.before.relogin": 0,  # it starts no kinit
    }
    try:
        Producer(client)
    except KafkaException as error:
        said = error.args[0].str().removeprefix(_CREATED)
        return (
            "confluent-kafka, through which drkit shares partitions and moves single records, is installed without it "
            f"(librdkafka {libversion()[0]}: {said})"
        )
    return ""


def _python_lacks() -> str:
    """Both import it where they log in."""
    if find_spec("gssapi") is not None:
        return ""
    return "kafka-python and aiokafka log in by the Python package gssapi, which is not installed"
