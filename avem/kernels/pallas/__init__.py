"""Kernels for GPUs, written in Pallas."""
