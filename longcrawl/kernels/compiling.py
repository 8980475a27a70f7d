"""Kernels: functions that plain numba compiles at their first call and keeps on disk.

Importing a module that defines kernels imports neither numba nor llvmlite. The files of a kernel are named after a
digest of everything that its machine code holds: its code, the kernels and intrinsics that it calls, and the constants
that any of them names. They are kept where numba keeps such files: in ``NUMBA_CACHE_DIR``, else beside the source, else
in the user's cache folder. Private names of numba are the option ``_nrt`` and ``numba.core.event``, which numba's
developer documentation describes; ``tests/kernels/test_compiling.py`` checks both.
"""

import gc
import hashlib
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property, update_wrapper
from pathlib import Path
from pickle import UnpicklingError
from threading import local
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast
from weakref import WeakSet

import numpy as np
from filelock import FileLock

from longcrawl.errors import show

F = TypeVar("F", bound=Callable[..., Any])

_thread = local()
_UNREADABLE = (EOFError, UnpicklingError, ImportError, AttributeError)
"""Raised when numba reads a kept file that was cut, or that names a type of a module that has moved."""
_counts = {"compiled": 0}
_waits = {"seconds": -1.0}
_at_first: list[Callable[[], object]] = []


@contextmanager
def at_first_compile(call: Callable[[], object]) -> Iterator[None]:
    """Call ``call`` when a process first has to compile a kernel that is kept; only the outermost of several is called.

    Processes that are forked from this one call it too.
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
    """Do ahead what :func:`at_first_compile` asks for if a kernel that is needed later has to be compiled."""
    if _at_first and kernel.is_missing():
        _call_first()


def never_wait() -> None:
    """Raise ``filelock.Timeout`` in this process where a call would wait for another process to compile a kernel."""
    _waits["seconds"] = 0.0


def count_compiled() -> int:
    """Return how many functions this process has compiled for kernels so far."""
    return _counts["compiled"]


class Intrinsic:
    """An instruction for kernels, as by ``numba.extending.intrinsic``, made when a kernel that names it is compiled."""

    def __init__(self, function: Any) -> None:
        self.py_func, self.__doc__ = function, function.__doc__

    @cached_property
    def in_kernels(self) -> Any:
        """The object that numba calls."""
        from numba.extending import intrinsic

        return intrinsic(self.py_func)


class Kernel:
    """A function that is compiled, or loaded from disk, when it is first called with arguments of some types.

    Attributes:
        py_func: the function itself.
        counts_references: whether it may make and return arrays.
    """

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
            self._compile(arguments)
            return self._entry(*arguments)

    def is_missing(self) -> bool:
        """Return whether there is a folder for machine code, but none of this kernel in it."""
        folder = self._entry.stats.cache_path
        return bool(folder) and not any(Path(folder).glob(f"*.{self._kept_name}-*.nbi"))

    @cached_property
    def in_kernels(self) -> Any:
        """The dispatcher that kernels call, without an entry point for Python, which is a large part of compiling."""
        return self._dispatcher(self.py_func.__qualname__, no_cpython_wrapper=True)

    @cached_property
    def _entry(self) -> Any:
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

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Compile for the types of arguments, or load what another process has compiled by then.

        One process at a time: numba numbers the files of a function, and two would replace each other's.
        """
        from numba import typeof

        folder, was_on = self._entry.stats.cache_path, gc.isenabled()
        if folder:
            _call_first()
        gc.disable()  # it would walk through all objects of the compiler: a tenth of the time
        try:
            lock = FileLock(Path(folder, f"{self._kept_name}.lock"), _waits["seconds"]) if folder else nullcontext()
            with lock:
                _thread.may_compile = True
                try:
                    self._entry.compile(tuple(map(typeof, arguments)))
                except _UNREADABLE:
                    for file in Path(folder).glob(f"*{self._kept_name}*.nb?"):
                        file.unlink(missing_ok=True)
                    self._entry.compile(tuple(map(typeof, arguments)))
        finally:
            _thread.may_compile = False
            if was_on:
                gc.enable()


class _NotCompiledError(Exception):
    """Raised before numba compiles what Python calls: no machine code is kept for these types."""


class _Watcher:
    """A listener of numba's: it sees each function that is about to be compiled, and each that was."""

    def notify(self, event: Any) -> None:
        """Stop what has to wait for its turn, say what will take long, and check what was compiled.

        Raises:
            _NotCompiledError: the kernel is to be compiled by ``Kernel._compile``.
            TypeError: a kernel that counts no references returns an array, which would be freed twice or never.
        """
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
def _watch_compiler() -> None:
    from numba.core import event

    event.Listener.register(_Watcher)
    event.register("numba:compile", _Watcher())


@cache
def _announce() -> None:
    """Say once why a first call takes long; processes that others have started do not say it again."""
    if multiprocessing.parent_process() is None:
        text = "compiling kernels that are new to this machine, up to a minute (longcrawl warm compiles all ahead)"
        show(text, error=True)


def _named(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the globals and the variables of outer functions that a function names, and their values."""
    names = sorted({name for code in _codes(function.__code__) for name in code.co_names})
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)
    cells = function.__closure__ or ()
    yield from ((name, cell.cell_contents) for name, cell in zip(function.__code__.co_freevars, cells, strict=True))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of all functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


@cache
def _own_content(function: Any) -> tuple[str, tuple[Any, ...]]:
    """Return what a function's machine code depends on, but for the functions that it names; and these."""
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
    """Return a text that is another one for another constant, and the same in each process."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{value.flags.writeable}{hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, tuple | frozenset):
        parts = map(_spell, value)
        return f"{type(value).__name__}{list(parts) if isinstance(value, tuple) else sorted(parts)}"
    if isinstance(value, ModuleType):
        return value.__name__
    return f"{value!r}{getattr(value, '_fields', '')}"


def _digest(function: Any) -> str:
    """Return a SHA-256 of a function and of all that it calls."""
    reached, waiting, digest = {function}, [function], hashlib.sha256()
    while waiting:
        content, called = _own_content(waiting.pop())
        digest.update(content.encode())
        waiting += [each for each in dict.fromkeys(called) if each not in reached]
        reached.update(called)
    return digest.hexdigest()


def intrinsic(function: Callable[..., Any]) -> Any:
    """Make an instruction of a function that returns its types and a function that writes it for LLVM."""
    return Intrinsic(function)


def compiled(function: F) -> F:
    """Compile a kernel that runs without the interpreter lock and is kept on disk.

    It counts no references to arrays, which are its caller's: it makes none, and returns none.
    """
    return cast(F, Kernel(function, _nrt=False))


def allocating(function: F) -> F:
    """As ``compiled``, for a kernel that makes or returns arrays: it counts references to all that it names."""
    return cast(F, Kernel(function, _nrt=True))


def forced_inline(function: F) -> F:
    """As ``compiled``, but LLVM puts it into its callers: a call costs as much as a short piece."""
    return cast(F, Kernel(function, _nrt=False, forceinline=True))


def inlined(function: F) -> F:
    """As ``allocating``, but numba itself puts it into its callers: for what returns arrays to any of them.

    Each caller compiles it anew.
    """
    return cast(F, Kernel(function, inline="always"))
