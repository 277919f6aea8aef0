"""What README.md and the pages of `docs/` show is what the program does: see `pages`."""
