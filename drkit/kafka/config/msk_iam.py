"""Access tokens for Amazon MSK's IAM access control, made by AWS's own signer (the extra `msk`).

For a broker such a token is an OAUTHBEARER token; Java's client has its own mechanism, AWS_MSK_IAM, whose name the
configuration uses. The credentials come from where AWS's libraries look for them: the environment, a profile, the
machine's role.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from drkit.config.extras import Extra, require
from drkit.kafka.config.client_config import MSK_IAM
from drkit.kafka.config.oauth_tokens import Token, kept_for
from drkit.model.errors import AuthenticationError, ConfigError

_BROKER = re.compile(r"[.]kafka(?:-serverless)?[.]([a-z0-9-]+)[.]amazonaws[.]com(?:[.]cn)?$")
_REGION = re.compile(r"[a-z0-9-]{4,40}")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True)
class MskIam:
    """Tokens for the brokers of a region."""

    region: str
    extensions: tuple[tuple[str, str], ...] = ()

    def fetch(self) -> Token:
        """Sign a new token; asks AWS only if it has to look up the machine's role.

        Raises:
            ExtraMissing: the signer isn't installed.
            AuthenticationError: there are no credentials, or they can't be used.
        """
        require(Extra.MSK, f"sasl.mechanisms {MSK_IAM}")
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an extra, and slow to import
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above

        asked = time.monotonic()
        try:
            text, expires_ms = MSKAuthTokenProvider.generate_auth_token(self.region)
        except (BotoCoreError, ClientError, ValueError, AttributeError, OSError) as error:
            # without credentials the signer reads an attribute of None
            raise AuthenticationError(
                f"no token for MSK in {self.region} can be signed: {_said(error)}",
                remedy="Give drkit AWS credentials: a role of the machine, AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY",
            ) from None
        return kept_for(text, expires_ms / 1000 - time.time(), asked)


def region_of(bootstrap_servers: str, environment: Mapping[str, str] = os.environ) -> str:
    """The AWS region of a cluster: in the names of its brokers, else in the environment.

    Raises:
        ConfigError: neither names it, or the brokers are in several regions.
    """
    hosts = [server.strip().rpartition(":")[0] for server in bootstrap_servers.split(",")]
    named = {found[1] for found in map(_BROKER.search, hosts) if found is not None}
    if len(named) > 1:
        raise ConfigError(
            f"the brokers of bootstrap_servers are in several AWS regions: {', '.join(sorted(named))}",
            remedy="Name brokers of one cluster",
        )
    given = [environment[name] for name in _REGION_VARIABLES if environment.get(name)]
    region = next(iter([*named, *given]), "")
    if not _REGION.fullmatch(region):
        raise ConfigError(
            f"client property sasl.mechanisms is {MSK_IAM}, and the AWS region is unknown: no broker is named "
            "*.kafka.REGION.amazonaws.com",
            remedy="Name the brokers as MSK does, or set AWS_REGION",
        )
    return region


def _said(error: Exception) -> str:
    if isinstance(error, AttributeError):
        return "there are no AWS credentials"
    return " ".join(str(error).split()) or type(error).__name__
