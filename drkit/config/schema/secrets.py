"""Secrets of the configuration: in the file itself, or stored elsewhere. drkit never prints one."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import SecretStr

from drkit.config.schema.base import Strict


class SecretFromEnv(Strict):
    """A secret in an environment variable: `{ env = "NAME" }`."""

    env: str

    def reveal(self) -> str:
        """The secret. Raises ValueError, which names the variable, if it isn't set."""
        value = os.environ.get(self.env)
        if value is None:
            raise ValueError(f"environment variable {self.env} is not set")
        return value


class SecretFromFile(Strict):
    """A secret in a file (one trailing newline is dropped): `{ file = "PATH" }`."""

    file: Path

    def reveal(self) -> str:
        """The secret. Raises ValueError, which names the file, if it can't be read."""
        try:
            return self.file.read_text().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"secret file {self.file} can't be read: {error}") from error


Secret = SecretStr | SecretFromEnv | SecretFromFile


def reveal(value: Secret) -> str:
    """The plain text of a secret in any form."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value.reveal()
