"""The table properties that say how long a table keeps what it no longer uses, and what holds without them.

Spec: the protocol leaves these to writers; the defaults are Delta Spark's.
"""

from __future__ import annotations

from typing import Final

DAY_MS: Final = 86_400_000
FILES_PROPERTY: Final = "delta.deletedFileRetentionDuration"
FILES_DEFAULT_MS: Final = 7 * DAY_MS
LOG_PROPERTY: Final = "delta.logRetentionDuration"
LOG_DEFAULT_MS: Final = 30 * DAY_MS
TRANSACTIONS_PROPERTY: Final = "delta.setTransactionRetentionDuration"
