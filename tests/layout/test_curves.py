"""Curves: each place once, and what they are defined by."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from iceberg_cli.layout.curves import CURVES, Curve, curve_of, hilbert, rank_bits, z_order

SIZES = [(1, 4), (2, 1), (2, 5), (3, 3), (4, 2), (9, 1)]  # columns, and bits of each


def every_rank(columns: int, bits: int) -> np.ndarray:
    return np.array(list(itertools.product(range(1 << bits), repeat=columns)), np.uint64)


@pytest.mark.parametrize(("columns", "bits"), SIZES)
def test_each_place_of_hilbert_s_curve_is_next_to_the_one_before(columns: int, bits: int) -> None:
    ranks = every_rank(columns, bits)
    places = hilbert(ranks, bits)
    assert sorted(places.tolist()) == list(range(len(ranks)))
    ordered = ranks[np.argsort(places)].astype(np.int64)
    assert (np.abs(np.diff(ordered, axis=0)).sum(axis=1) == 1).all()


@pytest.mark.parametrize(("columns", "bits"), SIZES)
def test_a_z_order_takes_the_bits_in_turn(columns: int, bits: int) -> None:
    ranks = every_rank(columns, bits)
    texts = [[f"{int(rank):0{bits}b}" for rank in row] for row in ranks]
    expected = ["".join(text[bit] for bit in range(bits) for text in row) for row in texts]
    assert [f"{int(place):0{columns * bits}b}" for place in z_order(ranks, bits)] == expected


def test_a_place_is_a_number_that_has_a_sign() -> None:
    for columns in range(1, 10):
        bits = rank_bits(columns)
        highest = np.full((1, columns), (1 << bits) - 1, np.uint64)
        assert 0 < int(z_order(highest, bits)[0]) == (1 << columns * bits) - 1 < 1 << 63
        assert int(hilbert(highest, bits)[0]) < 1 << 63


BITS = 10
_DRAWN = np.random.default_rng(44)
_SPREAD, _OTHER, _NOISE = _DRAWN.random(4_000), _DRAWN.random(4_000), _DRAWN.normal(size=4_000) / 500
TABLES = {
    "even": (_SPREAD, _OTHER),
    "one follows from the other": (_SPREAD, _SPREAD + _NOISE),
    "they grow against each other": (_SPREAD, _NOISE - _SPREAD),
    "three, of which two follow": (_SPREAD, _SPREAD + _NOISE, _SPREAD - _NOISE),
    "of few values": (np.floor(_SPREAD * 5), _OTHER),
}


def opened(ranks: np.ndarray, places: np.ndarray, files: int) -> Fraction:
    """How many files of equally many rows a read of a row's value opens, over all columns: by looking at each file."""
    parts = np.array_split(ranks[np.argsort(places, kind="stable")], files)
    found = 0
    for part in parts:
        least, most = part.min(axis=0), part.max(axis=0)
        found += int(((least <= ranks) & (ranks <= most)).sum())
    return Fraction(found, len(ranks))


def ranked(columns: tuple[np.ndarray, ...]) -> np.ndarray:
    places = [np.argsort(np.argsort(each, kind="stable")) for each in columns]
    return np.stack([(1 << BITS) * each // len(each) for each in places], axis=1).astype(np.uint64)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("files", [8, 25, 32, 200])
def test_rows_are_laid_along_the_curve_of_which_reads_open_less(name: str, files: int) -> None:
    ranks = ranked(TABLES[name])
    found = curve_of("hilbert", ranks, BITS)
    by_curve = {curve: opened(ranks, CURVES[curve](ranks, BITS), files) for curve in CURVES}
    assert by_curve[found] <= min(by_curve.values()) * Fraction(105, 100)
    assert found == ("z-order" if "follow" in name else "hilbert")


@pytest.mark.parametrize("strategy", ["hilbert", "z-order"])
def test_a_z_order_that_was_asked_for_is_one_and_of_no_rows_each_is(strategy: Curve) -> None:
    assert curve_of("z-order", ranked(TABLES["even"]), BITS) == "z-order"
    assert curve_of(strategy, np.empty((0, 2), np.uint64), BITS) == strategy
    assert curve_of(strategy, np.ones((1, 2), np.uint64), BITS) == strategy
