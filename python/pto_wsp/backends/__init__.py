"""Targets: each runs plans."""
