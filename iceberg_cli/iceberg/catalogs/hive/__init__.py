"""Tables of a Hive Metastore."""
