"""The schema of `[serve]`: where the status page listens, and what it asks of readers."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from drkit.config.schema.base import Strict
from drkit.config.schema.secrets import Secret, reveal


class ServeConfig(Strict):
    """`[serve]`: the page of `drkit serve`.

    `listen`: HOST:PORT. `token`: what readers have to know. `certificate`, `key`: of the server, for TLS (PEM).
    `client_ca`: the authority of the certificates that readers have to show (PEM). Elsewhere than on loopback `token`
    or `client_ca` is needed.
    """

    listen: str = Field(default="127.0.0.1:9404", min_length=1)
    token: Secret | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("`certificate` and `key` belong together: give both")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("`client_ca` needs `certificate` and `key`: without TLS no reader can show one")
        return self

    @property
    def plain_token(self) -> str | None:
        """The token. Never log it. Raises ValueError where its variable or file can't be read."""
        return None if self.token is None else reveal(self.token)
