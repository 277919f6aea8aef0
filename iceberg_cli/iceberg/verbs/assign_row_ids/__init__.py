"""`assign-row-ids` of Iceberg tables."""
