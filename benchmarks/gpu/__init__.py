"""Measurements of the cuda target on a GPU; see ../README.md."""
