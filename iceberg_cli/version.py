"""The name that this is installed by, and its version."""

DISTRIBUTION = "iceberg-table-maintenance"
__version__ = "0.1.0"
