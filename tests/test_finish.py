"""A model whose weights alone are trained says in one line what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemfi import Model, Monitor, Policy, build_model, evaluate, save, scores
from gemfi.data import two_moons
from gemfi.decisions import operating_points
from gemfi.detectors import DETECTORS
from gemfi.errors import InputError
from gemfi.export import Deployed
from gemfi.methods import METHODS
from gemfi.methods.gem_paper import presets

TASK = two_moons(n=100)
LINE = (
    "{} needs a finished model, and the densities of this {} are not fitted: after a loop of your "
    "own, call model.finish(train, validation)"
)

WANTED: dict[str, Callable[[Model, Path], Any]] = {
    "a policy": lambda m, _: Policy.fit(m, TASK.calibration, false_alarm=0.1, score="entropy"),
    "a policy ": lambda m, _: operating_points(m, TASK.calibration),
    "a monitor": lambda m, _: Monitor.fit(m, TASK.calibration),
    "an evaluation": lambda m, _: evaluate(m, TASK.test),
    "a detector": lambda m, _: DETECTORS["knn"]().fit(m, TASK.train),
    "a bundle": lambda m, path: save(path, m),
    "an export": lambda m, _: Deployed(m),
}


def build(method: str, config: Any = None) -> Model:
    return build_model(method, "mlp", 2, config=config, in_features=2, width=8, depth=1)


@pytest.mark.parametrize("method", ["gem-fi", "daedl"])
@pytest.mark.parametrize("what", WANTED)
def test_what_wants_more_than_weights_names_the_call(
    method: str, what: str, tmp_path: Path
) -> None:
    model, path = build(method), tmp_path / "model.safetensors"
    model.inputs = model.inputs.trained_on(TASK.train)
    with pytest.raises(InputError, match=re.escape(LINE.format(what.strip(), method))):
        WANTED[what](model, path)
    assert not path.exists()
    assert len(model.predict(TASK.test)) == len(TASK.test)  # as a loop of one's own has to
    model.finish(TASK.train, TASK.validation)
    WANTED[what](model, path)


def test_a_score_that_needs_a_density_names_the_call() -> None:
    for name in ("density", "unfamiliarity"):
        with pytest.raises(InputError, match=r"call model\.finish\(train, validation\)"):
            scores.SCORES[name](build("gem-fi").predict(TASK.test))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_finished_by_finish(method: str) -> None:
    model = build(method)
    model.finish(TASK.train)
    assert model.head.is_finished


def test_every_reading_of_the_paper_is_finished_by_finish() -> None:
    for config in presets().values():
        model = build("gem-paper", config)
        assert not model.head.is_finished
        model.finish(TASK.train, TASK.validation)
        assert model.head.is_finished
