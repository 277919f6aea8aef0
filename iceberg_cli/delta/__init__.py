"""Delta Lake: everything that knows the transaction log protocol."""
