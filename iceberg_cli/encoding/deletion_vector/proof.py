"""A vectorised check of the usual kind of deletion vector blobs.

Spec: Puffin "deletion-vector-v1 blob type"; RoaringFormatSpec.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from isal import isal_zlib

from iceberg_cli.encoding.deletion_vector.framing import MAGIC, MAX_BLOB_BYTES
from iceberg_cli.encoding.deletion_vector.roaring import ARRAY_LIMIT, NO_RUNS_COOKIE


def unproven(blobs: Sequence[bytes], cardinalities: Sequence[int], max_positions: Sequence[int]) -> list[int]:
    """Indices of those of n blobs that must still be decoded; all others are sound, in all that `decode` checks.

    Only what most vectors are is checked here: one 32-bit bitmap of array containers.

    Args:
        blobs: n blobs.
        cardinalities: n cardinalities that metadata records.
        max_positions: n last positions of data files; -1 where it is not known.
    """
    chosen = [i for i, blob in enumerate(blobs) if _is_plain(blob, cardinalities[i])]
    if not chosen:
        return list(range(len(blobs)))
    containers = np.array([int.from_bytes(blobs[i][24:28], "little") for i in chosen])
    totals = np.array([cardinalities[i] for i in chosen])
    heads = b"".join([blobs[i][28 : 28 + 4 * n] for i, n in zip(chosen, containers.tolist(), strict=True)])
    starts = b"".join(
        [blobs[i][28 + 4 * n : 28 + 8 * n] for i, n in zip(chosen, containers.tolist(), strict=True)]
    )
    values = np.frombuffer(b"".join([blobs[i][-4 - 2 * cardinalities[i] : -4] for i in chosen]), "<u2")
    keys, members = np.frombuffer(heads, "<u2").reshape(-1, 2).T.astype(np.int64)
    members = members + 1
    firsts = np.cumsum(containers) - containers  # of each blob, among all containers
    ends = np.cumsum(members)
    before = np.repeat(ends[firsts] - members[firsts], containers)
    expected = np.repeat(8 + 8 * containers, containers) + 2 * (ends - members - before)
    rising_keys, rising = keys[1:] > keys[:-1], values[1:] > values[:-1]
    rising_keys[firsts[1:] - 1] = True  # the first of a blob follows the last of the blob before
    last = (
        keys[firsts + containers - 1] << 16 | values[np.cumsum(totals) - 1]
        if ends[-1] == len(values)
        else None
    )
    limits = np.array([max_positions[i] for i in chosen])
    if (
        last is None
        or (np.add.reduceat(members, firsts) != totals).any()
        or int(members.max()) > ARRAY_LIMIT
        or not rising_keys.all()
        or (np.frombuffer(starts, "<u4") != expected).any()
        or ((last > limits) & (limits >= 0)).any()
    ):
        return list(range(len(blobs)))
    rising[ends[:-1] - 1] = True
    proven = set(chosen) if rising.all() else set()
    return [i for i in range(len(blobs)) if i not in proven]


def _is_plain(blob: bytes, cardinality: int) -> bool:
    """Whether the frame of a blob is right and its length is that of one bitmap of array containers only."""
    size = len(blob)
    if not 34 <= size <= MAX_BLOB_BYTES or blob[:4] != (size - 8).to_bytes(4, "big"):
        return False
    magic, count, key, cookie, n = struct.unpack_from("<4sqIII", blob, 4)
    return bool(
        (magic, count, key, cookie) == (MAGIC, 1, 0, NO_RUNS_COOKIE)
        and 0 < n <= 1 << 16
        and size == 32 + 8 * n + 2 * cardinality
        and isal_zlib.crc32(memoryview(blob)[4:-4]) == int.from_bytes(blob[-4:], "big")
    )
