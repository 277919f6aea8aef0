"""Which files the snapshots of an Iceberg table reach."""
