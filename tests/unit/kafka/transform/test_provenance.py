"""Provenance headers: the first origin, further hops, and what can be read out of them."""

from __future__ import annotations

import pytest

from drkit.kafka.transform.provenance import Hop, last_hop, passed, stamped
from drkit.model.record import Header

A, B = Hop("id-a", "orders", 3, 17), Hop("id-b", "orders.eu", 3, 40)
PLAIN: list[Header] = [("trace", b"1"), ("empty", None)]


def test_the_first_hop_names_the_origin_behind_the_record_s_own_headers() -> None:
    assert stamped(PLAIN, PLAIN, A) == [
        *PLAIN,
        ("drkit.source", b"id-a"),
        ("drkit.topic", b"orders"),
        ("drkit.partition", b"3"),
        ("drkit.offset", b"17"),
    ]


def test_further_hops_keep_the_origin_and_add_their_own_place() -> None:
    once = stamped(PLAIN, PLAIN, A)
    twice = stamped(once, once, B)
    assert twice[:-1] == once
    assert twice[-1] == ("drkit.via", b"id-b/orders.eu/3/40")
    thrice = stamped(twice, twice, Hop("id-c", "x", 0, 1))
    assert thrice[-1] == ("drkit.via", b"id-b/orders.eu/3/40,id-c/x/0/1")
    assert len(thrice) == len(twice)
    assert passed(thrice) == ("id-a", "id-b", "id-c")
    assert [last_hop(each) for each in (once, twice, thrice)] == [A, B, Hop("id-c", "x", 0, 1)]


def test_a_transform_can_neither_lose_nor_forge_where_a_record_was() -> None:
    once = stamped(PLAIN, PLAIN, A)
    assert stamped(once, [("drkit.source", b"forged"), ("new", b"x")], B) == [
        ("new", b"x"),
        *once[2:],
        ("drkit.via", b"id-b/orders.eu/3/40"),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        PLAIN,
        [("drkit.source", b"")],
        [("drkit.source", b"id"), ("drkit.topic", b"t"), ("drkit.partition", b"x"), ("drkit.offset", b"1")],
        [("drkit.source", b"id"), ("drkit.via", b"not a place")],
        [("drkit.source", None)],
        [("drkit.source", b"\xff")],
    ],
)
def test_headers_that_say_nothing_of_a_place(headers: list[Header]) -> None:
    assert last_hop(headers) is None
