"""drkit's principal on a cluster, from its client's settings. Connects to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from drkit.config.schema.config import ClusterConfig
from drkit.config.schema.secrets import reveal

PLACEHOLDER = "User:drkit"


class PrincipalOrigin(StrEnum):
    """The origin of a principal."""

    OPTION = "option"
    CLIENT = "client"
    PLACEHOLDER = "placeholder"


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal, and a remark about it ("": none)."""

    name: str
    origin: PrincipalOrigin
    note: str = ""


def given_principal(text: str) -> Principal:
    """The principal of an option: adds `User:` to a name without a type."""
    kind, colon, name = text.strip().partition(":")
    return Principal(f"{kind}:{name}" if colon else f"User:{kind}", PrincipalOrigin.OPTION)


def principal_of(cluster: ClusterConfig) -> Principal:
    """The principal of these client settings; a placeholder if only the cluster knows it."""
    try:
        plain = {
            name: reveal(cluster.client[name])
            for name in ("security.protocol", "sasl.mechanisms", "sasl.mechanism", "sasl.username")
            if name in cluster.client
        }
    except ValueError as error:
        return Principal(
            PLACEHOLDER,
            PrincipalOrigin.PLACEHOLDER,
            f"{PLACEHOLDER} is a placeholder: {error}; give the principal with --principal",
        )
    protocol = plain.get("security.protocol", "PLAINTEXT").upper()
    mechanism = plain.get("sasl.mechanisms", plain.get("sasl.mechanism", "")).upper()
    if protocol == "PLAINTEXT":
        return Principal(
            "User:ANONYMOUS",
            PrincipalOrigin.CLIENT,
            "the client settings have no authentication: whoever reaches this listener is User:ANONYMOUS, and would "
            "have these rights",
        )
    if protocol.startswith("SASL") and mechanism != "OAUTHBEARER" and "sasl.username" in plain:
        return Principal(f"User:{plain['sasl.username']}", PrincipalOrigin.CLIENT)
    why = "the subject of its token" if protocol.startswith("SASL") else "the subject of its certificate"
    return Principal(
        PLACEHOLDER,
        PrincipalOrigin.PLACEHOLDER,
        f"{PLACEHOLDER} is a placeholder: the cluster itself makes drkit's principal from {why}; give it with "
        "--principal",
    )
