"""The Iceberg specification's files and rules, without input or output."""
