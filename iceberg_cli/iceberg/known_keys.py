"""Which of some keys are among very many? Answered without sorting the many where the asked are few.

A key is the 64-bit hash of a path, see `reachability.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from iceberg_cli.iceberg.reachability import NO_KEYS, Keys, among, key_set

_FEW = 8  # so many times more keys are known than asked for: looking through them once is quicker than sorting them
_LOOKS = 4  # so many looks cost about as much as sorting
_AT_ONCE = 1 << 16  # keys that are looked at together: the processor's cache holds them
_BITS_FOR_EACH = 6  # of the table that rules keys out, as a power of two: one key in 64 passes it
_LEAST_BITS, _MOST_BITS = 16, 22


class KnownKeys:
    """Keys of everything that stays.

    Args:
        blocks: any number of arrays of keys, in any order; a key may be in several.
    """

    def __init__(self, blocks: Sequence[Keys]) -> None:
        self._blocks = [block for block in blocks if len(block)]
        self._whole: Keys | None = None
        self._looks = 0
        self.size = sum(map(len, self._blocks))  # of all blocks together

    def whole(self) -> Keys:
        """All of them, sorted, each once."""
        if self._whole is None:
            self._whole = key_set(self._blocks)
            self._blocks = [self._whole]
        return self._whole

    def few(self, count: int) -> bool:
        """Whether so many keys are few beside the known ones."""
        return count * _FEW < self.size

    def holds(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """For each of n keys, whether it is known."""
        if self._whole is None and self.few(len(keys)) and self._looks < _LOOKS:
            self._looks += 1
            return among(keys, self._those_of(keys))
        return among(keys, self.whole())

    def _those_of(self, keys: Keys) -> Keys:
        """The known keys that are in `keys`, and some others."""
        if not len(keys):
            return NO_KEYS
        bits = min(max(len(keys).bit_length() + _BITS_FOR_EACH, _LEAST_BITS), _MOST_BITS)
        shift = np.uint64(64 - bits)
        asked = np.zeros(1 << bits, np.bool_)
        asked[keys >> shift] = True
        # Signed places: numpy would copy others to such before it looks them up.
        return key_set([block[asked[(block >> shift).view(np.int64)]] for block in self._together()])

    def _together(self) -> Iterator[Keys]:
        """Blocks of many keys: numpy takes as long for an array of two hundred as for one of two thousand."""
        waiting: list[Keys] = []
        count = 0
        for block in self._blocks:
            waiting.append(block)
            count += len(block)
            if count >= _AT_ONCE:
                yield np.concatenate(waiting)
                waiting, count = [], 0
        if waiting:
            yield np.concatenate(waiting)
