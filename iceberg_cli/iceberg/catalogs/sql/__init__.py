"""Tables of a SQL catalog."""
