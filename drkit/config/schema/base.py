"""What the tables of the schema are made of: strict models, patterns and callables that are checked, secrets."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr

from drkit.model.errors import ConfigError


class Strict(BaseModel):
    """A table of the file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def scalars_as_text(value: object) -> object:
    """A table with its booleans and numbers as text, as Kafka and librdkafka write them; anything else as it is."""
    if not isinstance(value, dict):
        return value
    return {name: str(each).lower() if isinstance(each, bool | int | float) else each for name, each in value.items()}


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        hint = " (all names: '.*')" if pattern.startswith("*") else ""
        raise ValueError(f"{pattern!r} is not a regular expression: {error}{hint}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_regex)]


def _callable(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", text):
        raise ValueError(f'{text!r} is not of the form "module:function"')
    return text


CallableName = Annotated[str, AfterValidator(_callable)]
"""A Python callable as `module:function`. The caller imports and checks it before anything depends on it."""


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


def named_callable(name: str, key: str, where: str) -> Callable[..., Any]:
    """Import a named callable.

    Args:
        name: the callable, as ``module:function``.
        key: file and key of the configuration that name it, for the error.
        where: where it must be installed, for the remedy.

    Raises:
        ConfigError: it can't be imported, isn't there, or can't be called.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module may raise anything at import
        raise ConfigError(
            f"{key} = {name!r}: module {module_name} can't be imported: {type(error).__name__}: {error}",
            remedy=f"Install it {where}, or put its folder on PYTHONPATH",
        ) from error
    found: Callable[..., Any] | None = getattr(module, function_name, None)
    if found is None:
        file = Path(getattr(module, "__file__", None) or module_name).name
        raise ConfigError(f"{key} = {name!r}: {file} has no {function_name}", remedy="Correct the name")
    if not callable(found):
        raise ConfigError(f"{key} = {name!r}: that is not a function", remedy="Name a function")
    return found
