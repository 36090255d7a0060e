"""A cluster's client configuration for another machine: with the contents of files instead of their paths.

Certificates and keys are files on the machine that reads the configuration; workers of a Spark cluster don't have
them. So drkit packs their contents, and the other side makes temporary files of them (Python's TLS reads a client's
certificate only from files). On Linux these files are in memory without a name in any folder: they end with the
process. Elsewhere they are in a folder that only its owner can read. The packed form holds secrets: never print or log
it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from drkit.config.schema.config import ClusterConfig
from drkit.model.errors import ConfigError

_FILE = ".location"
"""Suffixes of property names whose values are paths."""

_MEMORY = hasattr(os, "memfd_create")
_OPENED = "/proc/self/fd"


def packed(alias: str, cluster: ClusterConfig) -> dict[str, Any]:
    """A cluster's address, properties and files, as JSON can hold them. It holds secrets.

    Raises:
        ConfigError: a secret or a file can't be read.
    """
    try:
        properties = cluster.properties()
    except ValueError as error:
        raise ConfigError(
            f"a client property of {alias} can't be read: {error}", remedy="Set the variable or correct the file"
        ) from None
    files = {name: _text(alias, name, path) for name, path in properties.items() if name.endswith(_FILE)}
    client = {name: value for name, value in properties.items() if name not in files}
    return {"alias": alias, "bootstrap_servers": cluster.bootstrap_servers, "client": client, "files": files}


@contextmanager
def unpacked(shipped: Mapping[str, Any]) -> Iterator[ClusterConfig]:
    """The cluster from `packed`'s result; its files exist until the end of the block, for this process only."""
    files = shipped.get("files", {})
    with ExitStack() as stack:
        made = _in_memory if _MEMORY and Path(_OPENED).is_dir() else _in_folder
        client = {**shipped["client"], **made(stack, files)}
        yield ClusterConfig.model_validate({"bootstrap_servers": shipped["bootstrap_servers"], "client": client})


def _in_memory(stack: ExitStack, files: Mapping[str, str]) -> dict[str, str]:
    """Paths of files that are in memory: each time one is opened, it is read from its beginning."""
    paths = {}
    for name, text in files.items():
        opened = os.memfd_create("drkit-file", os.MFD_CLOEXEC)
        file = stack.enter_context(os.fdopen(opened, "w", encoding="utf-8"))
        os.fchmod(opened, 0o600)
        file.write(text)
        file.flush()
        paths[name] = f"{_OPENED}/{opened}"
    return paths


def _in_folder(stack: ExitStack, files: Mapping[str, str]) -> dict[str, str]:
    """Paths of files in a folder of their own."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drkit-files-")))  # made with 0700
    paths = {}
    for number, (name, text) in enumerate(files.items()):
        path = folder / f"{number}.pem"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        paths[name] = str(path)
    return paths


def _text(alias: str, name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"client property {name} of {alias}: {path} can't be read as PEM: {error}",
            remedy=f"Correct [clusters.{alias}.client], or make the file readable for drkit",
        ) from None
