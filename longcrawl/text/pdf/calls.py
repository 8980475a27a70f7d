"""Cheaper calls of PDFium's C functions."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt


def bulk(function: Any, returned: Any = None, *arguments: Any) -> Any:
    """Return a short C function that is cheaper to call many times.

    Without types of ``arguments``, these are plain integers and results of :func:`pointer`, which ctypes passes on
    without a conversion. The calls keep the interpreter lock.
    """
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None  # for mypy: a function has an address
    return ctypes.PYFUNCTYPE(returned, *arguments)(address)


def pointer(handle: Any) -> Any:
    """Return a pointer, or the address of one, as an argument of a bulk function."""
    return ctypes.c_void_p.from_param(ctypes.cast(handle, ctypes.c_void_p).value)


def addresses(table: npt.NDArray[np.float64], place: int) -> range:
    """Return the addresses of a column's values."""
    start, step = table.ctypes.data + place * table.itemsize, table.strides[0]
    return range(start, start + step * len(table), step)
