"""Liveness keys that are looked up a few at a time, again and again, as each batch of deletions does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.string_hashes import Hashes, hash_column


@dataclass(frozen=True)
class KeySet:
    """A set of strings, some of them perhaps more than once.

    A look that finds nothing takes time by what is asked for, and hardly by the size of the set: hashes of its strings
    are kept in order, 8 bytes for each.
    """

    keys: pa.ChunkedArray

    def holds(self, asked: pa.Array) -> pa.Array:
        """Which of n strings are in the set."""
        if not len(self.keys) or not len(asked):
            return pa.repeat(value=False, size=len(asked))
        hashes = hash_column(asked)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        same_hash = pa.array(self._hashes[places] == hashes)
        if not same_hash.true_count:
            return same_hash
        # Of equal hashes the strings themselves are compared, which takes time by the size of the set.
        found = pc.is_in(asked.filter(same_hash), value_set=self.keys)
        return pc.replace_with_mask(same_hash, same_hash, found)

    @cached_property
    def _hashes(self) -> Hashes:
        return np.sort(hash_column(self.keys))
