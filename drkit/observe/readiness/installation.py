"""Whether this installation can do what a failover is followed by: its audit, and the failback."""

from __future__ import annotations

from drkit.config.extras import Extra, require
from drkit.lab.toolchain.java import find_java_home
from drkit.model.errors import DrkitError
from drkit.observe.readiness.check import Check, CheckOutcome

_NAME = "installation"


def installation() -> Check:
    """Whether Spark and a Java that it runs on are installed here. A failover needs neither, so none is a warning."""
    try:
        require(Extra.SPARK, "an audit, a failback or a reprotect from here")
        find_java_home()
    except DrkitError as error:
        return Check(_NAME, CheckOutcome.WARN, f"{error.what}; a failover needs none of it", error.remedy)
    return Check(_NAME, CheckOutcome.OK, "Spark and Java are installed: audits and failbacks can run here")
