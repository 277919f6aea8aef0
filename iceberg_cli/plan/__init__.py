"""Values of what a verb would change, and of what it changed. No format, no input or output."""
