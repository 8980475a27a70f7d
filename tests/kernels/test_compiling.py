"""Compiling kernels and caching them on disk."""

import ast
import json
import os
import pkgutil
import subprocess
import sys
import typing
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import FunctionType

import numba
import numpy as np
import pytest

import longcrawl
from longcrawl.kernels import compiling
from longcrawl.kernels.code_points import kept_arrays
from longcrawl.text import rpv2 as signals

NAMES = [each.name for each in pkgutil.walk_packages(longcrawl.__path__, "longcrawl.") if "__main__" not in each.name]


def test_numba_still_has_the_names_that_kernels_are_compiled_by():
    for option in ("_nrt", "forceinline", "no_cfunc_wrapper", "no_cpython_wrapper"):
        try:
            numba.njit(**{option: True})(abs_of)
        except Exception as error:  # noqa: BLE001  # whatever numba raises
            pytest.fail(f"numba {numba.__version__} no longer has the option {option} ({error}): see compiling.Kernel")
    try:
        from numba.core import event

        listeners = event.Listener, event.register
    except (ImportError, AttributeError) as error:
        pytest.fail(f"numba {numba.__version__} tells no listeners what it compiles ({error}): see compiling._Watcher")
    assert all(map(callable, listeners))


def abs_of(number):
    return abs(number)


IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print([name for name in ("numba", "llvmlite") if name in sys.modules])
"""


@pytest.mark.slow
def test_no_module_imports_numba():
    command = [sys.executable, "-c", IMPORT_ALL, *NAMES]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


WITH_BLAS = """
import sys
import numba, numpy as np
from longcrawl.kernels.compiling import load_compiler

load_compiler()
print("scipy.linalg" in sys.modules, numba.njit(lambda a, b: np.dot(a, b))(np.ones(3), np.ones(3)))
"""


@pytest.mark.slow
def test_the_compiler_loads_without_scipy_and_can_still_use_its_products():
    pytest.importorskip("scipy.linalg")
    done = subprocess.run([sys.executable, "-c", WITH_BLAS], capture_output=True, text=True, check=True)
    assert done.stdout == "False 3.0\n"


def kernels():
    """Return all kernels of the package that are named by a module, and by their names."""
    modules = [import_module(name) for name in NAMES]
    found = [(module, name, each) for module in modules for name, each in vars(module).items()]
    return {
        f"{module.__name__}.{name}": each
        for module, name, each in found
        if isinstance(each, compiling.Kernel) and each.py_func.__module__ == module.__name__
    }


def test_kernels_that_return_arrays_count_references():
    """Else an array would be freed twice, or never; what is compiled is checked again by the types that numba finds."""
    found = kernels()
    assert len(found) > 400
    wrong = [
        name
        for name, each in found.items()
        if not each.counts_references and "ndarray" in str(typing.get_type_hints(each.py_func).get("return"))
    ]
    assert wrong == []


def test_kernels_that_count_no_references_call_none_that_returns_an_array():
    wrong = [
        (name, called)
        for name, each in kernels().items()
        for called, value in compiling._named(each.py_func)
        if isinstance(value, compiling.Kernel) and value.counts_references and not each.counts_references
        if "inline" not in value._options  # it counts as its caller does
        if "ndarray" in str(typing.get_type_hints(value.py_func).get("return"))
    ]
    assert wrong == []


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


@pytest.mark.slow
def test_no_kernel_keeps_the_address_of_an_array_that_it_makes():
    """numba frees an array behind the last line that names it, though its address may be used further down."""
    wrong = "def f():\n    one, two = np.empty(3), 4\n    at = np.int64(one.ctypes.data)\n"
    assert kept_addresses(ast.parse(wrong).body[0]) == {"one"}
    functions = [
        (file.name, node)
        for file in sorted(Path(compiling.__file__).parent.parent.rglob("*.py"))
        if "@allocating" in (source := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "allocating" for each in node.decorator_list)
    ]
    assert len(functions) > 20
    assert [(name, node.name) for name, node in functions if kept_addresses(node)] == []


@compiling.compiled
def _hand_on(values):
    return values


@compiling.compiled
def _count_handed_on(values):
    return len(_hand_on(values))


@compiling.allocating
def _doubled(values):
    return values * 2


@compiling.allocating
def _sum_doubled(values):
    found = 0
    for value in _doubled(values):
        found += value
    return found


def test_a_kernel_that_counts_no_references_returns_no_array():
    for wrong in (_hand_on, _count_handed_on):
        with pytest.raises(Exception, match="_hand_on returns an array: make it @allocating"):
            wrong(np.arange(4))
    values = np.arange(4)
    before = sys.getrefcount(values)
    assert _sum_doubled(values) == 12
    doubled, made = _doubled(values), np.arange(4) * 2
    assert sys.getrefcount(doubled) == sys.getrefcount(made)
    assert sys.getrefcount(values) == before


@compiling.compiled
def _sum_up(values):
    total = 0
    for value in values:
        total += value
    return total


def test_threads_that_call_a_kernel_first_have_its_result():
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(_sum_up, [np.arange(5, dtype=dtype) for dtype in (np.int8, np.int16, np.int8, np.int32)])
        assert list(found) == [10] * 4


def test_what_is_no_kernel_of_ours_compiles_as_ever():
    assert numba.njit(lambda values: values[0])(np.array([3])) == 3


CALLED = """
import json, sys
import numpy as np
from longcrawl.kernels import compiling
from longcrawl.kernels.lookup import round_all

values = np.array([0.1234567851, 2.5], sys.argv[1])
round_all(values)
print(json.dumps([compiling.count_compiled() > 0, values.tolist()]))
"""
ROUNDED = [0.12345679, 2.5]


def call(dtype="f8", **environment):
    """Call a kernel in a process of its own; return whether it compiled, the result, and what it said."""
    command = [sys.executable, "-c", CALLED, dtype]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return *json.loads(done.stdout), done.stderr


@pytest.mark.variants
@pytest.mark.parametrize("ending", ["nbc", "nbi"])
def test_a_kernel_is_compiled_once_and_again_where_its_file_was_cut(tmp_path, python, ending):
    def call_again():
        done = python(f"import numba\nnumba.config.CACHE_DIR = {str(tmp_path)!r}\n{CALLED}", "f8")
        return *json.loads(done.stdout), done.stderr

    compiled, found, said = call_again()
    assert (compiled, found) == (True, ROUNDED)
    assert said.count("compiling kernels that are new to this machine") == 1
    assert call_again() == (False, ROUNDED, "")
    for file in tmp_path.rglob(f"*.{ending}"):
        file.write_bytes(file.read_bytes()[:-7])
    assert call_again()[:2] == (True, ROUNDED)
    assert call_again()[0] is False


@pytest.mark.slow
def test_kept_files_that_name_a_type_which_has_moved_are_made_again(tmp_path):
    kernel = "from longcrawl.kernels.compiling import compiled\nfrom {} import Pair\n\n\n"
    kernel += "@compiled\ndef add(pair):\n    return pair.a + pair.b\n\n\nprint(add(Pair(1, 2)))\n"
    there = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(tmp_path)}
    for home in ("old", "new"):
        (tmp_path / "old.py").unlink(missing_ok=True)
        (tmp_path / f"{home}.py").write_text("import collections\n\nPair = collections.namedtuple('Pair', 'a b')\n")
        (tmp_path / "script.py").write_text(kernel.format(home))
        command = [sys.executable, tmp_path / "script.py"]
        done = subprocess.run(command, env=there, capture_output=True, text=True, check=False)
        assert done.stdout == "3\n", done.stderr


@pytest.mark.slow
def test_processes_that_compile_at_once_keep_their_own_code(tmp_path):
    """numba numbers the files of a kernel: of two processes, one could replace the code that the other has listed."""
    kept = {"NUMBA_CACHE_DIR": str(tmp_path)}
    with ThreadPoolExecutor(3) as pool:
        found = [each[:2] for each in pool.map(lambda dtype: call(dtype, **kept), ("f8", "f4", "f8"))]
    assert [values for _, values in found] == [ROUNDED, pytest.approx(ROUNDED), ROUNDED]
    assert sum(compiled for compiled, _ in found) == 2
    assert [call(dtype, **kept)[0] for dtype in ("f8", "f4")] == [False, False]


def test_a_kernel_without_a_folder_is_compiled_in_each_process(capsys):
    made = {"__name__": __name__}
    exec("def twice(number):\n    return 2 * number\n", made)  # noqa: S102  # a function without a file
    kernel = compiling.compiled(made["twice"])
    assert (kernel(3), kernel.is_missing()) == (6, False)
    assert "set NUMBA_CACHE_DIR to a folder" in capsys.readouterr().err


@pytest.mark.slow
def test_where_no_folder_can_be_written_kernels_are_compiled_all_the_same(tmp_path):
    (tmp_path / "file").touch()
    nowhere = {"NUMBA_CACHE_DIR": str(tmp_path / "file"), "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    for _ in range(2):
        compiled, found, said = call(**nowhere)
        assert (compiled, found) == (True, ROUNDED)
        assert "set NUMBA_CACHE_DIR to a folder" in said


WEIGHTS = np.array([1, 2])
PAIR = (np.zeros(1), "one")


@compiling.forced_inline
def _inner(number):
    return number * WEIGHTS[0]


@compiling.compiled
def _outer(number):
    return _inner(number) + len(PAIR)


def changed(function, **named):
    """Return a copy of a function that names other things."""
    return FunctionType(function.__code__, {**function.__globals__, **named}, function.__name__)


def _other_inner(number):
    return number * WEIGHTS[1]


@pytest.mark.parametrize(
    ("named", "is_same"),
    [
        ({}, True),
        ({"_sum_up": None}, True),
        ({"_inner": compiling.forced_inline(_other_inner)}, False),
        ({"_inner": compiling.forced_inline(changed(_inner.py_func, WEIGHTS=np.array([1, 3])))}, False),
        ({"_inner": compiling.forced_inline(changed(_inner.py_func, WEIGHTS=np.array([1, 2], np.int8)))}, False),
        ({"PAIR": (np.ones(1), "one")}, False),
        ({"PAIR": (np.zeros(1), "one")}, True),
    ],
    ids=["nothing", "not named", "callee", "constant of callee", "type of constant", "inside a tuple", "equal"],
)
def test_a_kernel_is_compiled_again_when_what_its_code_holds_has_changed(named, is_same):
    assert (compiling._digest(changed(_outer.py_func, **named)) == compiling._digest(_outer.py_func)) is is_same


def test_digests_are_those_of_another_process():
    program = "from longcrawl.kernels import compiling; from longcrawl.text import rpv2; "
    program += "print(compiling._digest(rpv2.measure.py_func))"
    command, environment = [sys.executable, "-c", program], os.environ | {"PYTHONHASHSEED": "7"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == compiling._digest(signals.measure.py_func)


def test_the_key_of_javascript_is_that_of_its_letters():
    assert signals._key(np.frombuffer(b"javascript", np.uint8).astype(np.uint32), 0, 10) == signals.JAVASCRIPT_KEY


def test_arrays_that_are_kept_have_the_type_that_they_had_when_they_were_made(tmp_path, monkeypatch):
    """Else kernels that a first process compiled would not be those of the next."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = {"constant": np.frombuffer(b"abc", np.uint8), "transposed": np.zeros((2, 3)).T[1:]}
    made, kept = (kept_arrays("some", "", built.copy) for _ in range(2))
    assert {name: numba.typeof(each) for name, each in made.items()} == {
        name: numba.typeof(each) for name, each in kept.items()
    }
    assert made["constant"].flags.writeable
