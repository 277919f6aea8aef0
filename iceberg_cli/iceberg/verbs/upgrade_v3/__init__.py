"""`upgrade-v3` of Iceberg tables."""
