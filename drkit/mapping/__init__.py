"""Offsets from one side of a link to the other, computed from mapping rows. Pure except for `Translator`.

`translate.py` answers where a source offset is on the target, and how problems limit the answer; `resume.py` where a
mirror continues after it stopped, and how far the target's log proves that it came; `invert.py` reverses a link's
mapping for failback; `store_translator.py` does many translations over a store.
"""

from drkit.mapping.invert import invert_mappings, invert_watermark
from drkit.mapping.resume import ResumeKind, ResumePoint, resume_point
from drkit.mapping.store_translator import MappingSource, Translator
from drkit.mapping.translate import doubted, heed, translate

__all__ = [
    "MappingSource",
    "ResumeKind",
    "ResumePoint",
    "Translator",
    "doubted",
    "heed",
    "invert_mappings",
    "invert_watermark",
    "resume_point",
    "translate",
]
