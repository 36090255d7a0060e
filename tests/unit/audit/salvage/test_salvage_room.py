"""A salvage that can't be written is refused before any record is read."""

import resource
from contextlib import contextmanager

import pytest

from drkit.audit.salvage.salvage import salvage
from drkit.model.audit.audit_result import AuditRequest
from drkit.model.errors import FolderUnusable
from drkit.model.topology import Link, LinkId


@contextmanager
def no_room():
    """No file of this process may grow: what a full disk, too, says to the first byte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refused(folder):
    request = AuditRequest(link=Link(LinkId("a", "b"), topics=("t",)), out=str(folder))
    with pytest.raises(FolderUnusable, match="can't be used") as caught:
        salvage(request, None, None, None)  # nothing else is looked at
    assert "on a disk with room" in caught.value.remedy


def test_a_full_disk(tmp_path):
    with no_room():
        refused(tmp_path / "salvage")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file" / "salvage")
