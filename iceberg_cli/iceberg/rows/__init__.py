"""Rows of Iceberg tables: read from data files of every format without what deletes hide, and written to Parquet."""
