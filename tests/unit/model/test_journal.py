"""The hash chain of a run's journal."""

from dataclasses import replace

from drkit.model.clock import now
from drkit.model.runs import (
    Anchor,
    AnchorPlace,
    ChainBreak,
    ChainState,
    JournalEntry,
    judge_chain,
    missing_runs,
    verify_chain,
)


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
    assert verify_chain(entries) == ChainBreak(2, "it was changed after it was written")


def test_a_removed_entry_is_found():
    entries = chain(4)
    del entries[1]
    assert str(verify_chain(entries)).startswith("broken at entry 1: it is missing")


def test_a_replaced_entry_with_a_valid_hash_is_found():
    entries = chain(4)
    forged = JournalEntry.chained(entries[0], run="r", at=now(), stage="fence", event="intent", payload="{}")
    entries[1] = forged
    assert verify_chain(entries) == ChainBreak(2, "it doesn't follow the entry before it")


def anchored(entry: JournalEntry, cluster: str = "dr", store: str = "s") -> Anchor:
    return Anchor(entry.run, entry.seq, entry.hash, entry.at, store, cluster)


def places(*heads: JournalEntry, file: tuple[JournalEntry, ...] | None = None) -> list[AnchorPlace]:
    """What the file and dr have; the file the same where it isn't given."""
    kept = tuple(anchored(entry) for entry in (heads if file is None else file))
    return [AnchorPlace("FILE", kept), AnchorPlace("TOPIC on dr", tuple(map(anchored, heads)), "dr")]


SILENT = [AnchorPlace("TOPIC on dr", None, "dr", "dr does not answer"), AnchorPlace("TOPIC on a", (), "a")]


def test_a_chain_that_its_anchors_are_in_holds():
    entries = chain(5)
    found = judge_chain("r", entries, places(entries[1], entries[3]), "dr")
    assert (found.state, found.anchored_through) == (ChainState.HOLDS, 3)
    assert found.words == "holds (anchored through entry 3, of 5 in all: FILE, TOPIC on dr)"


def test_an_entry_written_anew_with_all_later_hashes_is_broken_at_the_next_anchor():
    entries = chain(6)
    kept = places(entries[1], entries[4])
    forged = entries[:2]
    for entry in entries[2:]:
        payload = '{"n":99}' if entry.seq == 2 else entry.payload
        forged.append(
            JournalEntry.chained(
                forged[-1], run="r", at=entry.at, stage=entry.stage, event=entry.event, payload=payload
            )
        )
    assert verify_chain(forged) is None, "by itself it holds"
    found = judge_chain("r", forged, kept, "dr")
    assert (found.state, found.anchored_through) == (ChainState.BROKEN, 1)
    assert found.words == "broken at entry 4: FILE has another hash; an entry from 2 to 4 was written again"


def test_a_cut_tail_and_a_deleted_run_are_cut():
    entries = chain(6)
    found = judge_chain("r", entries[:3], places(entries[1], entries[5]), "dr")
    assert (found.state, found.anchored_through) == (ChainState.CUT, 1)
    assert found.words.startswith("cut: anchored head not in the chain (FILE has entry 5; the chain ends at entry 2)")
    gone = judge_chain("r", [], places(entries[5]), None)
    assert gone.state is ChainState.CUT
    assert "the store has no entry of the run" in gone.words


def test_one_place_that_contradicts_is_enough():
    entries = chain(6)
    on_dr = places(entries[5], file=())
    assert judge_chain("r", entries[:3], on_dr, "dr").state is ChainState.CUT
    in_file = [*places(file=(entries[5],)), *SILENT]
    assert judge_chain("r", entries[:3], in_file, "dr").state is ChainState.CUT


def test_while_the_cluster_with_the_anchors_is_down_it_cannot_be_told():
    entries = chain(4)
    file = AnchorPlace("FILE", (anchored(entries[3]),))
    for cluster in ("dr", None):  # the file says where it leads to
        found = judge_chain("r", entries, [file, *SILENT], cluster)
        assert (found.state, found.anchored_through) == (ChainState.NOT_ANCHORED, 3)
        assert "TOPIC on dr can't be read: dr does not answer; FILE agrees through entry 3" in found.words
    other = AnchorPlace("TOPIC on a", None, "a", "a does not answer")
    assert judge_chain("r", entries, [*places(entries[3]), other], "dr").state is ChainState.HOLDS, "a has none of it"


def test_a_run_that_nothing_was_anchored_of_is_not_anchored():
    assert judge_chain("r", chain(3), places(), "dr").words == "not anchored: no head of this run was anchored anywhere"


def test_an_anchored_run_that_the_store_does_not_list_is_missing():
    entries = chain(2)
    kept = [AnchorPlace("FILE", (anchored(entries[1]), anchored(replace(entries[1], run="other"), store="t")))]
    assert missing_runs([], kept, "s") == ["r"]
    assert missing_runs(["r"], kept, "s") == []
