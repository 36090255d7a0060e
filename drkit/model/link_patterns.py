"""Links by name or pattern, as `--link` gives them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from drkit.model.errors import ConfigError
from drkit.model.topology import Link, LinkId


def matching(links: Sequence[Link], patterns: Sequence[str]) -> list[Link]:
    """The links with these names, or whose whole names match a pattern.

    Args:
        links: those to choose from.
        patterns: names (`source->target`), or regular expressions.

    Raises:
        ConfigError: a pattern matches no link, or is no regular expression.
    """
    known = ", ".join(str(link.id) for link in links)
    found: set[LinkId] = set()
    for text in patterns:
        wanted = re.sub(r"\s*->\s*", "->", text.strip())
        meant = {link.id for link in links if str(link.id) == wanted}
        try:
            meant = meant or {link.id for link in links if re.fullmatch(wanted, str(link.id))}
        except re.error as error:
            raise ConfigError(
                f"--link: {text!r} is neither a link's name nor a regular expression: {error}",
                remedy=f"Known links: {known}",
            ) from None
        if not meant:
            raise ConfigError(
                f"--link {text!r}: no link has this name or matches this pattern",
                remedy=f"Known links: {known}",
            )
        found |= meant
    return [link for link in links if link.id in found]
