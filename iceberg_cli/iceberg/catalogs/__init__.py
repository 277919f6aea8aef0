"""Where the location of a table's current metadata is kept, and how it is swapped."""
