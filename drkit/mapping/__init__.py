"""Offsets from one side of a link to the other, computed from mapping rows. Pure but for `Translator`.

`translate.py` answers where a source offset is on the target, `resume.py` where a mirror goes on after
it stopped, `invert.py` turns a link's mapping round for failback, `translator.py` does many
translations over a store.
"""

from drkit.mapping.invert import invert_mappings, invert_watermark
from drkit.mapping.resume import ResumeKind, ResumePoint, resume_point
from drkit.mapping.translate import translate
from drkit.mapping.translator import MappingSource, Translator, look_up

__all__ = [
    "MappingSource",
    "ResumeKind",
    "ResumePoint",
    "Translator",
    "invert_mappings",
    "invert_watermark",
    "look_up",
    "resume_point",
    "translate",
]
