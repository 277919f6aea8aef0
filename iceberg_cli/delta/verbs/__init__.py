"""The verbs of Delta tables, a folder each: its rules and its policy are pure, `plan.py` reads the table."""
