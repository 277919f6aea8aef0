"""`inspect --check` of Iceberg tables."""
