"""The durable memory of drkit: mapping rows, watermarks, group positions, link state, journal.

`api.py` defines the protocols; `sqlite/` and `cassandra/` are the two backends. Open one with
`drkit.store.open_store`.
"""

from drkit.store.api import Store
from drkit.store.open import open_store, open_whole_store

__all__ = ["Store", "open_store", "open_whole_store"]
