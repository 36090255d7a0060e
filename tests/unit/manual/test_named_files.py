"""What docstrings and pages name in the tree is there: a file that was moved or renamed takes its mentions along."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILE = re.compile(r"`([\w/.-]+\.py)`")
MODULE = re.compile(r"`(drkit(?:\.[a-z_]\w*)+)(?:\.[A-Z]\w*)?`")
FOLDERS = ("bench", "chaos", "docs", "drkit", "runbooks", "tools")


def texts() -> list[Path]:
    found = [ROOT / "README.md"]
    for folder in FOLDERS:
        found += [each for ending in ("py", "md") for each in sorted((ROOT / folder).rglob(f"*.{ending}"))]
    return [each for each in found if not each.is_symlink()]


def endings(files: list[Path]) -> set[str]:
    """Each file by its path in the tree, and by every end of it: docstrings name a neighbour by its name alone."""
    parts = [each.relative_to(ROOT).parts for each in files]
    return {"/".join(each[begin:]) for each in parts for begin in range(len(each))}


@pytest.fixture(scope="module")
def known() -> set[str]:
    return endings([each for folder in (*FOLDERS, "tests") for each in (ROOT / folder).rglob("*.py")])


def test_every_file_that_is_named_exists(known):
    named = {(each, name) for each in texts() for name in FILE.findall(each.read_text(encoding="utf-8"))}
    assert len(named) > 100
    assert not {(str(each.relative_to(ROOT)), name) for each, name in named if name not in known}


def test_every_module_that_is_named_exists():
    named = {(each, name) for each in texts() for name in MODULE.findall(each.read_text(encoding="utf-8"))}
    named = {(each, name) for each, name in named if (ROOT / "drkit" / name.split(".")[1]).is_dir()}
    assert len(named) > 100
    assert not {(str(each.relative_to(ROOT)), name) for each, name in named if not exists(name)}


def exists(name: str) -> bool:
    """Whether a package, a module, or a name within one is called so."""
    place = ROOT.joinpath(*name.split("."))
    if place.is_dir() or place.with_suffix(".py").is_file():
        return True
    holders = (place.parent.with_suffix(".py"), place.parent / "__init__.py")
    return any(re.search(rf"\b{place.name}\b", each.read_text()) for each in holders if each.is_file())
