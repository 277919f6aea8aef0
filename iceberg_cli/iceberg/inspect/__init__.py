"""`inspect` of Iceberg tables."""
