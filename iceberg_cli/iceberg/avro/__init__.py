"""Avro object container files, read into columns and written."""
