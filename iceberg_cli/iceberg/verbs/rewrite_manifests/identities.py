"""A fingerprint of a set of live entries: their number, and sums that do not depend on their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# The fields that must not change when an entry is written again, in another manifest.
IDENTITY: Final = (
    "file_path_hash",
    "content_offset",
    "content",
    "record_count",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "first_row_id",
)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_OTHER = np.uint64(0x94D049BB133111EB)
_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Identities:
    """Number of entries, and two sums modulo 2^64 of 64-bit hashes of their identities."""

    count: int = 0
    one: int = 0
    other: int = 0

    @classmethod
    def of(cls, entries: pa.Table) -> Identities:
        """The identities of entries with the columns `IDENTITY`."""
        hashes: npt.NDArray[np.uint64] = np.full(entries.num_rows, _ODD)
        for name in IDENTITY:
            column = entries[name].combine_chunks()
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            values = column.fill_null(0).to_numpy()
            values = values.astype(np.int64).view(np.uint64) if values.dtype != np.uint64 else values
            hashes = (hashes ^ values) * _MULTIPLIER + valid.astype(np.uint64)
            hashes ^= hashes >> np.uint64(31)
        mixed = hashes * _OTHER
        mixed ^= mixed >> np.uint64(29)
        return cls(
            entries.num_rows, int(hashes.sum(dtype=np.uint64)), int((mixed * mixed).sum(dtype=np.uint64))
        )

    @classmethod
    def together(cls, parts: Iterable[Identities]) -> Identities:
        """The identities of all entries of disjoint sets."""
        found = list(parts)
        return cls(
            sum(part.count for part in found),
            sum(part.one for part in found) & _BITS,
            sum(part.other for part in found) & _BITS,
        )
