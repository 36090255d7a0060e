"""How a cluster is reached, as it travels to another machine: what files hold instead of their paths.

Certificates and keys are files on the machine that reads the configuration; workers of a Spark cluster have none of
them. So their contents are packed, and on the other side lie in a folder that only its owner can read, for as long
as they are used (Python's TLS takes a client's certificate from files only). What is packed holds secrets: never
print or log it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from drkit.config.schema import ClusterConfig
from drkit.model.errors import ConfigError

_FILE = ".location"
"""How the names of properties that are paths end."""


def packed(alias: str, cluster: ClusterConfig) -> dict[str, Any]:
    """A cluster's address, properties and files, as JSON can hold them. It holds secrets.

    Raises:
        ConfigError: a secret or a file can't be read.
    """
    try:
        properties = cluster.properties()
    except ValueError as error:
        raise ConfigError(
            f"a client property of {alias} can't be read: {error}", remedy="Set the variable or mend the file"
        ) from None
    files = {name: _text(alias, name, path) for name, path in properties.items() if name.endswith(_FILE)}
    client = {name: value for name, value in properties.items() if name not in files}
    return {"alias": alias, "bootstrap_servers": cluster.bootstrap_servers, "client": client, "files": files}


@contextmanager
def unpacked(shipped: Mapping[str, Any]) -> Iterator[ClusterConfig]:
    """The cluster of what `packed` made; its files are there until the end of the block."""
    files = shipped.get("files", {})
    with tempfile.TemporaryDirectory(prefix="drkit-files-") as folder:  # made with 0700
        client = dict(shipped["client"])
        for number, (name, text) in enumerate(files.items()):
            path = Path(folder) / f"{number}.pem"
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            client[name] = str(path)
        yield ClusterConfig.model_validate({"bootstrap_servers": shipped["bootstrap_servers"], "client": client})


def _text(alias: str, name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"client property {name} of {alias}: {path} can't be read as PEM: {error}",
            remedy=f"Mend [clusters.{alias}.client], or make the file readable for drkit",
        ) from None
