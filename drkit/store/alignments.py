"""Offset alignments, kept as notes of the link: one for each partition."""

from __future__ import annotations

from collections.abc import Iterable

from drkit.model.alignment import Alignment, note_name, read_alignment
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore

KIND = "alignments"


def put_alignment(store: LinkStore, link: LinkId, alignment: Alignment) -> None:
    """Keep it; durable on return."""
    store.put_notes(link, KIND, {alignment.name: alignment.note()})


def alignments(store: LinkStore, link: LinkId) -> dict[TopicPartition, Alignment]:
    """All of them, by source partition."""
    found = (read_alignment(text) for text in store.notes(link, KIND).values())
    return {each.tp: each for each in found}


def forget_alignments(store: LinkStore, link: LinkId, tps: Iterable[TopicPartition]) -> None:
    """These are of no use any more."""
    store.forget_notes(link, KIND, [note_name(tp) for tp in tps])
