"""Apache Iceberg: everything that knows the format."""
