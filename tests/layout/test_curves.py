"""Curves: each place once, and what they are defined by."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from iceberg_cli.layout.curves import hilbert, rank_bits, z_order

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
