"""The connections of a site run: each link has its own, so a dead cluster delays no other link."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Self, TypeVar

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.snapshot.selection import UnknownNames
from drkit.model.errors import ConfigError, Refused, StoreMissing
from drkit.model.process import working_on
from drkit.model.topology import Link, LinkId

_T = TypeVar("_T")


class SiteContext:
    """One `ClusterContext` for each link. A context manager: what was opened is closed.

    Args:
        estate: configuration, store and timeouts; the caller closes it.
        links: the links of the run.
    """

    def __init__(self, estate: ClusterContext, links: Sequence[Link]) -> None:
        self.estate = estate
        self.links = tuple(links)
        self._contexts = {link.id: estate.another() for link in links}
        for link, context in self._contexts.items():
            context.adopt(estate, [link.source])
            context.connect_soon([link.source])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor(max(1, len(self._contexts)), "drkit-close") as pool:
            list(pool.map(ClusterContext.close, self._contexts.values()))

    def of(self, link: LinkId) -> ClusterContext:
        """The connections of a link."""
        return self._contexts[link]

    def side_by_side(self, work: Callable[[Link], _T], links: Sequence[Link] | None = None) -> list[_T]:
        """Call a function for each link (all, or some) concurrently; results in their order. Raises the first error."""
        chosen = self.links if links is None else links

        def on_link(link: Link) -> _T:
            with working_on(link.id):
                return work(link)

        with ThreadPoolExecutor(max(1, len(chosen)), "drkit-link") as pool:
            return list(pool.map(on_link, chosen))

    @contextmanager
    def naming(self, link: Link, without: str) -> Iterator[None]:
        """What refuses a link's plan in the block names the link, and how to do without it.

        Args:
            link: the link.
            without: the remedy's last words, before the `--link` options of the other links.
        """
        try:
            yield
        except (UnknownNames, StoreMissing):
            raise
        except (Refused, ConfigError) as error:
            others = " ".join(f"--link '{each.id}'" for each in self.links if each != link)
            told = Refused if isinstance(error, Refused) else ConfigError
            raise told(
                f"{link.id}: {error.what}",
                meaning=error.meaning,
                remedy=f"{error.remedy.rstrip('. ')}. Or {without} {others}",
            ) from error
