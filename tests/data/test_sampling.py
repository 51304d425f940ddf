"""Seeded generators and stratified draws."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gemfi.data.sampling import generator, stratified_indices


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.data())
def test_stratified_draws(sizes: list[int], data: st.DataObject) -> None:
    """Exact count, each class within one of its quota unless a small class caps it, one kept."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    room = len(labels) - sum(size > 0 for size in sizes)
    if room < 1:
        return
    count = data.draw(st.integers(1, room))
    chosen = stratified_indices(labels, count, seed=data.draw(st.integers(0, 5)))
    assert len(set(chosen.tolist())) == len(chosen) == count
    assert np.array_equal(chosen, np.sort(chosen))
    taken = np.bincount(labels[chosen], minlength=len(sizes))
    quota = count * np.array(sizes) / len(labels)
    assert (taken >= np.floor(quota - 1e-9)).all()
    assert all(took <= size - 1 for took, size in zip(taken, sizes, strict=True) if size)
    capped = (np.ceil(quota - 1e-9) > np.array(sizes) - 1).any()
    assert capped or (taken <= np.ceil(quota + 1e-9)).all()


def test_streams_of_a_seed_differ() -> None:
    draws = [generator(*key).random() for key in [(0,), (0, 0), (0, 1), (1,), (1, 0), (2**32,)]]
    assert len(set(draws)) == len(draws)
    assert generator(5, 2).random() == generator(5, 2).random()
