"""`undo` of Iceberg tables."""
