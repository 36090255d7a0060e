"""What drkit writes is for its owner alone, whatever the umask; programs of the user's own keep the user's."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from drkit.cli.views.audit_report import write_report
from drkit.failover.plan.failover_plan import write_plan
from drkit.failover.plan.site_plan import write_site_plan
from drkit.store import open_whole_store
from drkit.store.backup import write_backup
from tests.support.commands.bad_input import CONFIG
from tests.unit.failover.plan.test_plan import a_plan
from tests.unit.failover.site.test_site_plan import a_site_plan

DRILL = """\
import sys
from datetime import UTC, datetime
from pathlib import Path
from drkit.drill.experiment.reader import load_experiment
from drkit.drill.results.archive import Drills, new_run
from drkit.drill.results.recording import begin_in_chain, write_experiment, write_history, write_origin
from drkit.drill.runner import no_histories
from drkit.model.process import keep_private
from tests.support.drills.drill_results import result_of
keep_private()
drills, file = Drills(Path("state/drills")), load_experiment(Path(sys.argv[1]))
run = new_run(datetime(2026, 11, 20, 4, 3, tzinfo=UTC))
folder = drills.begin(run, file.path)
begin_in_chain(drills.path, run, "t", datetime(2026, 11, 20, 4, 3, tzinfo=UTC))
write_experiment(folder, file)
write_origin(folder, run, witness=None, began=0.0)
write_history(folder, no_histories(file.experiment), interrupted=None)
drills.keep(result_of(run, folder))
"""
HOOK = """\
import os, sys
from drkit.model.clock import Deadline
from drkit.directory.command import run_bounded
from drkit.model.process import keep_private
keep_private()
open("ours", "w").close()
os.mkdir("folder")
run_bounded([sys.executable, "-c", "open('theirs', 'w').close()"], {}, "", Deadline.after(30))
"""


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_a_store_that_a_command_makes_is_its_owners(tmp_path: Path) -> None:
    (tmp_path / "drkit.toml").write_text(CONFIG)
    store = open_whole_store(f"sqlite:///{tmp_path}/other.db")
    try:
        write_backup(store, tmp_path / "backup", backend="sqlite")
    finally:
        store.close()
    done = subprocess.run(
        [sys.executable, "-m", "drkit", "store", "restore", "--from", "backup"],
        cwd=tmp_path,
        env={**os.environ, "DRKIT_CONFIG": str(tmp_path / "drkit.toml")},
        umask=0,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert modes(tmp_path)["drkit.db"] == 0o600


def test_a_plan_is_its_owners_whatever_file_was_there(tmp_path: Path) -> None:
    """`--dry-run --out`, of one link and of a site."""
    before = os.umask(0)
    try:
        for name, write in (("link", write_plan), ("site", write_site_plan)):
            (tmp_path / f"{name}-again").write_text("an older plan, which everybody may read and write")
            for file in (tmp_path / name, tmp_path / f"{name}-again"):
                write(a_plan() if name == "link" else a_site_plan(), file)
    finally:
        os.umask(before)
    assert modes(tmp_path) == dict.fromkeys(("link", "link-again", "site", "site-again"), 0o600)


def test_an_audits_report_is_its_owners(tmp_path: Path) -> None:
    """It shows what is in records."""
    (tmp_path / "report.html").touch(0o666)
    write_report(tmp_path / "report.html", "<p>key</p>")
    assert modes(tmp_path) == {"report.html": 0o600}


def test_what_a_drill_keeps_is_its_owners(tmp_path: Path) -> None:
    experiment = Path(__file__).parents[4] / "chaos" / "primary-lost.yaml"
    copied = tmp_path / "x.yaml"
    copied.write_text(experiment.read_text())
    copied.chmod(0o644)
    subprocess.run(
        [sys.executable, "-c", DRILL, str(copied)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        umask=0,
        check=True,
        timeout=120,
    )
    made = [path for path in tmp_path.rglob("*") if path != copied]
    assert {"result.json", "origin.json", "experiment.yaml", "history.json"} <= {path.name for path in made}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}


def test_a_hook_has_the_umask_that_drkit_was_started_with(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", HOOK], cwd=tmp_path, umask=0o022, check=True, timeout=60)
    assert modes(tmp_path) == {"ours": 0o600, "folder": 0o700, "theirs": 0o644}
