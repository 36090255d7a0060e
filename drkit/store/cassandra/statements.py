"""The prepared statements of the Cassandra backend, by what they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from cassandra.query import PreparedStatement

from drkit.store.cassandra.session import CassandraSession

_CQL = {
    # mapping rows
    "note_partition": "INSERT INTO {k}.mapping_partition (link, topic, partition, epoch) VALUES (?, ?, ?, ?)",
    "noted_partitions": "SELECT topic, partition, epoch FROM {k}.mapping_partition WHERE link = ?",
    "put_mapping": (
        "INSERT INTO {k}.mapping (link, topic, partition, epoch, source_offset, target_offset)"
        " VALUES (?, ?, ?, ?, ?, ?)"
    ),
    "mappings": (
        "SELECT source_offset, target_offset FROM {k}.mapping"
        " WHERE link = ? AND topic = ? AND partition = ? AND epoch = ? ORDER BY source_offset ASC"
    ),
    "mappings_of": (
        "SELECT partition, source_offset, target_offset FROM {k}.mapping"
        " WHERE link = ? AND topic = ? AND epoch = ? AND partition IN ?"
    ),
    "mappings_from_top": (
        "SELECT source_offset, target_offset FROM {k}.mapping"
        " WHERE link = ? AND topic = ? AND partition = ? AND epoch = ? ORDER BY source_offset DESC"
    ),
    "floor_mapping": (
        "SELECT source_offset, target_offset FROM {k}.mapping WHERE link = ? AND topic = ? AND partition = ?"
        " AND epoch = ? AND source_offset <= ? ORDER BY source_offset DESC LIMIT 1"
    ),
    "next_mapping": (
        "SELECT source_offset, target_offset FROM {k}.mapping WHERE link = ? AND topic = ? AND partition = ?"
        " AND epoch = ? AND source_offset > ? ORDER BY source_offset ASC LIMIT 1"
    ),
    "forget_mappings_from": (
        "DELETE FROM {k}.mapping WHERE link = ? AND topic = ? AND partition = ? AND epoch = ? AND source_offset >= ?"
    ),
    # generations: rows of a partition change in one batch with the condition on its holder
    "generation": "SELECT value FROM {k}.generation WHERE link = ?",
    "first_generation": "INSERT INTO {k}.generation (link, value) VALUES (?, ?) IF NOT EXISTS",
    "change_generation": "UPDATE {k}.generation SET value = ? WHERE link = ? IF value = ?",
    "claim_held": (
        "UPDATE {k}.mapping SET generation = ? WHERE link = ? AND topic = ? AND partition = ? AND epoch = ?"
        " IF generation <= ?"
    ),
    "claim_free": (
        "UPDATE {k}.mapping SET generation = ? WHERE link = ? AND topic = ? AND partition = ? AND epoch = ?"
        " IF generation = null"
    ),
    "hold": (
        "UPDATE {k}.mapping SET generation = ? WHERE link = ? AND topic = ? AND partition = ? AND epoch = ?"
        " IF generation = ?"
    ),
    # watermarks and group positions
    "put_watermark": (
        "INSERT INTO {k}.watermark (link, topic, partition, epoch, source_through, target_end, source_start,"
        " source_end, target_start, observed_at, behind_since, leader_epoch, batch_offset, batch_crc,"
        " waiting_until, waiting_since, waiting_at_most)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
    ),
    "watermarks": (
        "SELECT topic, partition, epoch, source_through, target_end, source_start, source_end, target_start,"
        " observed_at, behind_since, leader_epoch, batch_offset, batch_crc, waiting_until, waiting_since,"
        " waiting_at_most FROM {k}.watermark WHERE link = ?"
    ),
    "forget_watermarks": "DELETE FROM {k}.watermark USING TIMESTAMP ? WHERE link = ?",
    "forget_topic_watermarks": "DELETE FROM {k}.watermark USING TIMESTAMP ? WHERE link = ? AND topic = ?",
    "put_group_position": (
        "INSERT INTO {k}.group_position (link, group_id, topic, partition, source_offset, metadata, captured_at,"
        " topic_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "group_positions": (
        "SELECT group_id, topic, partition, source_offset, metadata, captured_at, topic_id FROM {k}.group_position"
        " WHERE link = ?"
    ),
    "forget_group": "DELETE FROM {k}.group_position WHERE link = ? AND group_id = ?",
    "forget_group_on_topic": "DELETE FROM {k}.group_position WHERE link = ? AND group_id = ? AND topic = ?",
    "forget_group_positions": "DELETE FROM {k}.group_position WHERE link = ?",
    # links
    "link_control": (
        "SELECT direction, version, changed_at, reason, run, paused_topics FROM {k}.link_control WHERE link = ?"
    ),
    "first_link_control": (
        "INSERT INTO {k}.link_control (link, direction, version, changed_at, reason, run, paused_topics)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
    ),
    "change_link_control": (
        "UPDATE {k}.link_control SET direction = ?, version = ?, changed_at = ?, reason = ?, run = ?,"
        " paused_topics = ? WHERE link = ? IF version = ?"
    ),
    "put_topic_state": (
        "INSERT INTO {k}.topic_state (link, topic, target_topic, source_topic_id, target_topic_id, epoch, partitions,"
        " created_by_drkit, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "topic_states": (
        "SELECT topic, target_topic, source_topic_id, target_topic_id, epoch, partitions, created_by_drkit,"
        " reason FROM {k}.topic_state WHERE link = ?"
    ),
    "forget_topic_states": "DELETE FROM {k}.topic_state WHERE link = ?",
    "forget_topic_state": "DELETE FROM {k}.topic_state WHERE link = ? AND topic = ?",
    "put_note": "INSERT INTO {k}.link_note (link, kind, name, body) VALUES (?, ?, ?, ?)",
    "notes": "SELECT name, body FROM {k}.link_note WHERE link = ? AND kind = ?",
    "note_kinds": "SELECT kind FROM {k}.link_note WHERE link = ?",
    "forget_note": "DELETE FROM {k}.link_note WHERE link = ? AND kind = ? AND name = ?",
    "put_problem": (
        "INSERT INTO {k}.problem (link, kind, topic, partition, reason, remedy, halted, since, unsure_from,"
        " unsure_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "problem_since": "SELECT since FROM {k}.problem WHERE link = ? AND kind = ? AND topic = ? AND partition = ?",
    "problems": (
        "SELECT kind, topic, partition, reason, remedy, halted, since, unsure_from, unsure_until"
        " FROM {k}.problem WHERE link = ?"
    ),
    "forget_problem": "DELETE FROM {k}.problem WHERE link = ? AND kind = ? AND topic = ? AND partition = ?",
    "forget_problems": "DELETE FROM {k}.problem WHERE link = ?",
    # leases
    "lease": "SELECT name, owner, epoch, expires_at FROM {k}.lease WHERE name = ?",
    "first_lease": "INSERT INTO {k}.lease (name, owner, epoch, expires_at) VALUES (?, ?, ?, ?) IF NOT EXISTS",
    "change_lease": (
        "UPDATE {k}.lease SET owner = ?, epoch = ?, expires_at = ? WHERE name = ?"
        " IF owner = ? AND epoch = ? AND expires_at = ?"
    ),
    # journal
    "append_entry": (
        "INSERT INTO {k}.journal (run, seq, at, stage, event, payload, previous, hash)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS"
    ),
    "entries": "SELECT run, seq, at, stage, event, payload, previous, hash FROM {k}.journal WHERE run = ?",
    "put_run": (
        "INSERT INTO {k}.run (list, run, kind, state, started_at, updated_at, detail) VALUES (?, ?, ?, ?, ?, ?, ?)"
    ),
    "runs": "SELECT run, kind, state, started_at, updated_at, detail FROM {k}.run WHERE list = ?",
}


@dataclass(frozen=True, slots=True)
class Statements:
    """Every statement, prepared against one keyspace."""

    note_partition: PreparedStatement
    noted_partitions: PreparedStatement
    put_mapping: PreparedStatement
    mappings: PreparedStatement
    mappings_of: PreparedStatement
    mappings_from_top: PreparedStatement
    floor_mapping: PreparedStatement
    next_mapping: PreparedStatement
    forget_mappings_from: PreparedStatement
    generation: PreparedStatement
    first_generation: PreparedStatement
    change_generation: PreparedStatement
    claim_held: PreparedStatement
    claim_free: PreparedStatement
    hold: PreparedStatement
    put_watermark: PreparedStatement
    watermarks: PreparedStatement
    forget_watermarks: PreparedStatement
    forget_topic_watermarks: PreparedStatement
    put_group_position: PreparedStatement
    group_positions: PreparedStatement
    forget_group: PreparedStatement
    forget_group_on_topic: PreparedStatement
    forget_group_positions: PreparedStatement
    link_control: PreparedStatement
    first_link_control: PreparedStatement
    change_link_control: PreparedStatement
    put_topic_state: PreparedStatement
    topic_states: PreparedStatement
    forget_topic_states: PreparedStatement
    forget_topic_state: PreparedStatement
    put_note: PreparedStatement
    notes: PreparedStatement
    note_kinds: PreparedStatement
    forget_note: PreparedStatement
    put_problem: PreparedStatement
    problem_since: PreparedStatement
    problems: PreparedStatement
    forget_problem: PreparedStatement
    forget_problems: PreparedStatement
    lease: PreparedStatement
    first_lease: PreparedStatement
    change_lease: PreparedStatement
    append_entry: PreparedStatement
    entries: PreparedStatement
    put_run: PreparedStatement
    runs: PreparedStatement

    @classmethod
    def prepare(cls, session: CassandraSession) -> Self:
        """Prepare all of them (about a millisecond each)."""
        return cls(**session.prepare_all(_CQL))
