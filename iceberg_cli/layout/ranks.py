"""Ranks of values among those of a sample: what a curve through several columns is made of.

Columns have as many ranks as each other, whatever their values are: one of few values, or of small numbers, decides as
much as the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_cli.encoding.arrow import Bools, one_array
from iceberg_cli.layout.curves import CURVES, Curve, Ranks, curve_of, rank_bits
from iceberg_cli.layout.row_order import as_integers

Comparable = npt.NDArray[Any]

_PREFIX: Final = 64  # bytes of text that are compared; the whole values decide where ranks are equal
_MOST_EXACT_DIGITS: Final = 18
_NULL: Final = 0  # the rank of null, which no value has
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(31)


def comparable(values: pa.Array) -> Comparable:
    """Values as NumPy compares them: no value comes before one that is less; null ones are any.

    -0.0 is 0.0, and NaN is above all numbers. Of text, bytes, and decimals of many digits the order is cut: values that
    are not equal may be here.
    """
    types, kind = pa.types, values.type
    if types.is_floating(kind):
        values = pc.fill_null(values, 0.0)
        numbers = values.to_numpy(zero_copy_only=False)
        numbers = np.where(np.isnan(numbers), np.nan, numbers + 0)
        return np.asarray(as_integers(pa.array(numbers)).to_numpy())
    if types.is_decimal(kind):
        return _unscaled(values, kind.precision)
    if types.is_string(kind) or types.is_binary(kind):
        return np.array([value or b"" for value in values.cast(pa.binary()).to_pylist()], f"S{_PREFIX}")
    if types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif types.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64)


def _unscaled(values: pa.Array, precision: int) -> Comparable:
    """Decimals without their point: exact where 18 digits are enough, else as doubles."""
    words = values.cast(pa.decimal128(38, values.type.scale)).fill_null(0).view(pa.binary(16))
    pairs = np.frombuffer(words.buffers()[1], "<u8")[2 * words.offset :][: 2 * len(words)].reshape(-1, 2)
    if precision <= _MOST_EXACT_DIGITS:
        return pairs[:, 0].astype(np.int64)
    is_negative = pairs[:, 1] >> np.uint64(63) != 0
    # Without its sign a negative number is one less.
    low, high = np.where(is_negative[:, None], ~pairs, pairs).T
    numbers = high * 2.0**64 + low
    return np.asarray(np.where(is_negative, -numbers - 1, numbers), np.float64)


@dataclass(frozen=True, slots=True)
class RankScale:
    """The values of a sample of rows, by which others are ranked.

    Args:
        curve: on which ranks become places.
        samples: of each column the values, ascending.
    """

    curve: Curve
    samples: tuple[Comparable, ...]

    def places(self, columns: Sequence[pa.ChunkedArray]) -> Ranks:
        """The places of n rows on the curve, by their values in its columns."""
        found = [_Values.of(one_array(column)) for column in columns]
        return CURVES[self.curve](_ranks(found, self.samples), rank_bits(len(self.samples)))


class _Values(NamedTuple):
    """n values of a column, and whether each is null."""

    values: Comparable
    is_null: Bools

    @classmethod
    def of(cls, values: pa.Array) -> _Values:
        return cls(comparable(values), values.is_null().to_numpy(zero_copy_only=False))


def _ranks(columns: Sequence[_Values], samples: Sequence[Comparable]) -> Ranks:
    """The ranks of n rows in k columns."""
    bits = rank_bits(len(samples))
    return np.stack(
        [
            np.where(is_null, np.uint64(_NULL), ranks_of(values, sample, bits))
            for (values, is_null), sample in zip(columns, samples, strict=True)
        ],
        axis=1,
    )


def ranks_of(values: Comparable, sample: Comparable, bits: int) -> Ranks:
    """Ranks of n values, from 1 on: the middle of those that are equal in a sample, spread over so many bits.

    Args:
        values: n.
        sample: ascending.
        bits: of the highest rank.
    """
    if not len(sample):
        return np.ones(len(values), np.uint64)
    twice = np.searchsorted(sample, values) + np.searchsorted(sample, values, side="right")
    return (1 + twice * ((1 << bits) - 2) // (2 * len(sample))).astype(np.uint64)


@dataclass(slots=True)
class SampleBuilder:
    """Takes rows in any order, and keeps about some number of them: the same ones each time.

    Args:
        columns: of each row.
        rows: that there are.
        size: of the sample, about.
    """

    columns: int
    rows: int
    size: int = 1 << 16
    _parts: list[list[_Values]] = field(default_factory=list)

    def add(self, inputs: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], rows: pa.Table) -> None:
        """Take n rows, by the numbers of their inputs, and their positions in these."""
        chosen = self._chosen(inputs.astype(np.uint64), positions.astype(np.uint64))
        if chosen.any():
            some = rows.filter(pa.array(chosen))
            self._parts.append([_Values.of(one_array(column)) for column in some.columns])

    def _chosen(
        self, inputs: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.bool_]:
        """Which of some rows are of the sample: by a hash of where they are."""
        mixed = (positions + inputs * _MIX + np.uint64(1)) * _MIX
        mixed ^= mixed >> _SHIFT
        mixed *= _MIX
        share = min(1.0, self.size / max(1, self.rows))
        found: npt.NDArray[np.bool_] = (mixed >> np.uint64(11)) < np.uint64(share * (1 << 53))
        return found

    def scale(self, strategy: Curve) -> RankScale:
        """What the rows that were kept rank others by; see `curve_of` for the curve."""
        if not self._parts:
            return RankScale(strategy, (np.empty(0, np.int64),) * self.columns)
        rows = [
            _Values(*map(np.concatenate, zip(*parts, strict=True)))
            for parts in zip(*self._parts, strict=True)
        ]
        samples = tuple(np.sort(values[~is_null]) for values, is_null in rows)
        return RankScale(curve_of(strategy, _ranks(rows, samples), rank_bits(len(samples))), samples)
