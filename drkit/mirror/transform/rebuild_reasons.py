"""Whether a link's batches are forwarded unchanged, and why not. Pure."""

from __future__ import annotations

from drkit.model.topology import Link

FORWARDED = "batches are forwarded as they are"
_REBUILT = "every batch is rebuilt"
PHRASES = (FORWARDED, _REBUILT)
"""How each reason begins."""


def alterations(link: Link) -> str | None:
    """What alters a link's records ("filter and transform"), or None.

    The way back of a link carries records unaltered.
    """
    if not link.alters:
        return None
    named = (
        ("filter", link.filter is not None),
        ("transform", link.transform is not None),
        ("provenance", link.provenance),
    )
    return " and ".join(name for name, here in named if here)


def how_forwarded(link: Link) -> str:
    """What happens to a link's batches, and why (a phrase for people)."""
    names = alterations(link)
    if names is None:
        return FORWARDED
    return f"{_REBUILT}: {names} alter{'' if ' and ' in names else 's'} the records"
