"""How kernels are compiled, and where their machine code is kept.

numba keeps machine code beside the source, for the very CPU that compiled it, and compares the source of the kernel's
own file. Here all that a kernel calls is compared, too. A wheel may carry code for any CPU of the level x86-64-v3
(2013 and newer), in ``longcrawl/kernels/portable``: it is loaded where the versions of Python and numba are those that
it was made with, the sources are the same, and this CPU has all that the level asks for. All else is compiled when it
is first called, once for a machine; ``longcrawl warm`` does so ahead.
"""

import gc
import hashlib
import multiprocessing
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import llvmlite.binding  # type: ignore[import-untyped]  # it has no types
import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys
from numba.core.targetconfig import ConfigStack
from numba.core.types.misc import unliteral
from numba.core.types.npytypes import Array

from longcrawl.kernels.found_once import found_once
from longcrawl.kernels.lowering import NO_ENTRIES, OPTIONS, ApartCompiler, KernelCompiler, PartCompiler
from longcrawl.printable import show

F = TypeVar("F", bound=Callable[..., Any])

PORTABLE = Path(__file__).parent / "portable"
"""The folder of machine code that comes with a wheel; an environment variable names another one to write it to."""
WRITE_PORTABLE = "LONGCRAWL_WRITE_PORTABLE_KERNELS"
COMPILE_HERE = "LONGCRAWL_COMPILE_KERNELS"
"""An environment variable that leaves what came with a wheel where it is."""
LEVEL = "x86-64-v3"
LEVEL_FEATURES = ("avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "sse4.2", "xsave")

_ROOT = Path(__file__).parents[2]
_IMPORT = re.compile(r"^from (longcrawl[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


@cache
def _read_source(file: Path) -> tuple[bytes, frozenset[Path]]:
    """Return what a file holds and which files of longcrawl it imports; most kernels import the same few."""
    content = file.read_bytes()
    imported = set()
    for package, names in _IMPORT.findall(content.decode()):
        folder = _ROOT.joinpath(*package.split("."))
        files = {"__init__.py", *(f"{name}.py" for name in re.findall(r"\w+", names))}
        imported |= {folder.with_suffix(".py"), *(folder / name for name in files)}
    return content, frozenset(filter(Path.is_file, imported))


@cache
def digest_sources(file: Path) -> str:
    """Return a SHA-256 of a file and of all that it imports of longcrawl: machine code of its kernels holds both."""
    reached, waiting = {file}, [file]
    while waiting:
        imported = _read_source(waiting.pop())[1] - reached
        reached |= imported
        waiting += imported
    return hashlib.sha256(b"".join(_read_source(path)[0] for path in sorted(reached))).hexdigest()


def portable_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process that compiles for any CPU of the level, into a folder."""
    return os.environ | {"NUMBA_CPU_NAME": LEVEL, "NUMBA_CPU_FEATURES": "", WRITE_PORTABLE: str(folder)}


@cache
def runs_portable() -> bool:
    """Return whether this CPU runs the code of a wheel, and shall."""
    features = llvmlite.binding.get_host_cpu_features() if sys.platform == "linux" else {}
    return COMPILE_HERE not in os.environ and all(features.get(each, False) for each in LEVEL_FEATURES)


@cache
def _announce_compiling() -> None:
    """Say once why a first call takes long; processes that others have started do not say it again."""
    if multiprocessing.parent_process() is None:
        show(
            "compiling kernels that are new to this machine, up to 30 s (longcrawl warm compiles all ahead)", error=True
        )


class _CachedKernels(IndexDataCacheFile):  # type: ignore[misc]  # numba is not typed
    """What is kept of a kernel on disk, where each signature has a file of its own name.

    numba numbers these files: of two processes that compile at the same time, one may replace the code that the other
    has listed. It would also raise where code names a type that has moved, as it unpickles before it compares sources.
    """

    portable: IndexDataCacheFile | None = None
    """What came with the wheel."""

    def load(self, key: Any) -> Any:
        """Return the code of this machine or, where there is none, what came with the wheel."""
        try:
            found = super().load(key)
        except (EOFError, UnpicklingError):  # a file that was cut: it is compiled again, and written anew
            found = None
        if found is None and self.portable is not None and runs_portable():
            signature, (triple, *_), code = key
            found = self.portable.load((signature, (triple, LEVEL, ""), code))
        if found is None:
            _announce_compiling()
        return found

    def save(self, key: Any, data: Any) -> None:
        """Keep the code of a signature: its file first, then its name in the list."""
        name = f"{Path(self._index_name).stem}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (ImportError, AttributeError, EOFError, UnpicklingError):
            return {}


class _Cache(FunctionCache):  # type: ignore[misc]  # as above
    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load machine code without numba's registries of all that it can compile, which take 0.14 to 0.26 s.

        The code holds what it calls, but for functions of the runtime. A kernel that hashes texts would need more.
        """
        rtsys.initialize(target_context)
        return self._load_overload(sig, target_context)


@cache
def _counts_references(context: Any, kind: Any) -> bool:
    found: bool = context.data_model_manager[kind].contains_nrt_meminfo()
    return found


def _returns_arrays(kernel: CPUDispatcher) -> bool:
    return any(_counts_references(kernel.targetctx, each.return_type) for each in kernel.nopython_signatures)


class _Called(CPUDispatcher):  # type: ignore[misc]  # as above
    """A kernel as other kernels call it, which is compiled for few types.

    A number that is written in a call is of no type of its own, and what is compiled for an array that it may only
    read is also called with one that may be written to.
    """

    def __init__(self, *arguments: Any, pipeline_class: type[PartCompiler] = PartCompiler, **options: Any) -> None:
        super().__init__(*arguments, pipeline_class=pipeline_class, **options)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return what numba calls.

        Raises:
            TypeError: it returns an array that nobody would free, or somebody too early.
        """
        given = tuple(map(unliteral, args))
        found = super().get_call_template(self._compiled_to_read(given) or given, kws)
        caller = ConfigStack.top_or_none()
        counted = self.targetoptions["_nrt"] and (caller is None or caller.nrt)
        if not counted and _returns_arrays(self):
            raise TypeError(f"{self.py_func.__qualname__} returns an array: make it and its caller @allocating")
        return found

    def _compiled_to_read(self, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return types that it is compiled for and that are those given, but for arrays that it only reads."""
        if self.targetoptions["_nrt"]:
            return None  # it may return them
        return next((types for types in self.overloads if all(map(_reads_as, types, given))), None)


def _reads_as(kind: Any, given: Any) -> bool:
    """Return whether a type is the one that is given, or the same array that may only be read."""
    return kind == given or (isinstance(given, Array) and kind == given.copy(readonly=True))


class _Kernel(CPUDispatcher):  # type: ignore[misc]  # as above
    """A kernel that other kernels call without the entry point for Python, a large part of compiling.

    Only what Python calls is kept on disk: its machine code holds all that it calls.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, pipeline_class=KernelCompiler, **options)
        self._called_by_kernels = _Called(self.py_func, self.locals, self.targetoptions | NO_ENTRIES)

    def enable_caching(self) -> None:
        """Keep machine code on disk."""
        super().enable_caching()
        self._cache.__class__ = _Cache
        kept = self._cache._cache_file  # noqa: SLF001  # numba has no other place for it, here and below
        kept.__class__ = _CachedKernels
        # numba compares the kernel's own file alone: after an upgrade it would run what others were before.
        source = Path(self.py_func.__code__.co_filename)
        kept._source_stamp = stamp = digest_sources(source)  # noqa: SLF001
        inside = source.relative_to(_ROOT).parent
        name = Path(kept._index_name).stem  # noqa: SLF001
        if folder := os.environ.get(WRITE_PORTABLE):
            written = Path(folder, inside)
            written.mkdir(parents=True, exist_ok=True)
            self._cache._cache_file = _CachedKernels(str(written), name, stamp)  # noqa: SLF001
        else:
            kept.portable = _CachedKernels(str(PORTABLE / inside), name, stamp)

    def compile(self, signature: Any) -> Any:
        """Compile without the garbage collector, which walks through all that numba makes: a tenth of the time.

        Raises:
            TypeError: it returns an array to which it counts no reference.
        """
        was_on = gc.isenabled()
        gc.disable()
        try:
            with found_once():
                found = super().compile(signature)
        finally:
            if was_on:
                gc.enable()
        if not self.targetoptions["_nrt"] and _returns_arrays(self):
            raise TypeError(f"{self.py_func.__qualname__} returns an array: make it @allocating")
        return found

    @property
    def _numba_type_(self) -> Any:
        """What numba calls where a kernel names this one."""
        return self._called_by_kernels._numba_type_


def compiled(function: F) -> F:
    """Compile a kernel that runs without the interpreter lock and is kept on disk.

    It counts no references to arrays, which are its caller's: it makes none, and returns none.
    """
    return _compile(function, _nrt=False)


def allocating(function: F) -> F:
    """As ``compiled``, for a kernel that makes or returns arrays: it counts references to all that it names."""
    return _compile(function, _nrt=True)


def _compile(function: F, **options: bool) -> F:
    kernel = _Kernel(function, targetoptions=OPTIONS | options)
    kernel.enable_caching()
    return kernel


def compiled_natively(function: F) -> F:
    """As ``allocating``, but for this very CPU, also where a wheel has code: what counts are the widest vectors."""
    kernel: Any = allocating(function)
    kernel._cache._cache_file.portable = None  # noqa: SLF001  # see enable_caching
    return kernel  # type: ignore[no-any-return]  # as numba's


def inlined(function: F) -> F:
    """As ``compiled``, but put into its callers: calls with many arrays cost more than what they do."""
    kernel: F = numba.njit(cache=True, nogil=True, inline="always")(function)
    return kernel


def forced_inline(function: F) -> F:
    """Compile what LLVM puts into its callers: a call costs as much as a short piece.

    ``inlined`` is done before types are known, and compiling then takes six times as long.
    """
    kernel: Any = _Called(function, targetoptions=OPTIONS | NO_ENTRIES | {"forceinline": True, "_nrt": False})
    return kernel  # type: ignore[no-any-return]  # as numba's


def outlined(function: F) -> F:
    """Compile what LLVM leaves out of its callers: a loop that seldom calls it keeps more in registers."""
    kernel: Any = _Called(function, targetoptions=OPTIONS | NO_ENTRIES | {"_nrt": False}, pipeline_class=ApartCompiler)
    return kernel  # type: ignore[no-any-return]  # as above
