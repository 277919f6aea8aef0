"""Rows of Iceberg tables as a reader sees them: data files of every format, without what deletes hide."""
