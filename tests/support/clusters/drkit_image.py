"""drkit's own images, the base one and that with all extras, built as `deploy/Dockerfile` says; skipped with the reason
where they can't be.

`TEST_BASE_IMAGE` names the base (default: the Dockerfile's); `TEST_WHEELS` a folder of wheels for a build that reaches
no package index (deploy/Dockerfile says what is in it).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from tests.support.clusters.containers import ROOT

_BUILD_SECONDS = 900


@pytest.fixture(scope="session")
def drkit_image(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the base image, which is removed at the end."""
    with _built(engine, tmp_path_factory.mktemp("context")) as name:
        yield name


@pytest.fixture(scope="session")
def drkit_all_image(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same of the image with all extras: for audits, failbacks and drills."""
    with _built(engine, tmp_path_factory.mktemp("context"), EXTRAS="[all]") as name:
        yield name


@contextmanager
def _built(engine: docker.DockerClient, folder: Path, **arguments: str) -> Iterator[str]:
    """An image built with these build arguments, from a context that is made in `folder`."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    base = os.environ.get("TEST_BASE_IMAGE") or re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)[0]
    try:
        engine.images.get(base)
    except docker.errors.ImageNotFound:
        if os.environ.get("TEST_PULL") != "1":
            pytest.skip(f"the container engine has no image {base} to build on: TEST_BASE_IMAGE names another one")
        engine.images.pull(base)
    if shutil.which("docker") is None:
        pytest.skip("the engine answers, but its command line isn't installed")
    context = _context(folder, text)
    name = f"drkit-test:{uuid.uuid4().hex[:12]}"
    given = [word for key, value in {"BASE": base, **arguments}.items() for word in ("--build-arg", f"{key}={value}")]
    build = ["docker", "build", "--file", "deploy/Dockerfile", "--tag", name, *given, "."]
    done = subprocess.run(build, cwd=context, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS)
    said = done.stdout + done.stderr
    offline = "Could not find a version" in said and "TEST_WHEELS" not in os.environ
    if done.returncode and offline:
        pytest.skip("the build reached no package index: TEST_WHEELS names a folder of wheels (deploy/Dockerfile)")
    assert done.returncode == 0, said[-4000:]
    try:
        yield name
    finally:
        engine.images.remove(name, force=True)


def _context(folder: Path, dockerfile: str) -> Path:
    """What the image is made from, with the wheels that the build is given."""
    sources = {
        word for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE) for word in line.split()[:-1]
    }
    for source in sources - {"wheel[s]"}:
        there = folder / source
        there.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, there, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, there)
    (folder / "deploy").mkdir()
    for file in ("Dockerfile", "Dockerfile.dockerignore"):
        shutil.copy(ROOT / "deploy" / file, folder / "deploy")
    if wheels := os.environ.get("TEST_WHEELS"):
        shutil.copytree(wheels, folder / "wheels")
    return folder
