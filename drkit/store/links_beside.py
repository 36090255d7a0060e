"""The configured links that may write beside one that runs, by what the store knows of them."""

from __future__ import annotations

from collections.abc import Iterable

from drkit.model.topology import Link
from drkit.store.api import LinkStore


def links_beside(store: LinkStore, link: Link, configured: Iterable[Link]) -> list[Link]:
    """The links around a running one.

    Beside the way back of a link, one that was failed away from writes nothing: its mirror is sealed until its own
    failback, which is refused before this one is done.

    Raises:
        Unreachable: the store doesn't answer.
    """
    own = {link.id, link.id.reversed()} if link.inverse else {link.id}
    others = [each for each in configured if each.id not in own]
    if not link.inverse:
        return others
    controls = {each.id: store.link_control(each.id) for each in others}
    return [each for each in others if (control := controls[each.id]) is None or control.direction.serves_source]
