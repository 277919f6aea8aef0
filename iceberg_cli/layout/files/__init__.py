"""New data files of either format: rows on their way to them, how they are written, and how they are read back."""
