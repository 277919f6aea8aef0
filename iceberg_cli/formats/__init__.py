"""Which format, storage and engine a table has."""
