"""Tables of a REST catalog."""
