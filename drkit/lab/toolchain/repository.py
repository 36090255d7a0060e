"""Which Maven repository jars are taken from: the central one, or one of the user's own."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from drkit.model.errors import ConfigError

REPOSITORY_VARIABLE = "DRKIT_JAR_REPOSITORY"
_SCHEMES = {"http", "https", "file"}


def chosen_repository(given: str | None) -> str | None:
    """The repository's URL without a slash at its end; None: the central one.

    Args:
        given: as `--repository` names it; None: `$DRKIT_JAR_REPOSITORY` does, or nobody.

    Raises:
        ConfigError: it isn't the URL of a repository; the message doesn't repeat what may be a password.
    """
    url = given if given is not None else os.environ.get(REPOSITORY_VARIABLE)
    if not url:
        return None
    where = "--repository" if given is not None else f"the environment variable {REPOSITORY_VARIABLE}"
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) or parts.scheme == "file"
    except ValueError:
        named, parts = False, urlsplit("")
    if "@" in parts.netloc:
        raise ConfigError(
            f"{where}: the URL holds a user or password",
            meaning="Java's client would send it nowhere",
            remedy="Name a repository that this network may read, or a folder: file:///path",
        )
    if parts.scheme not in _SCHEMES or not named:
        raise ConfigError(
            f"{where} is not the URL of a Maven repository",
            remedy="Write https://host/path or file:///path, the folder that holds org/apache/…",
        )
    return url.rstrip("/")
