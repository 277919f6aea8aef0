"""Tests of remove-orphan-files on Iceberg tables."""
