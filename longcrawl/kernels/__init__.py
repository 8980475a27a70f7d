"""numba kernels shared by several packages."""
