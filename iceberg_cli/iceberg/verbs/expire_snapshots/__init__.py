"""`expire-snapshots` of Iceberg tables."""
