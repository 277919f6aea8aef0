"""The sizes that a checked table's storage says of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from iceberg_cli.errors import UsageError
from iceberg_cli.findings import Ints, RuleFindings
from iceberg_cli.paths import scheme_of
from iceberg_cli.storage import Storage

GONE: Final = -1
OUT_OF_REACH: Final = -2


def stored_sizes(storage: Storage, paths: Sequence[str], findings: RuleFindings) -> Ints:
    """Size in bytes of each of n files, in their order, or `GONE`.

    Of a scheme that has no storage here all are `OUT_OF_REACH`, and that is one finding.
    """
    try:
        return _numbers(storage.stat_many(paths))
    except UsageError:
        pass
    sizes: Ints = np.full(len(paths), OUT_OF_REACH, np.int64)
    schemes = np.array([scheme_of(path) for path in paths])
    for scheme in sorted(set(schemes.tolist())):
        places = np.flatnonzero(schemes == scheme)
        own = [paths[place] for place in places.tolist()]
        try:
            sizes[places] = _numbers(storage.stat_many(own))
        except UsageError as error:
            findings.add("file-out-of-reach", own[0], error.message, times=len(own))
    return sizes


def _numbers(sizes: Sequence[int | None]) -> Ints:
    return np.array([GONE if size is None else size for size in sizes], np.int64)
