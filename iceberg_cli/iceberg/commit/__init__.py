"""What a commit to an Iceberg table is made of."""
