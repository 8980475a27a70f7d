"""What numba finds anew at each place, or in each round of inference, kept for as long as a kernel is compiled.

docs/decisions.md has what each part of this saves.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from llvmlite.binding import ffi  # type: ignore[import-untyped]  # it has no types
from numba.core import base, postproc, transforms, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.decorators import jit
from numba.core.types.containers import UniTuple
from numba.core.types.functions import BaseFunction, Function
from numba.core.types.misc import SliceType
from numba.core.types.npytypes import Array
from numba.core.typing.context import Context
from numba.core.typing.templates import _OverloadFunctionTemplate

from longcrawl.kernels.lowering import NO_ENTRIES, OPTIONS, PartCompiler


@contextmanager
def _replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
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
        replacements: list[tuple[Any, str, Any]] = [
            (Function, "get_call_type", _kept_call_types()),
            (Context, "resolve_value_type", _operators_first()),
            (_OverloadFunctionTemplate, "_get_jit_decorator", _as_parts),
            (base, "_has_loc", cache(base._has_loc)),  # noqa: SLF001  # numba has no other place for it, here and below
            (ffi.lib._lock, "_cblist", []),  # noqa: SLF001  # numba times each call of LLVM
            (postproc.PostProcessor, "run", _post_process),
            *((context, "load_additional_registries", _loaded_once(context)) for context in (CPUContext, Context)),
        ]
        for owner, name, replacement in replacements:
            stack.enter_context(_replaced(owner, name, replacement))
        yield


_PLAIN_TYPES = (types.Number, types.Boolean, Array, UniTuple, SliceType)


def _is_operator(function: Any) -> bool:
    return getattr(function, "__module__", None) == "_operator"


def _kept_call_types() -> Callable[..., Any]:
    """Keep what an operator does with numbers and arrays."""
    kept = dict[tuple[int, int, tuple[Any, ...]], tuple[Any, Any]]()

    def resolve(self: Any, context: Any, given: tuple[Any, ...], named: Any) -> Any:
        is_plain = self.typing_key is bool or _is_operator(self.typing_key)
        if not is_plain or not all(isinstance(each, _PLAIN_TYPES) for each in given):
            return BaseFunction.get_call_type(self, context, given, named)
        key = id(self), id(context), given
        if key not in kept:  # what is kept holds the function, so that no other one gets its number
            kept[key] = self, BaseFunction.get_call_type(self, context, given, named)
        return kept[key][1]

    return resolve


def _operators_first() -> Callable[..., Any]:
    """Look operators up, which numba takes for values first, and writes an error each time."""
    resolve = Context.resolve_value_type

    def resolve_operator(self: Any, value: Any) -> Any:
        found = self._get_global_type(value) if _is_operator(value) else None
        return resolve(self, value) if found is None else found

    return resolve_operator


def _as_parts(_: Any) -> Callable[..., Any]:
    """Compile what numba has of its own, ``max`` or ``np.empty``, as parts of kernels, and not as kernels."""
    return lambda **options: jit(**(OPTIONS | NO_ENTRIES | options), pipeline_class=PartCompiler)


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
