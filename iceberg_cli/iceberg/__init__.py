"""The Iceberg specification, and Iceberg's half of every verb: bytes and columns in, values out."""
