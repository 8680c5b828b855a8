"""Measurements of PTO-WSP against its bars and its rivals; see README.md."""
