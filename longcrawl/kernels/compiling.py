"""Kernels: functions that numba compiles on their first call and caches on disk.

Importing a module that defines kernels imports neither numba nor llvmlite. Without numba, as where only feeds are
installed, a kernel runs as Python: the same result, slowly. The files of a kernel, in numba's usual
cache, are named after a digest of everything that determines its machine code: its code, the kernels and intrinsics
that it calls, and the constants that any of them use. ``tests/kernels/test_compiling.py`` checks the private names of
numba that are used: the option ``_nrt``, ``numba.core.event`` and ``numba.np.linalg.ensure_blas``.
"""

import gc
import hashlib
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, cached_property, update_wrapper
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from threading import local
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast
from weakref import WeakSet

import numpy as np
from filelock import FileLock, Timeout

from longcrawl.errors import LongCrawlError, show

F = TypeVar("F", bound=Callable[..., Any])

_thread = local()
_UNREADABLE = (EOFError, UnpicklingError, ImportError, AttributeError)
"""Errors of numba for a cached file that is truncated, or refers to a type in a module that has moved."""
_counts = {"compiled": 0}
_waits = {"seconds": -1.0}
_at_first: list[Callable[[], object]] = []


@contextmanager
def at_first_compile(call: Callable[[], object]) -> Iterator[None]:
    """Call ``call`` once, before a process first compiles a kernel to cache; of nested blocks, only the outermost does.

    Processes forked from this one also call it.
    """
    _at_first.append(call)
    try:
        yield
    finally:
        _at_first.pop()


def _call_first() -> None:
    if _at_first:
        call, _at_first[0] = _at_first[0], lambda: None
        call()


def expect(kernel: Any) -> None:
    """Run the call of :func:`at_first_compile` in advance if a kernel needed later must be compiled."""
    if _at_first and kernel.is_missing():
        _call_first()


def compile_early(kernel: Any, *arguments: Any) -> None:
    """Compile a kernel that is not cached for arguments of these types, unless another process is doing so."""
    if kernel.is_missing():
        with suppress(Timeout):
            kernel.compile(arguments, wait=0)


def never_wait() -> None:
    """Let this process raise ``filelock.Timeout`` instead of waiting for another one to compile a kernel."""
    _waits["seconds"] = 0.0


def count_compiled() -> int:
    """Return the number of functions that this process has compiled for kernels so far."""
    return _counts["compiled"]


@contextmanager
def without_gc() -> Iterator[None]:
    """Switch off garbage collection: it would traverse all objects of the compiler, a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Intrinsic:
    """A ``numba.extending.intrinsic`` that is created when a kernel that uses it is compiled."""

    def __init__(self, py_func: Any) -> None:
        self.py_func = py_func

    def __call__(self, *_: Any) -> Any:
        """Raise an error: a kernel that runs as Python has no machine instructions."""
        raise LongCrawlError("this function, such as packing='best-fit', needs numba: pip install numba")

    @cached_property
    def in_kernels(self) -> Any:
        """The intrinsic of numba."""
        from numba.extending import intrinsic

        return intrinsic(self.py_func)


class Kernel:
    """A function that is compiled, or loaded from disk, on its first call with arguments of given types."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        update_wrapper(self, function)
        self.py_func: Any = function
        self.counts_references = options.get("_nrt", True)
        self._options = {"nogil": True, "no_cfunc_wrapper": True, **options}

    def __call__(self, *arguments: Any) -> Any:
        """Run the machine code for arguments of these types."""
        try:
            return self._entry(*arguments)
        except (_NotCompiledError, *_UNREADABLE):
            self.compile(arguments)
            return self._entry(*arguments)

    def is_missing(self) -> bool:
        """Return whether machine code can be cached, but none of this kernel is."""
        folder = self._entry.stats.cache_path if _has_numba() else ""
        return bool(folder) and not any(Path(folder).glob(f"*.{self._kept_name}-*.nbi"))

    @cached_property
    def in_kernels(self) -> Any:
        """The dispatcher for calls from kernels, without an entry point for Python, which is slow to compile."""
        return self._dispatcher(self.py_func.__qualname__, no_cpython_wrapper=True)

    @cached_property
    def _entry(self) -> Any:
        if not _has_numba():
            return _interpreted(self.py_func)
        _watch_compiler()
        try:
            return self._dispatcher(self._kept_name, cache=True)
        except RuntimeError as error:
            show(f"machine code is compiled in each process ({error}); set NUMBA_CACHE_DIR to a folder", error=True)
            return self._dispatcher(self._kept_name)

    @cached_property
    def _kept_name(self) -> str:
        return f"{self.py_func.__qualname__}-{_digest(self.py_func)[:16]}"

    def _dispatcher(self, name: str, **options: Any) -> Any:
        from numba import njit

        found: Any = self.py_func
        made = {name: each.in_kernels for name, each in _named(found) if isinstance(each, Kernel | Intrinsic)}
        bound = FunctionType(found.__code__, found.__globals__ | made, name, found.__defaults__, found.__closure__)
        bound.__qualname__, bound.__module__, bound.__kwdefaults__ = name, found.__module__, found.__kwdefaults__
        dispatcher = njit(**self._options, **options)(bound)
        _ours.add(dispatcher)
        return dispatcher

    def compile(self, arguments: tuple[Any, ...], wait: float | None = None) -> None:
        """Compile for the types of arguments, one process at a time, or load what another one has compiled since."""
        from numba import typeof

        folder = self._entry.stats.cache_path
        if folder:
            _call_first()
        try:
            seconds = _waits["seconds"] if wait is None else wait
            with without_gc(), FileLock(Path(folder, f"{self._kept_name}.lock"), seconds) if folder else nullcontext():
                _thread.may_compile = True
                try:
                    self._entry.compile(tuple(map(typeof, arguments)))
                except _UNREADABLE:
                    for file in Path(folder).glob(f"*{self._kept_name}*.nb?"):
                        file.unlink(missing_ok=True)
                    self._entry.compile(tuple(map(typeof, arguments)))
        finally:
            _thread.may_compile = False


class _NotCompiledError(Exception):
    """A kernel called from Python has no cached machine code for these types."""


class _Watcher:
    def notify(self, event: Any) -> None:
        """Interrupt compilations outside of ``Kernel.compile``, announce a slow one, and check the result."""
        kernel = event.data["dispatcher"]
        if kernel not in _ours:
            return
        if event.is_start:
            if "no_cpython_wrapper" not in kernel.targetoptions and not getattr(_thread, "may_compile", False):
                raise _NotCompiledError
            _announce()
            _counts["compiled"] += 1
            return
        returned = [str(each.return_type).lower() for each in kernel.nopython_signatures]
        if not kernel.targetoptions.get("_nrt", True) and any("array(" in each for each in returned):
            raise TypeError(f"{kernel.py_func.__name__.split('-')[0]} returns an array: make it @allocating")


_ours = WeakSet[Any]()


@cache
def _has_numba() -> bool:
    try:
        import_module("numba")
    except ModuleNotFoundError as missing:
        if missing.name != "numba":
            raise
        show("numba is not installed, so feeds run as Python, more slowly: pip install numba", error=True)
        return False
    _load_arrays()
    return True


def _load_arrays() -> None:
    """Load numba's functions of arrays without scipy.linalg, a seventh of the time, whose presence alone they note."""
    linalg: Any = import_module("numba.np.linalg")
    imports_scipy = linalg.ensure_blas

    def find_scipy() -> None:
        if find_spec("scipy") is None:
            raise ImportError("no scipy")

    linalg.ensure_blas = find_scipy
    try:
        import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = imports_scipy


def _interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel's function for Python, in which integers wrap around as in machine code."""

    def run(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*arguments)

    return run


@cache
def _watch_compiler() -> None:
    from numba.core import event

    event.Listener.register(_Watcher)
    event.register("numba:compile", _Watcher())


@cache
def _announce() -> None:
    """Print once why a first call takes long, but not in child processes."""
    if multiprocessing.parent_process() is None:
        text = "compiling kernels that are new to this machine, up to a minute (longcrawl warm does it in advance)"
        show(text, error=True)


def _named(function: Any) -> Iterator[tuple[str, Any]]:
    names = sorted({name for code in _codes(function.__code__) for name in code.co_names})
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)
    cells = function.__closure__ or ()
    yield from ((name, cell.cell_contents) for name, cell in zip(function.__code__.co_freevars, cells, strict=True))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


@cache
def _own_content(function: Any) -> tuple[str, tuple[Any, ...]]:
    """Return a text of everything that a function's machine code depends on except called functions, and those."""
    called, parts = list[Any](), list[str]()
    for name, value in _named(function):
        found = getattr(value, "py_func", value)
        if isinstance(found, FunctionType):
            called.append(found)
        else:
            parts.append(f"{name}={_spell(found)}")
    for code in _codes(function.__code__):
        constants = [_spell(each) for each in code.co_consts if not isinstance(each, CodeType)]
        parts.append(f"{code.co_code!r} {constants} {code.co_names} {code.co_varnames} {code.co_freevars}")
    return "\n".join((*parts, repr(function.__defaults__))), tuple(called)


def _spell(value: Any) -> str:
    """Return a text that differs between constants and is the same in every process."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.flags.writeable}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple | frozenset):
        parts = map(_spell, value)
        return f"{type(value).__name__}{list(parts) if isinstance(value, tuple) else sorted(parts)}"
    if isinstance(value, ModuleType):
        return value.__name__
    return f"{value!r}{getattr(value, '_fields', '')}"


def _digest(function: Any) -> str:
    reached, waiting, digest = {function}, [function], hashlib.sha256()
    while waiting:
        content, called = _own_content(waiting.pop())
        digest.update(content.encode())
        waiting += [each for each in dict.fromkeys(called) if each not in reached]
        reached.update(called)
    return digest.hexdigest()


def compiled(function: F) -> F:
    """Make a kernel that is cached on disk, runs without the interpreter lock, and must not create or return arrays."""
    return cast(F, Kernel(function, _nrt=False))


def allocating(function: F) -> F:
    """Make a kernel like :func:`compiled` that may create and return arrays: it counts references."""
    return cast(F, Kernel(function, _nrt=True))


def forced_inline(function: F) -> F:
    """Make a kernel like :func:`compiled` that LLVM inlines into its callers, for pieces as short as a call."""
    return cast(F, Kernel(function, _nrt=False, forceinline=True))


def inlined(function: F) -> F:
    """Make a kernel like :func:`allocating` that numba inlines into its callers, each of which compiles it again."""
    return cast(F, Kernel(function, inline="always"))


@compiled
def _do_nothing() -> int:
    return 0


def load_compiler() -> None:
    """Load numba and what it registers, 0.6 s of CPU that processes forked from this one then need not spend."""
    with without_gc():
        _do_nothing()
