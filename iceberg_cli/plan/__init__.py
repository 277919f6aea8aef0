"""Values: what a verb would change, and what it changed. No format, no input or output."""
