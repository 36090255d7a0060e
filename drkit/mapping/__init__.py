"""Offsets from one side of a link to the other, computed from mapping rows. Pure except for `Translator`.

`translate.py` answers where a source offset is on the target, `doubts.py` what problems take away from that,
`resume.py` where a mirror continues after it stopped, `invert.py` turns a link's mapping round for failback,
`translator.py` does many translations over a store.
"""

from drkit.mapping.invert import invert_mappings, invert_watermark
from drkit.mapping.resume import ResumeKind, ResumePoint, resume_point
from drkit.mapping.store_translator import MappingSource, Translator
from drkit.mapping.translate import translate
from drkit.mapping.translation_problems import heed

__all__ = [
    "MappingSource",
    "ResumeKind",
    "ResumePoint",
    "Translator",
    "heed",
    "invert_mappings",
    "invert_watermark",
    "resume_point",
    "translate",
]
