"""Chooses the Maven repository for jars: the central one, or the user's own."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from drkit.model.errors import ConfigError

REPOSITORY_VARIABLE = "DRKIT_JAR_REPOSITORY"
_SCHEMES = {"http", "https", "file"}


def chosen_repository(given: str | None) -> str | None:
    """The repository's URL without a trailing slash; None: the central one.

    Args:
        given: the value of `--repository`; None: `$DRKIT_JAR_REPOSITORY`, if it is set.

    Raises:
        ConfigError: it isn't the URL of a repository; the message doesn't repeat it, since it may hold a password.
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
            meaning="Java's client would not send them",
            remedy="Name a repository that this network may read, or a folder: file:///path",
        )
    if parts.scheme not in _SCHEMES or not named:
        raise ConfigError(
            f"{where} is not the URL of a Maven repository",
            remedy="Write https://host/path or file:///path, the folder that holds org/apache/…",
        )
    return url.rstrip("/")
