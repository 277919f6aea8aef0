"""The keys of rows that equality deletes hide, looked up by many rows at once.

Spec: "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import Bools
from iceberg_cli.encoding.string_hash import Hashes, hash_column


@dataclass(frozen=True, slots=True, eq=False)
class DeletedKeys:
    """The keys in n rows of some equality delete files, by their hashes.

    Args:
        hashes: n, ascending.
        keys: n, in this order.
        files: n, the places of their files.
        places: by the paths of the files.
    """

    hashes: Hashes
    keys: pa.Array
    files: npt.NDArray[np.int64]
    places: Mapping[str, int]

    @classmethod
    def of(cls, keys_of_files: Mapping[str, pa.Array]) -> Self:
        """Of files by their paths, see `data_files.keys_of`."""
        some = [each.cast(pa.large_binary()) for each in keys_of_files.values()]
        keys = pa.chunked_array(some, pa.large_binary()).combine_chunks()
        hashes = hash_column(keys)
        order = np.argsort(hashes, kind="stable")
        files = np.repeat(np.arange(len(some)), [len(each) for each in some])
        return cls(
            hashes=hashes[order],
            keys=keys.take(pa.array(order)),
            files=files[order],
            places={path: place for place, path in enumerate(keys_of_files)},
        )

    def marks(self, keys: pa.Array, paths: Sequence[str]) -> Bools:
        """For each of some rows, by their keys, whether one of some files has it."""
        marks = np.zeros(len(keys), np.bool_)
        applies = np.zeros(len(self.places), np.bool_)
        applies[[self.places[path] for path in paths]] = True
        hashes = hash_column(keys)
        begins = np.searchsorted(self.hashes, hashes)
        rows = np.flatnonzero(begins < len(self.hashes))
        rows = rows[self.hashes[begins[rows]] == hashes[rows]]
        begins, ends = begins[rows], np.searchsorted(self.hashes, hashes[rows], "right")
        lengths = ends - begins
        # Each of these rows with each key of its hash, in pairs.
        pair_rows = np.repeat(rows, lengths)
        pair_keys = np.arange(len(pair_rows)) + np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
        applied = applies[self.files[pair_keys]]
        pair_rows, pair_keys = pair_rows[applied], pair_keys[applied]
        equal = pc.equal(
            keys.take(pa.array(pair_rows)).cast(pa.large_binary()), self.keys.take(pa.array(pair_keys))
        )
        marks[pair_rows[equal.to_numpy(zero_copy_only=False)]] = True
        return marks


NO_KEYS = DeletedKeys.of({})
