"""The verbs of Iceberg tables, a folder each: its rules and its policy are pure, `plan.py` reads the table."""
