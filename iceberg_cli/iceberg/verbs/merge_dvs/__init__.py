"""`merge-dvs` of Iceberg tables."""
