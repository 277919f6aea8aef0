"""Tests of undo on Iceberg tables."""
