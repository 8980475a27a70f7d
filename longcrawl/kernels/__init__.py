"""Kernels of numba that several packages share."""
