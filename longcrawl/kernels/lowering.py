"""How numba compiles kernels: its compiler without what they do not need, in 0.7 of its CPU time.

docs/decisions.md has what each part of this saves.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from numba.core import analysis, cgutils, ir, postproc, transforms, typed_passes, types, untyped_passes
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.cpu import CPUContext
from numba.core.lowering import Lower
from numba.core.types.containers import UniTuple
from numba.core.types.functions import BaseFunction, Function
from numba.core.types.misc import SliceType
from numba.core.types.npytypes import Array
from numba.core.typing.context import Context


@contextmanager
def _replaced(owner: Any, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    before = vars(owner).get(name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if before is None:  # it is that of its base
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def found_once() -> Iterator[None]:
    """Keep what numba finds anew at each place, or in each round of inference, for as long as a kernel is compiled."""
    with global_compiler_lock, ExitStack() as stack:
        # Made with the lock: another thread may have replaced the same.
        replacements: list[tuple[Any, str, Callable[..., Any]]] = [
            (Function, "get_call_type", _kept_call_types()),
            (postproc.PostProcessor, "run", _post_process),
            *((context, "load_additional_registries", _loaded_once(context)) for context in (CPUContext, Context)),
        ]
        for owner, name, replacement in replacements:
            stack.enter_context(_replaced(owner, name, replacement))
        yield


_PLAIN_TYPES = (types.Number, types.Boolean, Array, UniTuple, SliceType)


def _kept_call_types() -> Callable[..., Any]:
    """Keep what an operator does with numbers and arrays."""
    kept = dict[tuple[int, int, tuple[Any, ...]], tuple[Any, Any]]()

    def resolve(self: Any, context: Any, given: tuple[Any, ...], named: Any) -> Any:
        is_operator = self.typing_key is bool or getattr(self.typing_key, "__module__", None) == "_operator"
        if not is_operator or not all(isinstance(each, _PLAIN_TYPES) for each in given):
            return BaseFunction.get_call_type(self, context, given, named)
        key = id(self), id(context), given
        if key not in kept:  # what is kept holds the function, so that no other one gets its number
            kept[key] = self, BaseFunction.get_call_type(self, context, given, named)
        return kept[key][1]

    return resolve


def _loaded_once(context: Any) -> Callable[..., None]:
    """Import all that can be compiled at the first time only; numba does so for each call of a function.

    What an intrinsic does is registered when it is first typed, so what is new in known registries is always taken in.
    """
    load, loaded = context.load_additional_registries, set[int]()

    def load_once(self: Any) -> None:
        # Each function is lowered with a copy of the context. These share their registries, which outlive them.
        if id(self._registries) in loaded:
            for registry in tuple(self._registries):
                self.install_registry(registry)
        else:
            load(self)
            loaded.add(id(self._registries))

    return load_once


_process_fully = postproc.PostProcessor.run


def _post_process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:  # noqa: FBT001, FBT002  # numba's
    """Put blocks in order; which variables live where is asked for generators, and where references are counted."""
    if emit_dels or self.func_ir.is_generator:
        _process_fully(self, emit_dels, extend_lifetimes)
        return
    self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)
    self.func_ir.variable_lifetime = postproc.VariableLifetime(self.func_ir.blocks)
    self.func_ir.generator_info = None


class _Lower(Lower):  # type: ignore[misc]  # it has no types
    """Keeps what is assigned once as a value of LLVM, where no references are counted.

    numba does so for what is used in one block alone. All else is in memory: a named tuple of arrays is stored, and
    loaded as a whole for each of its arrays.
    """

    def _find_singly_assigned_variable(self) -> None:
        if self.context.enable_nrt or self.generator_info:
            super()._find_singly_assigned_variable()
            return
        blocks, assigned, used = self.func_ir.blocks, defaultdict(list), defaultdict(list)
        for label, block in blocks.items():
            for statement in block.find_insts(ir.Assign):
                assigned[statement.target.name].append(label)
        for label, names in analysis.compute_use_defs(blocks).usemap.items():
            for name in names:
                used[name].append(label)
        before = analysis.compute_cfg_from_blocks(blocks).dominators()
        in_memory = analysis.must_use_alloca(blocks)
        self._blk_local_varmap: dict[str, Any] = {}
        self._singly_assigned_vars = {
            name
            for name, (first, *others) in assigned.items()
            if not others
            and name not in in_memory
            # Blocks are lowered by label.
            and all(first < label and first in before[label] for label in used[name])
        }

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:  # noqa: ARG002  # numba's
        """Make room for a variable, without asking LLVM for its size, which debugging alone needs."""
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Store a variable, without loading what it was where no references to that are counted."""
        if self.context.enable_nrt:
            super().storevar(value, name, argidx)
        elif name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self._alloca_var(name, self.typeof(name))
            self.builder.store(value, self.getvar(name))


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.BaseNativeLowering):  # type: ignore[misc]  # it has no types
    _name = "longcrawl_lowering"
    lowering_class = _Lower


class KernelCompiler(Compiler):  # type: ignore[misc]  # it has no types
    """Leaves out passes that are about lists and arrays which a kernel makes, where it makes none."""

    def define_pipelines(self) -> list[Any]:
        """Return what is done one after the other."""
        of_made = {
            untyped_passes.InlineClosureLikes,
            typed_passes.InlineOverloads,
            typed_passes.NopythonRewrites,
            typed_passes.IRLegalization,
        }
        unused = set() if self.state.flags.nrt else of_made
        found = DefaultPassBuilder.define_nopython_pipeline(self.state)
        left = [(each, about) for each, about in found.passes if each not in unused]
        found.passes = [(_Lowering if each is typed_passes.NativeLowering else each, about) for each, about in left]
        return [found]
