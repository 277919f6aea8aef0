"""Rows of Delta tables as a reader sees them, without those that deletion vectors delete."""
