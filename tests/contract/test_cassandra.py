"""The Cassandra backend's own matters, on a real node: creating, lost answers, wrong clocks, a node that dies."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from threading import Thread

import pytest

from drkit.model.errors import ConfigError, DrkitError, Refused, StoreMissing, Unreachable
from drkit.model.link_state import Direction, LinkControl, Problem
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.runs import JournalEntry
from drkit.model.topology import LinkId, TopicPartition
from drkit.state_topic.restore import holds_something, restore
from drkit.store import Store, open_store, open_whole_store
from drkit.store.backup import read_backup, write_backup
from drkit.store.cassandra.backend import CassandraStore
from drkit.store.cassandra.schema import TABLES, bring_up, kept_version
from drkit.store.cassandra.session import CassandraSession
from drkit.store.cassandra.url import parse_cassandra_url
from tests.support.collection.sampling import some_of
from tests.support.links.filled_store import FILLED, contents_of, fill_store
from tests.support.wait import wait_until

pytestmark = [pytest.mark.cassandra, some_of("matters of Cassandra", 6)]

TP = TopicPartition("flights", 0)
AT = datetime(2026, 11, 20, 4, 3, 10, 123457, UTC)


@pytest.fixture
def store(cassandra_store_url) -> Iterator[Store]:
    with closing(open_store(cassandra_store_url)) as kept:
        yield kept


def mark(through: int) -> Watermark:
    return Watermark(*TP, 0, through, through, 0, through, 0, AT)


def row(number: int) -> OffsetMapping:
    return OffsetMapping(*TP, 0, number, number)


# ---- creating ------------------------------------------------------------------------------------------


def test_a_keyspace_that_does_not_exist_is_an_error_and_is_not_created(cassandra_url):
    with pytest.raises(StoreMissing, match="there is no store in cassandra"):
        open_store(cassandra_url, create=False)
    with closing(CassandraSession(parse_cassandra_url(cassandra_url))) as session:
        keyspaces = [name for (name,) in session.rows("SELECT keyspace_name FROM system_schema.keyspaces")]
    assert parse_cassandra_url(cassandra_url).keyspace not in keyspaces


def test_several_processes_create_it_at_once(cassandra_url, link):
    def use(number: int) -> None:
        with closing(open_store(cassandra_url)) as store:
            store.append_mappings(link, [row(number)])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(use, range(3)))
    with closing(open_store(cassandra_url, create=False)) as store:
        assert store.mappings(link, TP, 0) == [row(number) for number in range(3)]


def test_the_keyspace_is_replicated_as_the_url_says_and_never_by_simple_strategy(cassandra_url):
    open_store(cassandra_url).close()
    location = parse_cassandra_url(cassandra_url)
    with closing(CassandraSession(location)) as session:
        (replication,) = session.row(
            "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s", (location.keyspace,)
        )
    assert replication["class"].endswith("NetworkTopologyStrategy")
    assert replication[location.dc] == "1"


def test_it_tells_on_how_many_nodes_a_row_is_kept(cassandra_url):
    location = parse_cassandra_url(cassandra_url)
    alter = f"ALTER KEYSPACE {location.keyspace} WITH replication = "
    with closing(open_store(cassandra_url)) as store, closing(CassandraSession(location)) as session:
        assert store.replicas() == {location.dc: 1}
        session.change_schema(alter + "{'class': 'SimpleStrategy', 'replication_factor': 1}")
        assert store.replicas() == {"": 1}


def test_a_keyspace_is_not_created_without_knowing_its_replication(cassandra_url):
    bare = cassandra_url.partition("&replication_factor")[0]
    with pytest.raises(ConfigError, match="doesn't say how to replicate it"):
        open_store(bare)
    open_store(cassandra_url).close()
    open_store(bare).close()


def test_another_schema_is_refused(cassandra_url):
    open_store(cassandra_url).close()
    with closing(CassandraSession(parse_cassandra_url(cassandra_url))) as session:
        keyspace = session.location.keyspace
        assert session.compare_and_set(
            f"UPDATE {keyspace}.schema_version SET version = %s WHERE id = 'drkit' IF version = 1",  # noqa: S608  # a checked name
            (2,),
        )
        assert kept_version(session) == 2
    for create in (True, False):
        with pytest.raises(Refused, match="schema version 2, this drkit works with version 1") as refused:
            open_store(cassandra_url, create=create)
        assert "newer drkit" in refused.value.remedy


def test_a_creation_that_died_halfway_is_finished_by_the_next(cassandra_url):
    broken = (TABLES[0], "CREATE TABLE {keyspace}.mapping (x int PRIMARY KEY)")
    with closing(CassandraSession(parse_cassandra_url(cassandra_url))) as session:
        with pytest.raises(DrkitError, match="Cassandra refused"):
            bring_up(session, create=True, tables=broken)
        assert kept_version(session) == 0
    open_store(cassandra_url).close()


def test_a_backup_of_either_backend_is_restored_into_the_other(cassandra_url, tmp_path):
    """Everything that `fill_store` knows of, from SQLite to Cassandra and back."""
    first = tmp_path / "first.gz"
    with closing(open_whole_store(f"sqlite:///{tmp_path}/one.db")) as store:
        contents = fill_store(store)
        write_backup(store, first, backend="sqlite")
    with closing(open_whole_store(cassandra_url)) as store:
        assert not holds_something(store)
        restore(store, read_backup(first), [])
        assert holds_something(store)
        assert contents_of(store) == contents
        made = write_backup(store, tmp_path / "second.gz", backend="cassandra")
        assert store.next_generation(FILLED) > 41, "old fences and claims stay old"
        store.remove_all()
        assert not holds_something(store)
        restore(store, made, [])
        assert contents_of(store) == contents
    with closing(open_whole_store(f"sqlite:///{tmp_path}/two.db")) as store:
        restore(store, made, [])
        assert contents_of(store) == contents
        assert store.next_generation(FILLED) > 41


# ---- what doesn't answer ---------------------------------------------------------------------------------


def test_a_wrong_data_centre_is_told_with_those_that_exist(cassandra_url):
    with pytest.raises(ConfigError, match="no data centre 'mars'") as raised:
        open_store(cassandra_url.replace("dc=datacenter1", "dc=mars"))
    assert "datacenter1" in raised.value.remedy


def test_no_node_there_names_the_hosts_and_not_the_password():
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 keyspace drkit can't be reached") as raised:
        open_store("cassandra://drkit:s3cret@127.0.0.1:1/drkit?dc=dr&timeout=2")
    assert "s3cret" not in str(raised.value)


def test_a_name_that_does_not_resolve():
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:9042 .* host names can't be resolved"):
        open_store("cassandra://no-such-host.invalid/drkit?dc=dr")


def test_nodes_that_accept_and_never_answer_are_given_up_together_in_one_timeout():
    """As frozen ones do: a stopped process, behind a kernel that takes connections."""
    with ExitStack() as frozen:
        port = 0
        hosts = [f"127.0.0.{last}" for last in range(2, 17)]  # one after the other would take 30 s
        for host in hosts:
            listening = frozen.enter_context(socket.create_server((host, port)))
            port = listening.getsockname()[1]
        opened = Future[Store]()

        def connect() -> None:
            try:
                opened.set_result(open_store(f"cassandra://{','.join(hosts)}:{port}/drkit?dc=dr&timeout=2"))
            except DrkitError as error:
                opened.set_exception(error)

        Thread(target=connect, daemon=True).start()
        with pytest.raises(Unreachable, match=r"can't be reached: .*no answer within 2 s"):
            opened.result(15)


def test_a_dropped_table_is_an_error_and_no_trace(cassandra_url, link):
    with closing(open_store(cassandra_url)) as store:
        store._session.change_schema(f"DROP TABLE {parse_cassandra_url(cassandra_url).keyspace}.mapping")
        with pytest.raises(DrkitError, match="Cassandra refused the request"):
            store.append_mappings(link, [row(1)])


# ---- clocks ------------------------------------------------------------------------------------------------


def test_a_machine_whose_clock_was_ahead_does_not_silence_the_next_one(cassandra_store_url, link):
    location = parse_cassandra_url(cassandra_store_url)
    with (
        closing(open_store(cassandra_store_url)) as right,
        closing(CassandraStore(CassandraSession(location, wall=lambda: time.time() + 3600))) as ahead,
        closing(CassandraStore(CassandraSession(location, wall=lambda: time.time() - 3600))) as behind,
    ):
        for through, store in enumerate((right, behind, ahead, right)):

            def kept(through: int = through, store: Store = store) -> bool:
                store.put_watermarks(link, [mark(through)])
                return right.watermarks(link)[TP].source_through == through

            # the measurement of a wrong clock is some milliseconds wide; uncorrected it would take an hour
            wait_until(kept, timeout=60.0, what=f"watermark {through} to count")


# ---- compare-and-set whose answer is lost --------------------------------------------------------------------


class LostAnswers:
    """Stands before a session's compare-and-set: the first call's answer is lost, after or before it was done."""

    def __init__(self, store: CassandraStore, *, done: bool) -> None:
        self._real = store._session.compare_and_set
        self._done = done
        self.calls = 0
        store._session.compare_and_set = self  # type: ignore[method-assign]  # a fault that no node makes on demand

    def __call__(self, statement, values):
        self.calls += 1
        if self.calls > 1:
            return self._real(statement, values)
        if self._done:
            assert self._real(statement, values)
        raise Unreachable("the answer is lost")


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("expected", [None, 1])
def test_a_change_of_a_link_whose_answer_is_lost_is_read_again_and_decided(store, link, done, expected):
    if expected is not None:
        assert store.set_link_control(LinkControl(link, Direction.ACTIVE, 1, AT), expected_version=None)
    wanted = LinkControl(link, Direction.SEALED, 2, AT, "r", "run", frozenset({"t"}))
    lost = LostAnswers(store, done=done)
    assert store.set_link_control(wanted, expected_version=expected) is True
    assert store.link_control(link) == wanted
    assert lost.calls == (1 if done else 2)


def test_a_change_whose_answer_is_lost_and_that_another_won_is_a_no(store, cassandra_store_url, link):
    theirs = LinkControl(link, Direction.PAUSED, 1, AT, "theirs")
    with closing(open_store(cassandra_store_url)) as other:
        lost = LostAnswers(store, done=False)
        assert other.set_link_control(theirs, expected_version=None)
        assert store.set_link_control(LinkControl(link, Direction.SEALED, 1, AT), expected_version=None) is False
    assert store.link_control(link) == theirs
    assert lost.calls == 1


@pytest.mark.parametrize("done", [True, False])
def test_a_journal_entry_whose_answer_is_lost(store, name, done):
    entry = JournalEntry.chained(None, run=name, at=AT, stage="fence", event="intent", payload="{}")
    LostAnswers(store, done=done)
    assert store.append_entry(entry) is True
    assert store.entries(name) == [entry]
    assert store.append_entry(entry) is False


@pytest.mark.parametrize("done", [True, False])
def test_a_lease_whose_answer_is_lost(store, name, done):
    LostAnswers(store, done=done)
    lease = store.acquire_lease(name, "a", 10, AT)
    assert (lease.owner, lease.epoch) == ("a", 1)
    assert store.lease(name) == lease


@pytest.mark.parametrize("done", [True, False])
def test_breaking_a_lease_whose_answer_is_lost(store, name, done):
    store.acquire_lease(name, "a", 10, AT)
    LostAnswers(store, done=done)
    assert store.break_lease(name, "a") is True
    assert store.lease(name) is None


# ---- a node that stands still, and one that dies ---------------------------------------------------------------


def test_a_node_that_stands_still_is_unreachable_in_the_timeout_and_used_again_afterwards(
    cassandra_lab, cassandra_store_url, link
):
    with closing(open_store(f"{cassandra_store_url}&timeout=1")) as store:
        store.append_mappings(link, [row(1)])
        cassandra_lab.pause("cassandra-1")
        try:
            for call in (
                lambda: store.append_mappings(link, [row(2)]),
                lambda: store.mappings(link, TP, 0),
                lambda: store.set_link_control(LinkControl(link, Direction.ACTIVE, 1, AT), expected_version=None),
            ):
                with pytest.raises(Unreachable, match=r"127\.0\.0\.1:\d+ keyspace contract_"):
                    call()
        finally:
            cassandra_lab.resume("cassandra-1")

        def works() -> bool:
            try:
                store.append_mappings(link, [row(2)])
            except Unreachable:
                return False
            return store.mappings(link, TP, 0) == [row(1), row(2)]

        wait_until(works, what="the store to answer again")


def test_what_was_kept_survives_the_nodes_sigkill_and_the_same_store_goes_on(cassandra_lab, cassandra_store_url, link):
    with closing(open_store(f"{cassandra_store_url}&timeout=5")) as store:
        (sync,) = store._session.row("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'")
        if sync == "periodic":
            pytest.skip("a lone node with commitlog_sync: periodic forgets acknowledged rows when it is killed")
        kept = [row(number) for number in range(500)]
        store.append_mappings(link, kept)
        store.put_watermarks(link, [mark(500)])
        assert store.set_link_control(LinkControl(link, Direction.SEALED, 1, AT), expected_version=None)
        cassandra_lab.kill("cassandra-1")
        try:
            with pytest.raises(Unreachable):
                store.append_mappings(link, [row(500)])
        finally:
            cassandra_lab.restart("cassandra-1")

        def works() -> bool:
            try:
                store.append_mappings(link, [row(500)])
            except Unreachable:
                return False
            return True

        wait_until(works, what="the store to answer again")
        assert store.mappings(link, TP, 0) == [*kept, row(500)]
        assert store.watermarks(link) == {TP: mark(500)}
        control = store.link_control(link)
        assert control is not None
        assert control.direction is Direction.SEALED


def test_two_links_of_one_name_in_either_direction_are_apart(store, link):
    store.append_mappings(link, [row(1)])
    store.append_mappings(LinkId(link.target, link.source), [row(2)])
    store.forget_link_data(LinkId(link.target, link.source))
    assert store.mappings(link, TP, 0) == [row(1)]


def test_watermarks_leave_no_tombstones_however_often_they_are_written(cassandra_store_url, link):
    """Cassandra refuses a read over more than 100,000 tombstones: a null that is written is one."""
    partitions = 40
    location = parse_cassandra_url(cassandra_store_url)
    session = CassandraSession(location)
    with closing(CassandraStore(session)) as store:
        for through in range(3):
            marks = [replace(mark(through), partition=number) for number in range(partitions)]
            marks[0] = replace(marks[0], behind_since=None if through == 2 else AT, leader_epoch=through or None)
            store.put_watermarks(link, marks)
        store.put_problem(link, Problem("k", "t", None, "why", "what", halted=False, since=AT))
        kept = store.watermarks(link)
        assert len(kept) == partitions
        assert (kept[TP].behind_since, kept[TP].leader_epoch) == (None, 2)
        for table, rows in (("watermark", partitions), ("problem", 1)):
            query = f"SELECT * FROM {location.keyspace}.{table} WHERE link = %s"  # noqa: S608  # the test's own names
            trace = session._session.execute(query, (str(link),), trace=True).get_query_trace()
            (read,) = {each.description for each in trace.events if "tombstone cells" in each.description}
            assert read.startswith(f"Read {rows} live rows and 0 tombstone cells"), read
