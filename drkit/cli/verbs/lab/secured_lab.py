"""Lets the users of a secured lab in: their passwords, and rights as `drkit acls` prints them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from drkit.config import Config, load_config
from drkit.config.schema.config import ClusterConfig
from drkit.files import write_atomically
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.config.client_config import java_properties, java_properties_text, kafka_python_config
from drkit.lab import Lab
from drkit.lab.secure import ADMINISTRATOR, APPLICATION, MECHANISM, drkit_user
from drkit.model.errors import DrkitError
from drkit.model.topics.acls import Acl
from drkit.permissions.resolve import rights_of
from drkit.permissions.table import Command, Who

_OF_APPLICATIONS = (
    ("topic", "read"),
    ("topic", "write"),
    ("topic", "describe"),
    ("group", "read"),
    ("transactional_id", "write"),
    ("transactional_id", "describe"),
)


def create_users(lab: Lab) -> None:
    """Make the users of each cluster, give them their rights, and write their properties for Kafka's tools.

    It can be repeated: it sets the same passwords and ACLs.

    Raises:
        DrkitError: a cluster takes a password or a rule not.
    """
    config = load_config(lab.config_path)
    for alias in lab.clusters:
        # by the plain listener, where whoever comes is a super user
        plain = ClusterConfig(bootstrap_servers=lab.bootstrap(alias))
        with ClusterAdmin(alias, plain) as admin:
            _set_passwords(lab, alias, (APPLICATION, drkit_user(alias)))
            refused = admin.create_acls([*_of_drkit(config, alias), *_of_applications()])
        if refused:
            raise DrkitError(f"{alias} does not take a rule: {'; '.join(refused.values())}")
        for user, cluster in (
            (drkit_user(alias), config.clusters[alias]),
            (APPLICATION, config.clusters[alias].writer()),
            (ADMINISTRATOR, plain),
        ):
            text = java_properties_text(java_properties(cluster))
            write_atomically(lab.secure_dir.properties_file(user, alias), text)


def _set_passwords(lab: Lab, alias: str, users: Iterable[str]) -> None:
    from kafka.admin import KafkaAdminClient, UserScramCredentialUpsertion

    cluster = ClusterConfig(bootstrap_servers=lab.bootstrap(alias))
    wanted = [UserScramCredentialUpsertion(user, MECHANISM, lab.secure_dir.password(user)) for user in users]
    with closing(KafkaAdminClient(**kafka_python_config(cluster))) as admin:
        failures = admin.alter_user_scram_credentials(wanted)
    refused = [f"{user}: {why}" for user, why in failures.items() if why is not None]
    if refused:
        raise DrkitError(f"{alias} does not take a user's password: {'; '.join(refused)}")


def _of_drkit(config: Config, alias: str) -> Iterable[Acl]:
    links = [each.link() for each in config.links]
    for found in rights_of(config, links, list(Command)):
        if found.cluster != alias:
            continue
        user = drkit_user(alias) if found.who is Who.DRKIT else APPLICATION
        for right in found.rights:
            pattern = "prefixed" if right.on.prefixed else "literal"
            resource, name = right.on.resource.value, right.on.name
            yield Acl(resource, name, pattern, f"User:{user}", "*", right.operation.value, "allow")


def _of_applications() -> Iterable[Acl]:
    for resource, operation in _OF_APPLICATIONS:
        yield Acl(resource, "*", "literal", f"User:{APPLICATION}", "*", operation, "allow")
