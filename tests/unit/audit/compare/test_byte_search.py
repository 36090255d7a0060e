"""Many byte strings looked for at once, beside a plain look for each."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.compare.undecoded_batches import ONE_BY_ONE, SHORTEST, any_in

MANY = ONE_BY_ONE + 2
FEW_LETTERS = st.text("ab01", max_size=60).map(str.encode)


@settings(deadline=None)  # a busy machine is no failure
@given(
    text=FEW_LETTERS,
    others=st.lists(st.text("ab01", min_size=SHORTEST, max_size=14).map(str.encode), min_size=MANY, max_size=30),
    rest=st.binary(max_size=20),
)
def test_it_finds_what_a_look_for_each_finds(text, others, rest):
    expected = any(each in text for each in others)
    assert any_in(others, bytearray(text + rest), len(text)) is expected


@settings(deadline=None)
@given(st.integers(0, 2_000), st.integers(SHORTEST, 40), st.integers(0, 2**32))
def test_one_of_many_is_found_wherever_it_is_and_not_where_a_byte_is_another(at, length, seed):
    made = random.Random(seed)  # noqa: S311 - bytes to search in
    text = bytearray(made.randbytes(2_100))
    needle = bytes(text[at : at + length])
    others = [made.randbytes(length) for _ in range(MANY)]
    assert any_in([*others, needle], text, len(text))
    assert not any_in([*others, needle], text, at + length - 1), "it ends behind what counts"
    text[at + made.randrange(length)] ^= 1
    assert not any_in([*others, needle], text, len(text))


def test_what_stands_in_every_record_is_not_what_is_looked_up():
    text = b"".join(b'{"id":%d,"state":"open"}' % number for number in range(20_000))
    needles = [b'{"id":%d,"state":"shut"}' % number for number in range(0, 20_000, 1_000)]
    assert not any_in(needles, text, len(text))
    assert any_in([*needles, b'{"id":777,"state":"open"}'], text, len(text))


def test_texts_that_are_all_alike_are_searched_all_the_same():
    needles = [b"a" * SHORTEST + str(number).encode() for number in range(MANY)]
    assert not any_in(needles, b"a" * 100_000, 100_000)
    assert any_in(needles, b"a" * 100_000 + b"3", 100_001)
