import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.files import sha256_of, write_atomically, write_private


@pytest.fixture
def open_umask() -> Iterator[None]:
    """What is made in the test is everybody's, unless its maker sees to it."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("write", [write_private, write_atomically])
def test_a_file_is_its_owners_also_where_there_was_one_that_others_could_read(write, tmp_path: Path):
    write(tmp_path / "new", "secret")
    (tmp_path / "old").write_text("much longer than the new text")
    write(tmp_path / "old", "secret")
    assert {path.read_text() for path in tmp_path.iterdir()} == {"secret"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o622)
    pipe.chmod(0o622)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_private(pipe, "a plan")
        assert os.read(reading, 100) == b"a plan"
    finally:
        os.close(reading)
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o622


def test_a_reader_never_sees_half_a_file(tmp_path: Path):
    path = tmp_path / "sub" / "file"
    write_atomically(path, "one")
    write_atomically(path, "two", mode=0o755)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o755
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_file_is_known_by_its_bytes(tmp_path: Path):
    write_atomically(tmp_path / "file", b"abc")
    assert sha256_of(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
