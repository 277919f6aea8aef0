"""The verbs of Iceberg tables by name.

Each has a folder: its rules and its policy are pure, `plan.py` reads the table.
"""

from __future__ import annotations

from typing import Final

from iceberg_cli.operation.verbs import Verbs

VERBS: Final = Verbs(__name__)
