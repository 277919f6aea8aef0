"""A vectorised 64-bit hash of strings, straight from the bytes of a decoded buffer.

Equal strings hash equally wherever they come from. Different ones may collide: a collision may only ever keep a file,
or make who uses the hashes compare the strings themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_CHUNK_ROWS = 8_192  # temporaries stay in the processor's cache
_SEED = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_FINAL = np.uint64(0x94D049BB133111EB)
_TAIL_MASKS = np.array([(1 << 8 * n) - 1 for n in range(8)], np.uint64)
_WORD_BYTES = 8
_BLOCK_BYTES = 4_096  # of longer strings each block is hashed by itself, many at a time


def hash_strings(
    buffer: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Hashes:
    """Hash n byte strings.

    Args:
        buffer: all bytes, with at least 8 more behind the last string.
        starts: n offsets in `buffer`.
        lengths: n lengths in bytes.

    Returns:
        n hashes.
    """
    is_long = lengths > _BLOCK_BYTES
    if is_long.any():
        hashes = np.empty(len(starts), np.uint64)
        hashes[is_long] = _hash_blocks(buffer, starts[is_long], lengths[is_long])
        hashes[~is_long] = hash_strings(buffer, starts[~is_long], lengths[~is_long])
        return hashes
    words = words_of(buffer)
    hashes = np.empty(len(starts), np.uint64)
    for begin in range(0, len(starts), _CHUNK_ROWS):
        rows = slice(begin, begin + _CHUNK_ROWS)
        hashes[rows] = _hash_chunk(words, starts[rows], lengths[rows])
    return hashes


def hash_column(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """Hash every string (or binary value) of an Arrow column; null hashes like the empty string."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    hashes = [_hash_array(chunk) for chunk in chunks]
    return np.concatenate(hashes) if hashes else np.empty(0, np.uint64)


def among(hashes: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """For each of n hashes, whether it is in the sorted `known`."""
    if not len(known):
        return np.zeros(len(hashes), np.bool_)
    places = np.searchsorted(known, hashes)
    places[places == len(known)] = 0
    found: npt.NDArray[np.bool_] = known[places] == hashes
    return found


def words_of(buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """The little-endian 64-bit word at every byte offset of `buffer`; no copy."""
    return np.ndarray((len(buffer) - _WORD_BYTES + 1,), "<u8", buffer=buffer, strides=(1,))


def _hash_array(array: pa.Array) -> Hashes:
    if not (pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)):
        array = array.cast(pa.large_binary())
    _, offsets_buffer, data = array.buffers()
    if not len(array):
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    first = int(offsets[0])
    size = int(offsets[-1]) - first
    padded: npt.NDArray[np.uint8] = np.zeros(size + _WORD_BYTES, np.uint8)
    if size:
        padded[:size] = np.frombuffer(data, np.uint8)[first : first + size]
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return hash_strings(padded, offsets[:-1] - first, lengths)


def _hash_blocks(
    buffer: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Hashes:
    """Hashes of strings by those of their blocks, for which one pass over all of them is enough for each word."""
    counts = -(-lengths // _BLOCK_BYTES)
    firsts = np.cumsum(counts) - counts
    at = (np.arange(counts.sum()) - np.repeat(firsts, counts)) * _BLOCK_BYTES
    sizes = np.minimum(np.repeat(lengths, counts) - at, _BLOCK_BYTES)
    blocks = hash_strings(buffer, np.repeat(starts, counts) + at, sizes)
    joined = np.append(blocks, np.uint64(0)).view(np.uint8)
    found: Hashes = hash_strings(joined, firsts * _WORD_BYTES, counts * _WORD_BYTES)
    return found ^ (lengths.astype(np.uint64) * _MULTIPLIER)


def _hash_chunk(words: Any, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Hashes:
    hashes: Hashes = lengths.astype(np.uint64) * _FINAL + _SEED
    full = lengths >> 3
    everywhere = int(full.min())
    position = starts.copy()
    for _ in range(everywhere):
        hashes ^= words[position]
        hashes *= _MULTIPLIER
        hashes ^= hashes >> np.uint64(32)
        position += _WORD_BYTES
    for index in range(everywhere, int(full.max())):
        rows = np.flatnonzero(full > index)
        mixed = (hashes[rows] ^ words[position[rows]]) * _MULTIPLIER
        hashes[rows] = mixed ^ (mixed >> np.uint64(32))
        position[rows] += _WORD_BYTES
    hashes ^= words[position] & _TAIL_MASKS[lengths & 7]
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint64(29)
    hashes *= _FINAL
    hashes ^= hashes >> np.uint64(32)
    return hashes
