"""A host with a systemd of its own: this machine's files below an overlay, booted by systemd-nspawn.

It shares this machine's network, so the lab's brokers are its brokers, and this machine's Python. Everything else
(processes, users, units, what is written) is its own: overlay and processes are in namespaces that end with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parents[3]
SOURCE = "/srv/drkit"
"""Where the host has this repository, read-only."""
_INIT = Path("/usr/lib/systemd/systemd")
_PYTHON = "/usr/bin/python3"
"""The units hide the homes, so it is none of a user's own."""
_BOOT_SECONDS = 120.0
_PACKAGES = "/srv/packages"
_INSTALL = f"""\
set -e
{_PYTHON} -m venv --without-pip /opt/drkit
cat > /opt/drkit/bin/drkit <<'SCRIPT'
#!/opt/drkit/bin/python
from drkit.cli.main import main
main()
SCRIPT
chmod 755 /opt/drkit/bin/drkit
cd /opt/drkit/lib/python3*/site-packages
printf '%s\\n' {SOURCE} {_PACKAGES} > drkit.pth
"""
"""drkit at /opt/drkit: this repository's, with the packages that the tests run with (`test_install.py`: a wheel's)."""
_BOOT = f"""\
set -e
mount -t overlay overlay -o lowerdir=/,upperdir="$1/upper",workdir="$1/work" "$1/root"
cd "$1/root"
rm -rf etc/systemd/system etc/init.d etc/rc?.d etc/fstab etc/machine-id opt/drkit etc/drkit var/lib/drkit
mkdir -p etc/systemd/system
: > etc/machine-id
sed -i /^drkit:/d etc/passwd etc/group etc/shadow
exec systemd-nspawn --quiet --boot --directory "$1/root" --machine "$2" --register=no --keep-unit --console=pipe \\
  --link-journal=no --resolv-conf=off --timezone=off --bind-ro="$3:{SOURCE}" --bind-ro="$4:{_PACKAGES}"
"""
"""The services of this machine aren't started there; neither is a drkit that it may have."""


@dataclass(frozen=True, slots=True)
class SystemdHost:
    """A host that has booted; `leader` is its systemd's process id on this machine."""

    leader: int

    def run(self, *words: str, folder: str = "/") -> subprocess.CompletedProcess[str]:
        """A command as its root."""
        enter = ["nsenter", "--target", str(self.leader), "--all", "--wd=" + f"/proc/{self.leader}/root"]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        inside = ["sh", "-c", 'cd "$0" && exec "$@"', folder, *words]
        return subprocess.run(
            [*enter, *inside], env=environment, capture_output=True, text=True, check=False, timeout=400
        )

    def done(self, *words: str, folder: str = "/") -> str:
        """The same; what it says, once it ended with 0."""
        ended = self.run(*words, folder=folder)
        assert ended.returncode == 0, f"{words}: {ended.returncode}\n{ended.stdout}{ended.stderr}{self.journal()}"
        return ended.stdout

    def unit(self, name: str) -> dict[str, str]:
        """A unit's properties."""
        lines = self.done("systemctl", "show", name).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def journal(self, unit: str = "drkit-*") -> str:
        """What these units and systemd itself said of them."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout

    def write(self, path: str, text: str) -> None:
        """A file of the host."""
        inside = Path(f"/proc/{self.leader}/root", path.lstrip("/"))
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_text(text)


def _why_not() -> str:
    """Why none can be booted here; "" where nothing speaks against it."""
    if sys.platform != "linux" or os.geteuid():
        return "only root boots one"
    for program in ("systemd-nspawn", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not _INIT.exists():
        return f"there is no {_INIT}"
    asked = "import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))"
    if (
        not Path(_PYTHON).exists()
        or subprocess.run([_PYTHON, "-c", asked], capture_output=True, check=False).returncode
    ):
        return f"{_PYTHON} is no Python 3.11 to 3.13 with venv"
    return ""


@contextmanager
def systemd_host(folder: Path) -> Iterator[SystemdHost]:
    """Boot one with drkit at /opt/drkit; what it writes is below `folder`. Skips with the reason where it can't be."""
    if why := _why_not():
        pytest.skip(f"no host with systemd can be booted here: {why}")
    for name in ("upper", "work", "root"):
        (folder / name).mkdir()
    log = folder / "boot.log"
    # with them its systemd needs no controllers of this machine's
    environment = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    boot = [
        *namespaces,
        "sh",
        "-c",
        _BOOT,
        "boot",
        str(folder),
        f"drkit-{os.getpid()}",
        str(ROOT),
        sysconfig.get_path("purelib"),
    ]
    with log.open("w") as said:
        process = subprocess.Popen(boot, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        wait_until(lambda: process.poll() is not None or _booted(process.pid), _BOOT_SECONDS, "the boot or its end")
        host = _booted(process.pid)
        if host is None:
            pytest.skip(f"systemd does not boot here: {log.read_text()[-500:]}")
        host.done("sh", "-c", _INSTALL)
        yield host
    finally:
        process.kill()
        process.wait()


def _booted(process: int) -> SystemdHost | None:
    """The host that this process is booting, once its systemd has started what it starts."""
    try:
        below = psutil.Process(process).children(recursive=True)
        leaders = [each.pid for each in below if each.exe() == str(_INIT)]
    except psutil.NoSuchProcess:
        return None
    for host in map(SystemdHost, leaders[:1]):
        # degraded: a service of this machine's that none here needs has failed
        if host.run("systemctl", "is-system-running").stdout.strip() in {"running", "degraded"}:
            return host
    return None
