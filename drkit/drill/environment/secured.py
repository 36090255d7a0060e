"""A lab with an authorizer: applications have their own user, which ACLs admit and a fence keeps out.

They authenticate by SCRAM on a listener of their own, so their credentials can change while the brokers run;
connections there reauthenticate every few seconds (`connections.max.reauth.ms`). With `lab.tls` that listener uses TLS,
and the certificate of each cluster can be replaced while its broker runs. drkit itself uses the plain listener,
where it is a super user: a fence is tested with the applications' user instead.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import closing
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from drkit.config import load_config
from drkit.drill.environment.lab_cluster import SCRAM_MECHANISM, LabCluster
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.lab.secure import SecureDir
from drkit.model.errors import DrkitError, Refused
from drkit.model.topics.acls import Acl

USER: Final = "drillapp"
LISTENER: Final = "applications"
AGAIN_SECONDS: Final = 10
"""The interval at which connections reauthenticate."""
LISTENERS: Final = {
    LISTENER: {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": SCRAM_MECHANISM,
        f"{SCRAM_MECHANISM.lower()}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "connections.max.reauth.ms": str(AGAIN_SECONDS * 1000),
    }
}
"""The settings of a lab whose applications have their own user."""
KEYSTORE: Final = f"listener.name.{LISTENER}.ssl.keystore.location"
"""The broker's setting that names the certificate of that listener; brokers take another value while they run."""
_TRY_SECONDS = 1.0
_REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - librdkafka's own codes begin so


def tls_listeners(certificates: SecureDir) -> dict[str, dict[str, str]]:
    """As `LISTENERS`, over TLS."""
    keystore = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates.keystore)}
    return {LISTENER: {**LISTENERS[LISTENER], "security.protocol": "SASL_SSL", **keystore}}


def new_users() -> dict[str, str]:
    """The user of a new lab's applications, with its password."""
    return {USER: secrets.token_hex(16)}


def grant_access(lab: Lab) -> dict[str, dict[str, str]]:
    """Let the applications' user read and write on all clusters, and configure it as the writer that tests a fence;
    returns its client properties, by cluster.

    Raises:
        Refused: the lab was created without such a user or listener.
        DrkitError: a cluster doesn't accept the ACLs or the credentials.
    """
    if USER not in lab.users or not has_listener(lab):
        raise Refused(
            f"the lab in {lab.dir} has no user {USER}",
            meaning="The experiment needs clusters with an authorizer",
            remedy="Leave --dir out: the drill creates its own lab",
        )
    config = load_config(lab.config_path)
    found: dict[str, dict[str, str]] = {}
    for alias in lab.clusters:
        with ClusterAdmin(alias, config.clusters[alias]) as admin:
            refused = admin.create_acls(_rules())
        if refused:
            raise DrkitError(f"{alias} does not accept an ACL: {'; '.join(refused.values())}")
        with closing(LabCluster(lab, alias)) as cluster:
            cluster.set_password(USER, lab.users[USER])
        authority = {"ssl.ca.location": str(lab.secure_dir.authority)} if uses_tls(lab) else {}
        found[alias] = {
            "bootstrap.servers": lab.bootstrap(alias, listener=LISTENER),
            "security.protocol": "SASL_SSL" if authority else "SASL_PLAINTEXT",
            **authority,
            "sasl.mechanisms": SCRAM_MECHANISM,
            "sasl.username": USER,
            "sasl.password": lab.users[USER],
        }

    if all(config.clusters[alias].fence.client is None for alias in found):
        with lab.config_path.open("a", encoding="utf-8") as file:
            file.writelines(_fence(alias, client) for alias, client in found.items())
    return found


def has_listener(lab: Lab) -> bool:
    """Whether the brokers of a lab have the applications' listener."""
    return all(LISTENER in node.listener_ports for node in lab.nodes if node.cluster in lab.clusters)


def uses_tls(lab: Lab) -> bool:
    """Whether the applications' listener of a lab uses TLS."""
    return lab.secure_dir.keystore.is_file()


def authenticates(properties: dict[str, str], timeout_seconds: float) -> bool | None:
    """Whether a new connection succeeds: the cluster accepts these credentials, and its certificate is accepted; None:
    no result in time."""
    refused = False

    def on_error(error: KafkaError) -> None:
        nonlocal refused
        refused = refused or error.code() in _REFUSALS

    producer = Producer({**properties, "log_level": 0, "error_cb": on_error})
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        try:
            producer.list_topics(timeout=_TRY_SECONDS)
        except KafkaException:
            producer.poll(0)
            if refused:
                return False
        else:
            return True
    return None


def _rules() -> list[Acl]:
    rights = [("topic", "read"), ("topic", "write"), ("topic", "describe"), ("group", "read")]
    return [Acl(resource, "*", "literal", f"User:{USER}", "*", right, "allow") for resource, right in rights]


def _fence(alias: str, client: dict[str, str]) -> str:
    """The configuration that tests this cluster's fence with this client."""
    servers, *others = (f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items())
    address = servers.replace('"bootstrap.servers"', "bootstrap_servers")
    return "\n".join(["", f"[clusters.{alias}.fence]", address, f"[clusters.{alias}.fence.client]", *others, ""])
