"""The user's callables that a configuration names: `module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drkit.model.errors import ConfigError


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
