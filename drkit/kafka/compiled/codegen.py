"""The kernel as machine code.

Numba and LLVM take 150 MB and seconds, which drkit's own processes shouldn't; the machine code takes 5 KB. It is cut
down to one function each that asks nothing of the interpreter, calls nothing and refers to nothing outside itself, so
that it runs wherever its bytes lie. That this is so is checked here: whoever loads it would else call into nothing.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm

from drkit.kafka.compiled import kernel
from drkit.kafka.compiled.kept import Code

_INTRINSIC = "llvm."
_OUTSIDE = (b".rel", b".rodata", b".lrodata", b".data", b".bss")
"""What the sections are called that a function would need beside its own code."""


def built() -> Code:
    """The kernel's functions for this machine.

    Raises:
        RuntimeError: one needs something that isn't in it.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return Code(_alone(kernel.join), _alone(kernel.renumber))


def _alone(function: Any) -> bytes:
    """The machine code of one function, all that it calls inside it."""
    module = llvm.parse_assembly(function.inspect_llvm().replace("noinline", "alwaysinline"))
    for each in module.functions:
        if not each.is_declaration and each.name != function.native_name:
            each.linkage = "internal"
            each.add_function_attribute("alwaysinline")
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="small",
    )
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    names = {each.name for each in module.functions} - {function.native_name}
    if calls := [name for name in names if not name.startswith(_INTRINSIC)]:
        raise RuntimeError(f"{function.__name__} calls {', '.join(calls)}")
    texts, others = [], []
    for section in llvm.ObjectFileRef.from_data(machine.emit_object(module)).sections():
        if section.is_text() and section.size():
            texts.append(section.data())
        elif (section.name() or b"").startswith(_OUTSIDE):
            others.append(section.name().decode())
    if len(texts) != 1 or others:
        raise RuntimeError(f"{function.__name__} needs {', '.join(others) or 'more than one section'}")
    code: bytes = texts[0]
    return code
