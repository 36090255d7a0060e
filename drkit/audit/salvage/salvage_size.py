"""How Spark joins and writes a salvage, by its number of records.

A failback at night salvages a few thousand records, and what takes time then is the number of Spark's jobs: each
shuffle is one or two. So what is little goes to one task, and to every task that joins with it; only what is much is
shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_FEW = 100_000
_RECORDS_A_FILE = 1_000_000


@dataclass(frozen=True, slots=True)
class SalvageSize:
    """A salvage of so many records."""

    records: int

    @property
    def few(self) -> bool:
        """Whether one task can take them all."""
        return self.records <= _FEW

    def beside(self, frame: DataFrame) -> DataFrame:
        """A frame of at most a row a record, to be joined with a longer one."""
        return F.broadcast(frame) if self.few else frame

    def together(self, frame: DataFrame) -> DataFrame:
        """A frame of about a row a record, to be summed up."""
        return frame.coalesce(1) if self.few else frame

    def spread(self, frame: DataFrame, *columns: str) -> DataFrame:
        """The records as they are written, those of equal columns together."""
        return frame.coalesce(1) if self.few else frame.repartition(-(-self.records // _RECORDS_A_FILE), *columns)
