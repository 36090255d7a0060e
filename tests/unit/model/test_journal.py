"""The hash chain of a run's journal."""

from dataclasses import replace

from drkit.model.clock import now
from drkit.model.journal import JournalEntry, verify_chain


def chain(length: int) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    for number in range(length):
        before = entries[-1] if entries else None
        entries.append(
            JournalEntry.chained(before, run="r", at=now(), stage="fence", event="intent", payload=f'{{"n":{number}}}')
        )
    return entries


def test_an_untouched_chain_holds():
    assert verify_chain(chain(4)) is None
    assert verify_chain([]) is None


def test_a_changed_entry_is_found():
    entries = chain(4)
    entries[2] = replace(entries[2], payload='{"n":9}')
    assert verify_chain(entries) == "entry 2 was changed after it was written"


def test_a_removed_entry_is_found():
    entries = chain(4)
    del entries[1]
    assert "entry 1 is missing" in str(verify_chain(entries))


def test_a_replaced_entry_with_a_valid_hash_is_found():
    entries = chain(4)
    forged = JournalEntry.chained(entries[0], run="r", at=now(), stage="fence", event="intent", payload="{}")
    entries[1] = forged
    assert verify_chain(entries) == "entry 2 does not follow the entry before it"
