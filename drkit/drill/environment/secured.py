"""A lab with an authorizer: applications are a user of their own, whom rules let in and a fence keeps out.

drkit itself comes by the plain listener, where it is a super user: a fence is shown to the applications' user instead.
"""

from __future__ import annotations

import json
import secrets

from drkit.config import load_config
from drkit.drill.experiment.keys import SOURCE, TARGET
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.model.errors import DrkitError, Refused
from drkit.model.topics.acls import Acl

USER = "drillapp"


def new_users() -> dict[str, str]:
    """The user of a new lab's applications, with its password."""
    return {USER: secrets.token_hex(16)}


def let_in(lab: Lab) -> dict[str, dict[str, str]]:
    """Let the applications' user read and write on both clusters, and name it in the configuration as the writer to
    whom a fence is shown; what its clients need, by cluster.

    Raises:
        Refused: the lab has no such user: it was made without.
        DrkitError: a cluster doesn't take the rules.
    """
    if USER not in lab.users:
        raise Refused(
            f"the lab in {lab.dir} has no user {USER}",
            meaning="The experiment needs clusters with an authorizer",
            remedy="Leave --dir out: the drill makes a lab of its own",
        )
    config = load_config(lab.config_path)
    found: dict[str, dict[str, str]] = {}
    for alias in (SOURCE, TARGET):
        with ClusterAdmin(alias, config.clusters[alias]) as admin:
            refused = admin.create_acls(_rules())
        if refused:
            raise DrkitError(f"{alias} does not take a rule: {'; '.join(refused.values())}")
        found[alias] = {
            "bootstrap.servers": lab.bootstrap(alias, sasl=True),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": USER,
            "sasl.password": lab.users[USER],
        }

    if all(config.clusters[alias].fence.client is None for alias in found):
        with lab.config_path.open("a", encoding="utf-8") as file:
            file.writelines(_fence(alias, client) for alias, client in found.items())
    return found


def _rules() -> list[Acl]:
    rights = [("topic", "read"), ("topic", "write"), ("topic", "describe"), ("group", "read")]
    return [Acl(resource, "*", "literal", f"User:{USER}", "*", right, "allow") for resource, right in rights]


def _fence(alias: str, client: dict[str, str]) -> str:
    """The configuration's words for: a fence of this cluster is shown to this client."""
    servers, *others = (f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items())
    address = servers.replace('"bootstrap.servers"', "bootstrap_servers")
    return "\n".join(["", f"[clusters.{alias}.fence]", address, f"[clusters.{alias}.fence.client]", *others, ""])
