"""Tables of any length, a page at a time: search, sort order and page come from the request's query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drkit.model.errors import ConfigError

Row = Mapping[str, Any]
"""One line: plain values by column."""

DEFAULT_SIZE = 50
MAX_SIZE = 200
MAX_SEARCH = 200
_MAX_PAGE = 1_000_000


@dataclass(frozen=True, slots=True)
class Table:
    """The allowed queries of a table.

    Args:
        columns: those that it can be sorted by.
        searched: those whose text is searched for `q`.
        filters: those that a query may filter by a whole value.
        sort: the default order, and whether that is descending.
    """

    columns: tuple[str, ...]
    searched: tuple[str, ...]
    filters: tuple[str, ...] = ()
    sort: tuple[str, bool] = ("", False)


@dataclass(frozen=True, slots=True)
class Query:
    """A query. `page` counts from 1."""

    search: str
    filters: tuple[tuple[str, str], ...]
    sort: str
    descending: bool
    page: int
    size: int


def query_of(table: Table, parameters: Mapping[str, str]) -> Query:
    """The query of a request.

    Raises:
        ConfigError: a parameter is unknown or its value is invalid; the message names both.
    """
    known = {"q", "sort", "order", "page", "size", *table.filters}
    for name in parameters:
        if name not in known:
            raise _bad(name, parameters[name], f"known parameters are {', '.join(sorted(known))}")
    search = parameters.get("q", "")
    if len(search) > MAX_SEARCH:
        raise _bad("q", f"{search[:20]}…", f"at most {MAX_SEARCH} characters")
    sort, descending = table.sort
    if "sort" in parameters:
        sort, descending = parameters["sort"], False
        if sort not in table.columns:
            raise _bad("sort", sort, f"one of {', '.join(table.columns)}")
    if "order" in parameters:
        if parameters["order"] not in {"asc", "desc"}:
            raise _bad("order", parameters["order"], "asc or desc")
        descending = parameters["order"] == "desc"
    return Query(
        search=search.strip().casefold(),
        filters=tuple((name, parameters[name]) for name in table.filters if parameters.get(name)),
        sort=sort,
        descending=descending,
        page=_number("page", parameters.get("page", "1"), _MAX_PAGE),
        size=_number("size", parameters.get("size", str(DEFAULT_SIZE)), MAX_SIZE),
    )


def page_of(rows: Sequence[Row], table: Table, query: Query) -> dict[str, Any]:
    """The page of rows that a query asks for, and how many there are.

    Unknown values sort as the greatest, so that they are never hidden at the end of the worst. A page beyond the last
    is the last.
    """
    found = [row for row in rows if _matches(row, table, query)]
    if query.sort:
        found.sort(key=lambda row: _order(row[query.sort]), reverse=query.descending)
    pages = max(1, -(-len(found) // query.size))
    page = min(query.page, pages)
    begin = (page - 1) * query.size
    return {
        "total": len(rows),
        "matched": len(found),
        "page": page,
        "pages": pages,
        "size": query.size,
        "sort": query.sort,
        "order": "desc" if query.descending else "asc",
        "rows": found[begin : begin + query.size],
    }


def _matches(row: Row, table: Table, query: Query) -> bool:
    if any(str(row[name]) != value for name, value in query.filters):
        return False
    if not query.search:
        return True
    return any(query.search in str(row[name]).casefold() for name in table.searched if row[name] is not None)


def _order(value: Any) -> tuple[int, float, str]:
    if value is None:
        return (2, 0.0, "")
    if isinstance(value, bool | int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value).casefold())


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise _bad(name, text, f"a whole number from 1 to {most:,}")
    return int(text)


def _bad(name: str, value: str, expected: str) -> ConfigError:
    return ConfigError(f"{name}={value[:80]!r} is not understood", remedy=f"Give {expected}")
