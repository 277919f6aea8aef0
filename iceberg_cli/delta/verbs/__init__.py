"""The verbs of Delta tables by name.

A verb's rules are pure and in `delta/`; here is the shell around them.
"""

from __future__ import annotations

from typing import Final

from iceberg_cli.operation.verbs import Verbs

VERBS: Final = Verbs(__name__)
