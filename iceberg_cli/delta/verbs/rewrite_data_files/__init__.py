"""Rows of small files, and of files with many deleted rows, written to few files, without changing any row."""
