"""One drill at a time in a folder of drills, also where there is no store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drkit.drill.results.archive import LEASE, folder_lease
from drkit.model.errors import DrkitError, Refused

ROOT = Path(__file__).parents[4]
HOLDER = """
import sys
from pathlib import Path
from drkit.drill.results.archive import folder_lease
with folder_lease(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_who_drills_is_named_and_its_end_frees_the_folder(tmp_path):
    drills = tmp_path / "state" / "drills"
    command = [sys.executable, "-c", HOLDER, str(drills)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Refused, match=f"pid {holder.pid} ") as refused, folder_lease(drills):
            pass
        assert "--drills" in refused.value.remedy
        with folder_lease(tmp_path / "other"):
            pass
        holder.kill()
        holder.wait(30)
    with folder_lease(drills):
        assert f"pid {os.getpid()} " in (drills / LEASE).read_text()
    with folder_lease(drills):
        pass


def test_a_folder_that_can_not_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DrkitError, match="can't be written"), folder_lease(tmp_path / "file" / "drills"):
        pass
