"""The choice of a table's format, storage and engine."""
