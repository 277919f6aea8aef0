"""Checkpoints of a Delta log: reading, writing, and the file that names the last one."""
