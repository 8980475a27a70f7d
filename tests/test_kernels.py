"""What kernels keep on disk."""

import ast
import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite.binding import ffi
from numba.core import base
from numba.core.cpu import CPUContext
from numba.core.postproc import PostProcessor
from numba.core.registry import cpu_target
from numba.core.types.functions import Function
from numba.core.typing.context import Context
from numba.core.typing.templates import _OverloadFunctionTemplate
from numba.cpython import cmathimpl

from longcrawl.kernels import compiling, lookup, phrases
from longcrawl.kernels.compiling import _CachedKernels
from longcrawl.kernels.found_once import found_once
from longcrawl.kernels.kept_arrays import kept_arrays
from longcrawl.kernels.texts import read_only
from longcrawl.text.rpv2 import _kernels as kernels


@given(st.lists(st.integers(-9, 9), max_size=40), st.integers(-11, 11))
def test_a_search_by_halves_counts_as_numpy_does(values, most):
    values = np.sort(np.array(values, np.int64))
    assert lookup.count_up_to(values, most) == np.searchsorted(values, most, "right")


def test_a_kernel_whose_types_have_moved_is_compiled_again(tmp_path):
    # An upgrade leaves what the last version compiled beside the new sources.
    moved = b"clongcrawl.of_an_earlier_version\nLists\n."
    (tmp_path / "kernel.nbi").write_bytes(pickle.dumps(numba.__version__) + moved)
    kept = _CachedKernels(str(tmp_path), "kernel", (1.0, 2))
    assert kept.load(("signature",)) is None
    kept.save(("signature",), "machine code")
    assert kept.load(("signature",)) == "machine code"


def test_two_processes_that_compile_at_the_same_time_keep_their_own_code(tmp_path):
    one, other = (_CachedKernels(str(tmp_path), "kernel", "stamp") for _ in range(2))
    before = one._load_index()
    other.save(("int64",), "code of int64")
    one._load_index = lambda: before  # it has looked before the other one has written
    one.save(("float64",), "code of float64")
    del one._load_index
    assert one.load(("float64",)) == "code of float64"
    assert one.load(("int64",)) in (None, "code of int64")


def kept_addresses(kernel: ast.FunctionDef) -> set[str]:
    """Return the arrays that a function makes by numpy and whose addresses it has in variables."""
    assigned = [each for each in ast.walk(kernel) if isinstance(each, ast.Assign)]
    made = {
        name.id
        for each in assigned
        if any(ast.unparse(part).startswith(("np.empty(", "np.zeros(", "np.full(")) for part in ast.walk(each.value))
        for target in each.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    parts = (part for each in assigned for part in ast.walk(each.value))
    return made & {
        ast.unparse(part.value) for part in parts if isinstance(part, ast.Attribute) and part.attr == "ctypes"
    }


def test_no_kernel_keeps_the_address_of_an_array_that_it_makes():
    """numba frees an array behind the last line that names it, though its address may be used further down."""
    wrong = "def f():\n    one, two = np.empty(3), 4\n    at = np.int64(one.ctypes.data)\n"
    assert kept_addresses(ast.parse(wrong).body[0]) == {"one"}
    functions = [
        (file.name, node)
        for file in sorted(Path(compiling.__file__).parent.parent.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "allocating" for each in node.decorator_list)
    ]
    assert len(functions) > 20
    assert [(name, node.name) for name, node in functions if kept_addresses(node)] == []


@compiling.compiled
def _hand_on(values):
    return values


@compiling.allocating
def _doubled(values):
    return values * 2


@compiling.compiled
def _count_doubled(values):
    return len(_doubled(values))


@compiling.compiled
def _add(number, more):
    return number + more


def test_numbers_written_in_calls_are_of_one_type():
    called = _add._called_by_kernels
    for number in (1, 2):
        called.get_call_template((numba.types.int64, numba.types.literal(number)), {})
    assert called.nopython_signatures == [numba.int64(numba.int64, numba.int64)]


@compiling.compiled
def _first(values):
    return values[0]


def test_what_reads_an_array_is_compiled_once_for_those_that_may_be_written_to():
    called, written = _first._called_by_kernels, numba.int64[::1]
    for kind in (written.copy(readonly=True), written):
        _, _, given, _ = called.get_call_template((kind,), {})
        assert given == (written.copy(readonly=True),)
    assert len(called.nopython_signatures) == 1


@compiling.compiled
def _read_and_write(read, values):
    values[0] = _first(read) + _first(values)


def test_an_array_is_written_to_where_it_is_also_read():
    values = np.array([2, 3])
    _read_and_write(read_only(values[1:]), values)
    assert values.tolist() == [5, 3]


@compiling.outlined
def _last(values):
    return values[-1]


def _subtract_ends(values):
    return _last(values) - _first(values)


def test_what_a_kernel_calls_is_made_into_machine_code_within_it_alone():
    kernel = compiling._Kernel(_subtract_ends, targetoptions={"nopython": True, "_nrt": False})  # not kept on disk
    assert kernel(np.array([2, 9])) == 7
    (compiled,) = kernel.overloads.values()
    within = {function.name for function in compiled.library.get_defined_functions()}
    first, last = (
        next(iter(each.overloads.values())).fndesc.llvm_func_name for each in (_first._called_by_kernels, _last)
    )
    assert first not in within  # LLVM has put it into its caller
    assert last in within
    engine = compiled.target_context.codegen()._engine
    assert [engine.is_symbol_defined(name) for name in (first, last)] == [False, True]


@compiling.compiled
def _sum_last_even(values):
    total, found = 0, False
    for value in values:
        if value % 2 == 0:
            even = value  # numba has one variable of it, which a later turn reads
            found = True
        if found:
            total += even
    return total


def test_what_is_assigned_in_one_turn_is_read_in_a_later_one():
    assert _sum_last_even(np.array([1, 4, 3, 5, 8, 7])) == 4 + 4 + 4 + 8 + 8


@compiling.compiled
def _add_text(number):
    return number + "1"


@compiling.allocating
def _largest_twice(values):
    found = np.empty(2, np.int64)
    found[:] = max(hash(values[0]), values[-1])
    return found


def test_numba_compiles_as_before_where_a_kernel_was_compiled():
    changed = Function, Context, CPUContext, PostProcessor, _OverloadFunctionTemplate, base, ffi.lib._lock
    before = [dict(vars(each)) for each in changed]
    with pytest.raises(numba.TypingError):
        _add_text(1)
    assert [dict(vars(each)) for each in changed] == before


def test_numba_calls_of_its_own_what_was_compiled_for_kernels():
    values = np.arange(5)
    assert list(_largest_twice(values)) == [4, 4]
    assert list(numba.njit(_largest_twice.py_func)(values)) == [4, 4]
    assert numba.njit(lambda values: max(values[0], values[-1]))(values) == 4


@compiling.compiled
def _fill(numbers, flags, rows, number):
    """Set and read elements by numbers of every kind, some from behind; return what was read."""
    numbers[-1] = number
    numbers[np.uint8(1)] = 2.9
    flags[np.int16(-2)] = number
    rows[1, -1] = flags[-2] + numbers[-1]
    return numbers[-1], numbers[np.uint8(1)], flags[np.int16(-2)], flags[0], rows[1][-1], rows[::2, 1][0]


@compiling.compiled
def _raise_first(numbers, where):
    """Add one to the first number, of an array that numba takes for one or none."""
    found = None
    if where:
        found = numbers
    if found is None:
        return 0
    found[0] = found[0] + 1
    return found[0]


def test_elements_are_those_of_an_array_that_may_be_none():
    assert [_raise_first(np.arange(2), True), _raise_first(np.arange(2), False)] == [1, 0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float32, np.complex128])
@pytest.mark.parametrize("step", [1, 2])
def test_elements_are_those_that_python_reads_and_sets(dtype, step):
    def arrays():
        return np.arange(6).astype(dtype)[::step], np.zeros(3, np.bool_), np.ones((2, 3), dtype)

    expected, given = arrays(), arrays()
    with warnings.catch_warnings(action="ignore"):
        assert _fill(*given, 5) == _fill.py_func(*expected, 5)
    assert [each.tolist() for each in given] == [each.tolist() for each in expected]


def _sum_from(values, first):
    total = 0
    while first < len(values):
        value = values[first]
        if value > 0:
            total += value
        first += 1
    return total


def test_what_is_registered_while_a_kernel_is_compiled_is_found():
    def implementation(_context, _builder, _signature, arguments):
        return arguments[0]

    signature = numba.types.int64(numba.types.int64)
    with found_once():
        context = cpu_target.target_context.subtarget()
        context.refresh()
        cmathimpl.registry.lower(implementation, *signature.args)(implementation)  # where intrinsics are registered
        assert context.get_function(implementation, signature)


def test_numbas_debugging_changes_no_result(monkeypatch):
    monkeypatch.setattr(numba.config, "DEBUGINFO_DEFAULT", 1)
    assert compiling.compiled(_sum_from)(np.array([1, -2, 3, 4]), 1) == 7


@compiling.allocating
def _sum_doubled(values):
    found = 0
    for value in _doubled(values):
        found += value
    return found


def test_a_kernel_that_counts_no_references_returns_no_array_and_takes_none():
    # Else the array would be freed twice, or never.
    values = np.arange(4)
    before = sys.getrefcount(values)
    for wrong, name in ((_hand_on, "_hand_on"), (_count_doubled, "_doubled")):
        with pytest.raises(TypeError, match=f"{name} returns an array: make it"):
            wrong(values)
    assert _sum_doubled(values) == 12
    doubled = _doubled(values)
    assert sys.getrefcount(doubled) == 2
    assert sys.getrefcount(values) == before


CALLED = """
import json, sys
import numpy as np
from numba.core.event import install_recorder
from longcrawl.kernels import compiling

compiling.PORTABLE = compiling.Path(sys.argv[1])
with install_recorder("numba:compile") as recorded:
    from longcrawl.kernels.lookup import round_all
    values = np.array([0.1234567851, 2.5])
    round_all(values)
print(json.dumps([len(recorded.buffer) > 0, values.tolist()]))
"""


ROUNDED = [0.12345679, 2.5]
portable = pytest.mark.skipif(not compiling.runs_portable(), reason="this CPU has not all of x86-64-v3")


@pytest.fixture
def called(tmp_path):
    """Return what calls a kernel in a process of its own: whether it compiled, the result, whether it said so."""

    def call(**environment):
        command = [sys.executable, "-c", CALLED, str(tmp_path / "portable")]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
        return *json.loads(done.stdout), "compiling kernels that are new to this machine" in done.stderr

    assert call(**compiling.portable_environment(tmp_path / "portable")) == (True, ROUNDED, True)
    return functools.partial(call, NUMBA_CACHE_DIR=str(tmp_path / "own"), **{compiling.WRITE_PORTABLE: ""})


@portable
def test_code_that_comes_with_a_wheel_is_loaded_and_not_compiled(called):
    assert called() == (False, ROUNDED, False)


@portable
@pytest.mark.slow
def test_code_that_comes_with_a_wheel_is_left_where_it_is_asked_for_or_of_another_numba(called, tmp_path):
    assert called(**{compiling.COMPILE_HERE: "1"}) == (True, ROUNDED, True)
    assert called() == (False, ROUNDED, False)
    for index in (tmp_path / "portable").rglob("*.nbi"):  # as with another version of numba
        index.write_bytes(pickle.dumps("0.1") + b"anything")
    assert called(NUMBA_CACHE_DIR=str(tmp_path / "another")) == (True, ROUNDED, True)


@pytest.mark.slow
def test_nothing_is_compiled_twice(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "longcrawl.cli", "warm"]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert int(first.split()[0]) > 100
    assert second.startswith("0 kernels compiled in ")


def test_arrays_that_are_kept_have_the_type_that_they_had_when_they_were_made(tmp_path, monkeypatch):
    """Else kernels that a first process compiled would not be those of the next."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = {"constant": np.frombuffer(b"abc", np.uint8), "transposed": np.zeros((2, 3)).T[1:]}
    made, kept = (kept_arrays("some", "", built.copy) for _ in range(2))
    assert {name: numba.typeof(each) for name, each in made.items()} == {
        name: numba.typeof(each) for name, each in kept.items()
    }
    assert made["constant"].flags.writeable


def test_a_kernel_is_compiled_again_when_what_it_calls_has_changed(tmp_path, monkeypatch):
    # Machine code holds what it calls of other modules; numba compares its own file alone.
    own = Path(kernels.__file__)
    assert kernels.measure._cache._cache_file._source_stamp == compiling.digest_sources(own)
    package = Path(compiling.__file__).parents[1]
    shutil.copytree(package, tmp_path / "longcrawl", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiling, "_ROOT", tmp_path)
    copied = tmp_path / "longcrawl" / own.relative_to(package)
    before = compiling.digest_sources.__wrapped__(copied)
    for name, same in (("cli/commands.py", True), ("kernels/lookup.py", False), ("kernels/code_points.py", False)):
        with (tmp_path / "longcrawl" / name).open("a") as file:
            file.write("# changed\n")
        compiling._read_source.cache_clear()  # a new process would read the file again
        after = compiling.digest_sources.__wrapped__(copied)
        assert (after == before) is same, name
        before = after


@given(st.lists(st.integers(-4, 4) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=100))
def test_an_order_is_that_of_numpy_with_equal_keys_as_they_stand(keys):
    array = np.array(keys, np.int64)
    assert lookup.stable_order(array).tolist() == np.argsort(array, kind="stable").tolist()


def test_capitals_are_those_that_each_character_has():
    naive: dict[str, list[int]] = {}
    for point in range(0x110000):
        lower = chr(point).lower()
        if len(lower) == 1 and lower != chr(point):
            naive.setdefault(lower, []).append(point)
    assert phrases._capitals() == naive
