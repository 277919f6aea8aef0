"""What a commit to a Delta table is made of."""
