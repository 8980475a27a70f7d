"""How kernels are written for LLVM: numba's compiler without what they do not need.

docs/decisions.md has what each part of this saves.
"""

from collections import defaultdict
from collections.abc import Callable
from inspect import signature
from types import SimpleNamespace
from typing import Any

from llvmlite.ir import Function, IRBuilder  # type: ignore[import-untyped]  # it has no types
from llvmlite.ir.instructions import ExtractValue, InsertValue, PhiInstr  # type: ignore[import-untyped]  # as above
from numba.core import analysis, cgutils, ir, typed_passes, types, untyped_passes
from numba.core.codegen import CPUCodegen, JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.types.npytypes import Array
from numba.np.arrayobj import fix_integer_index, load_item, store_item

OPTIONS = {"nopython": True, "nogil": True, "boundscheck": None, "no_cfunc_wrapper": True, "debug": False}
"""With debugging, as NUMBA_DEBUGINFO asks for, numba keeps variables in memory, where ours do not write them."""
NO_ENTRIES = {"no_cpython_wrapper": True}
"""What Python does not call."""
_SCALARS = (types.Number, types.Boolean)
_MAKES_PASSES_FOR_EACH = "llvm_module" not in signature(CPUCodegen._function_pass_manager).parameters  # noqa: SLF001  # numba has no other place for it, here and below
"""Whether numba makes passes for each function of a module, as later versions than 0.61 do."""


class _Builder(IRBuilder):  # type: ignore[misc]  # as above
    """Takes out of a struct the value that was put there, without an instruction.

    numba puts the fields of each array together at the beginning of a function, arrays into the named tuple that a
    kernel hands on, and takes all apart again for each call: of what it wrote for LLVM, half was that.
    """

    def extract_value(self, agg: Any, idx: Any, name: str = "") -> Any:
        """Return a field of a struct, by its number or by one for each level."""
        first, *others = idx if isinstance(idx, (tuple, list)) else [idx]
        put = agg
        while isinstance(put, InsertValue) and put.indices[0] != first:
            put = put.aggregate
        if isinstance(put, InsertValue) and len(put.indices) == 1:
            found = put.value
        else:
            found = super().extract_value(put, first, name)
        return self.extract_value(found, others, name) if others else found


def _drop_unused_structs(function: Function) -> None:
    """Remove what puts structs together and takes them apart for no other instruction."""
    used, waiting = set[int](), list[Any]()
    for block in function.blocks:
        for each in block.instructions:
            if not isinstance(each, (InsertValue, ExtractValue)):
                waiting += [value for value, _ in each.incomings] if isinstance(each, PhiInstr) else each.operands
    while waiting:
        each = waiting.pop()
        if isinstance(each, (InsertValue, ExtractValue)) and id(each) not in used:
            used.add(id(each))
            waiting += each.operands
    for block in function.blocks:
        block.instructions[:] = [
            each for each in block.instructions if not isinstance(each, (InsertValue, ExtractValue)) or id(each) in used
        ]


class _Lower(Lower):  # type: ignore[misc]  # it has no types
    """Keeps what is assigned once as a value of LLVM, where no references are counted.

    numba does so for what is used in one block alone. All else is in memory: a named tuple of arrays is stored, and
    loaded as a whole for each of its arrays.
    """

    def setup_function(self, fndesc: Any) -> None:
        """Begin a function."""
        super().setup_function(fndesc)
        self.builder = _Builder(self.entry_block)
        self.call_helper = self.call_conv.init_call_helper(self.builder)

    def lower_normal_function(self, fndesc: Any) -> None:
        """Write a function that is no generator for LLVM."""
        super().lower_normal_function(fndesc)
        _drop_unused_structs(self.function)

    def _cast(self, variable: Any, kind: Any) -> Any:
        return self.context.cast(self.builder, self.loadvar(variable.name), self.typeof(variable.name), kind)

    def _find_element(self, array: Any, index: Any, signature: Any) -> Any:
        """Return the address of an element of a contiguous array of numbers, None for what numba has to look up."""
        kind, number = signature.args[:2]
        if not isinstance(kind, Array) or not isinstance(number, types.Integer) or self.context.enable_boundscheck:
            return None
        if kind.ndim != 1 or kind.layout != "C" or not isinstance(kind.dtype, _SCALARS):
            return None
        fields, value = self.context.data_model_manager[kind], self._cast(array, kind)
        size = self.builder.extract_value(fields.get(self.builder, value, "shape"), 0)
        place = fix_integer_index(self.context, self.builder, number, self._cast(index, number), size)
        return self.builder.gep(fields.get(self.builder, value, "data"), [place])

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Load an element, of most arrays without writing all that describes them to memory."""
        address = self._find_element(value, index, signature)
        if address is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        found = load_item(self.context, self.builder, signature.args[0], address)
        return self.context.cast(self.builder, found, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Store an element, in most arrays without writing all that describes them to memory."""
        address = self._find_element(target_var, index_var, signature)
        if address is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        kind, given = signature.args[0], signature.args[2]
        value = self.context.cast(self.builder, self._cast(value_var, given), given, kind.dtype)
        return store_item(self.context, self.builder, kind, value, address)

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


class _Part(JITCodeLibrary):  # type: ignore[misc]  # as above
    """What kernels call: LLVM optimizes it, and makes machine code of it, within each kernel alone."""

    codegen = SimpleNamespace(set_env=lambda *_: None)
    """What numba asks to fill in where functions keep Python objects, for printing and for errors about values: parts
    may do neither."""

    def _optimize_functions(self, module: Any) -> None:
        if not _MAKES_PASSES_FOR_EACH:
            super()._optimize_functions(module)
            return
        module.data_layout = self._codegen._data_layout  # noqa: SLF001  # as numba does, but not for what is declared
        for function in module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()  # noqa: SLF001  # as above
                passes.run(function, builder)

    def finalize(self) -> None:
        """Take in what this calls."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)  # noqa: SLF001
        self._finalize_dynamic_globals()
        self._finalized = True


class _PartApart(_Part):
    def add_ir_module(self, module: Any) -> None:
        """Take in a function that LLVM does not put into its callers."""
        for function in module.functions:
            if function.blocks:
                function.attributes.add("noinline")
        super().add_ir_module(module)


class PartCompiler(KernelCompiler):
    """Compiles what kernels call."""

    library = _Part

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile a function as a part of kernels."""
        self.state.library = self.library(self.state.targetctx.codegen(), function.__qualname__)
        return super().compile_extra(function)


class ApartCompiler(PartCompiler):
    """Compiles what kernels call, and keeps it out of its callers."""

    library = _PartApart
