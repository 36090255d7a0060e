from pathlib import Path

from drkit.files import sha256_of, write_atomically


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
