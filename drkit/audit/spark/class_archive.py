"""An archive of the classes that Spark's JVM loads (application class-data sharing): it halves the CPU of a start.

The first session on a machine lists the classes that it loads; when it ends, a JVM at the lowest priority makes the
archive of them, beside whatever comes next. It is kept in drkit's cache, some 110 MB, and used by every later session.
A JVM that it doesn't fit (another Java, other jars) ignores it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drkit.config.cache import cache_dir

_CLASSES = "classes.lst"
_STALE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive for this Java and these jars is, or will be."""

    java: Path
    class_path: str
    path: Path

    @classmethod
    def of(cls, java_home: Path, jars: Path) -> ClassArchive:
        """The archive for a JAVA_HOME and a folder of jars."""
        java = java_home / "bin" / "java"
        known = [str(java.resolve()), str(jars.resolve())]
        for each in (java, jars):
            with suppress(OSError):
                known.append(str(each.stat().st_mtime_ns))
        name = hashlib.sha256("\0".join(known).encode()).hexdigest()[:16]
        return cls(java, str(jars / "*"), cache_dir() / f"spark-classes-{name}.jsa")

    def options(self, folder: Path) -> list[str]:
        """What a JVM is started with: to use the archive, or where there is none, to list classes into the folder."""
        if self.path.is_file():
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto"]
        return [f"-XX:DumpLoadedClassList={folder / _CLASSES}"]

    def make(self, folder: Path) -> None:
        """Have the archive made of what a JVM has listed, where it listed anything; returns at once."""
        listed = folder / _CLASSES
        if self.path.is_file() or not listed.is_file():
            return
        with suppress(OSError):  # no room, or no such cache: the next session starts as slowly as this one
            for old in self.path.parent.glob(f"{self.path.stem}.*"):
                if time.time() - old.stat().st_mtime < _STALE_SECONDS:
                    return  # another process is at it
                old.unlink()
            classes = self.path.with_suffix(f".{os.getpid()}.classes")  # nobody else's, should two be at it after all
            partial = self.path.with_suffix(f".{os.getpid()}.partial")
            shutil.copyfile(listed, classes)
            dump = ["nice", "-n", "19", str(self.java), "-Xshare:dump", "-XX:+UseSerialGC"]
            dump += [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={partial}", "-cp", self.class_path]
            moved = f"mv -f {shlex.quote(str(partial))} {shlex.quote(str(self.path))}"
            left = f"rm -f {shlex.quote(str(classes))} {shlex.quote(str(partial))}"
            script = f"({shlex.join(dump)} && {moved}; {left}) </dev/null >/dev/null 2>&1 &"
            subprocess.run(["/bin/sh", "-c", script], check=False, cwd="/", start_new_session=True)
