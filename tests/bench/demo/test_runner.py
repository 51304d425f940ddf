from __future__ import annotations

import pytest

from gemfi_bench import toys

BEST = 100 * 11 / 12
"""Accuracy on the line that no classifier exceeds on average, in percent."""


@pytest.mark.parametrize("seed", [0, 1])
def test_every_method_learns_the_line(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the quick demo; an interval that is missed costs a sixth of the inputs."""
    plans = tuple(plan for plan in toys.PLANS if plan.task == "line")
    monkeypatch.setattr(toys, "PLANS", plans)
    for run in toys.run_demo(seed, quick=True):
        assert run.evaluation.classification["accuracy"] > BEST - 3, run.plan.method
