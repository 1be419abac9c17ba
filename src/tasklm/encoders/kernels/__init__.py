"""Kernels for GPUs; imported only where there is one."""
