"""What every open table is, whatever its format: its storage and engine, its own files, its open operations."""
