"""Workloads of language models, beside what memory gives and beside torch."""
