"""What compiled tile kernels reach, beside NumPy and torch."""
