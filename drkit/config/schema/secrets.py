"""Secrets of the configuration: written as they are, or held elsewhere. Nothing prints one."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import SecretStr

from drkit.config.schema.base import Strict


class SecretFromEnv(Strict):
    """A secret held in an environment variable: `{ env = "NAME" }`."""

    env: str

    def reveal(self) -> str:
        """The secret; raises ValueError naming the variable where it isn't set."""
        value = os.environ.get(self.env)
        if value is None:
            raise ValueError(f"environment variable {self.env} is not set")
        return value


class SecretFromFile(Strict):
    """A secret held in a file (one trailing newline is dropped): `{ file = "PATH" }`."""

    file: Path

    def reveal(self) -> str:
        """The secret; raises ValueError naming the file where it can't be read."""
        try:
            return self.file.read_text().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"secret file {self.file} can't be read: {error}") from error


Secret = SecretStr | SecretFromEnv | SecretFromFile


def reveal(value: Secret) -> str:
    """The plain text of a secret, however it is given."""
    return value.get_secret_value() if isinstance(value, SecretStr) else value.reveal()
