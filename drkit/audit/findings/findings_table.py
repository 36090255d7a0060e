"""Findings in a table of one of Spark's catalogs (`--findings-table`): each audit appends, so a trend is one query.

Any catalog that the session knows will do: one of `spark.sql.catalog.NAME` (Iceberg, JDBC …), or Hive's as the
session's own. A table that isn't there is made, partitioned by link and topic where its catalog can.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from drkit.audit.findings.findings_files import PARTITIONS, SCHEMA
from drkit.audit.spark.failures import causes, in_words
from drkit.audit.spark.session import SparkRuntime, is_own, spark_session
from drkit.audit.spark.spark_progress import describe
from drkit.model.errors import Refused

_SESSION_CATALOG = "spark_catalog"


def check_table(table: str, runtime: SparkRuntime) -> None:
    """See ahead of an audit that its findings can be appended to a table.

    Raises:
        Refused: its catalog isn't known, forgets its tables with the session, or the table has other columns.
        DrkitError: Spark doesn't start, or the catalog doesn't answer.
    """
    session = spark_session(runtime)
    with in_words("looking at the findings' table"):
        describe(session, f"audit: looking at {table}")
        _refuse_forgotten(table, session)
        if not _exists(session, table):
            return
        there = {name.lower() for name in session.table(table).columns}
    missing = sorted(set(SCHEMA.fieldNames()) - there)
    if missing:
        raise Refused(
            f"--findings-table {table}: the table has no column {', '.join(missing)}",
            meaning="It is another kind of table, or was made by another version of drkit",
            remedy="Name another table, or one that isn't there yet: it is made with the columns of docs/audit.md",
        )


def append_findings(paths: Sequence[str], table: str, runtime: SparkRuntime) -> int:
    """Append the findings of audits to a table; returns how many they are.

    Args:
        paths: the findings' Parquet of each.
        table: as Spark SQL names it.
        runtime: the session's; the same that made the audits.

    Raises:
        DrkitError: the table can't be written.
    """
    session = spark_session(runtime)
    names = SCHEMA.fieldNames()
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in SCHEMA)
    rows = None
    with in_words(f"writing findings to {table}"):
        describe(session, f"audit: writing findings to {table}")
        for path in paths:
            found = session.read.schema(columns).parquet(Path(path).as_uri()).select(*names)
            rows = found if rows is None else rows.unionByName(found)
        if rows is None:
            return 0
        total = rows.count()
        if _exists(session, table):
            _append(session, table, rows)
        else:
            _create(table, rows)
    return total


def _exists(session: SparkSession, table: str) -> bool:
    try:
        return bool(session.catalog.tableExists(table))
    except AnalysisException as error:
        raise Refused(
            f"--findings-table {table}: {_first(error)}",
            remedy="Name it as Spark SQL does (CATALOG.SCHEMA.TABLE), and give its catalog by "
            "--spark-conf spark.sql.catalog.CATALOG=…",
        ) from error


def _refuse_forgotten(table: str, session: SparkSession) -> None:
    """Refuse a table of the session's own catalog where that is in memory only and goes with the session."""
    first, dot, _ = table.partition(".")
    of_session = not dot or first == _SESSION_CATALOG or session.conf.get(f"spark.sql.catalog.{first}", None) is None
    replaced = session.conf.get(f"spark.sql.catalog.{_SESSION_CATALOG}", "builtin") != "builtin"
    in_memory = session.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"
    if of_session and in_memory and not replaced and is_own(session):
        raise Refused(
            f"--findings-table {table}: the session's own catalog is in memory, and ends with this command",
            meaning="The table would be gone with it",
            remedy="Give a catalog by --spark-conf spark.sql.catalog.NAME=… and name the table NAME.SCHEMA.TABLE, or "
            "use Hive's (--spark-conf spark.sql.catalogImplementation=hive)",
        )


def _append(session: SparkSession, table: str, rows: DataFrame) -> None:
    columns = {name.lower(): name for name in session.table(table).columns}
    rows = rows.select(*(rows[name].alias(columns[name]) for name in SCHEMA.fieldNames()))
    try:
        rows.writeTo(table).append()
    except AnalysisException as error:
        if "v1 table" not in str(error):
            raise
        rows.select(*session.table(table).columns).write.insertInto(table)  # Hive's, and files of the session's catalog


def _create(table: str, rows: DataFrame) -> None:
    try:
        rows.writeTo(table).partitionedBy(*map(F.col, PARTITIONS)).create()
    except PySparkException as error:
        if "partition" not in str(error).lower():
            raise
        rows.writeTo(table).create()  # JDBC's, for one, has no partitions


def _first(error: BaseException) -> str:
    return (causes(error) or [str(error)])[0]
