"""`remove-orphan-files` of Iceberg tables."""
