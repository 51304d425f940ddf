"""GEMClassifier: scikit-learn's own checks, any input and label, and what its numbers are."""

from __future__ import annotations

import copy
import random
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import sklearn
import torch
from scipy import optimize
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, load_wine, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import gemfi
from gemfi import METHODS, scores
from gemfi.calibration import fit_temperature
from gemfi.decisions import Costs, Goal, Verdict
from gemfi.errors import GemfiWarning, InputError
from gemfi.estimator import GEMClassifier, inputs
from gemfi.estimator.inputs import Scaling
from gemfi.estimator.training import (
    PRIOR,
    Budget,
    choose_budget,
    default_steps,
    split_parts,
)
from gemfi.methods import EDLConfig, GEMConfig
from gemfi.training.run_data import batches_per_epoch

Array = npt.NDArray[Any]


def quick(method: str = "softmax", **settings: Any) -> GEMClassifier:
    """A classifier that trains for a moment."""
    return GEMClassifier(method, **{"max_steps": 25, "random_state": 0, **settings})


def blobs(count: int = 200, classes: int = 3, seed: int = 0) -> tuple[Array, Array]:
    x, y = make_blobs(count, n_features=4, centers=classes, random_state=seed)
    return x, y


@pytest.fixture(scope="module")
def iris() -> tuple[GEMClassifier, Array, Array]:
    """The default on iris, and what it was not trained on."""
    x, y = load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    train, test, seen, unseen = train_test_split(x, names, stratify=names, random_state=0)
    return GEMClassifier(random_state=0).fit(train, seen), test, unseen


# -- scikit-learn's own checks -------------------------------------------------------------------


REPEATED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "weights are drawn by, so that a weight of 2 is a row twice on average and not in each bit"
    )
}
"""What a stochastic estimator cannot pass."""


@parametrize_with_checks([GEMClassifier()], expected_failed_checks=lambda _: REPEATED)
def test_the_checks_of_scikit_learn(
    estimator: GEMClassifier, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # without it one of them does not run
    try:
        check(estimator)
    except unittest.SkipTest as skipped:
        pytest.fail(f"skipped: {skipped}")


# -- it classifies -------------------------------------------------------------------------------


def test_iris(iris: tuple[GEMClassifier, Array, Array]) -> None:
    classifier, x, y = iris
    assert classifier.score(x, y) > 0.9
    assert classifier.n_features_in_ == 4
    assert list(classifier.feature_names_in_) == list(x.columns)
    assert list(classifier.classes_) == ["setosa", "versicolor", "virginica"]
    assert classifier.n_iter_ == len(classifier.history_)


def test_probabilities_are_those_of_the_model_at_its_temperature() -> None:
    x, y = blobs(400, classes=4)
    x = x + 3 * np.random.default_rng(0).normal(size=x.shape)  # so that some are wrong
    classifier = quick().fit(x, y)
    p = classifier.predict_proba(x)
    assert p.dtype == np.float64
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    assert classifier.log_temperature_ != 0
    belief = replace(classifier.model_.predict(torch.from_numpy(x)), log_temperature=None)
    raw = belief.probs().numpy()
    powered = raw ** np.exp(-classifier.log_temperature_)
    np.testing.assert_allclose(p, powered / powered.sum(axis=1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(classifier.predict_log_proba(x), np.log(p), atol=1e-9)
    assert (classifier.predict(x) == classifier.classes_[p.argmax(axis=1)]).all()


def test_the_temperature_comes_from_validation_samples() -> None:
    x, y = blobs(400, classes=4)
    x = x + 3 * np.random.default_rng(0).normal(size=x.shape)
    classifier = quick(patience=None).fit(x, y)  # so that the model is not trained again
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    held = split_parts(y, None, None, seed).validation
    belief = classifier.model_.predict(torch.from_numpy(x[held]))
    assert belief.log_temperature == pytest.approx(classifier.log_temperature_)
    belief = replace(belief, log_temperature=None)
    expected = shrunk(belief.log_probs(), torch.from_numpy(y[held]))
    # it was fitted before the model became one of float64
    assert classifier.log_temperature_ == pytest.approx(expected, rel=1e-4)
    assert classifier.log_temperature_ != 0


def shrunk(log_p: torch.Tensor, y: torch.Tensor, **options: Any) -> float:
    return float(fit_temperature(log_p, y, **{"prior": PRIOR, **options}))


def random_predictions(count: int, right: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of three classes, and labels of which a share is the most probable one."""
    generator = torch.Generator().manual_seed(count)
    log_p = torch.log_softmax(4 * torch.randn(count, 3, generator=generator).double(), dim=1)
    other = torch.randint(3, (count,), generator=generator)
    sure = torch.rand(count, generator=generator) < right
    return log_p, torch.where(sure, log_p.argmax(dim=1), other)


@pytest.mark.parametrize("count", [1, 20, 300])
@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_temperature_is_the_most_probable_one(
    count: int, right: float, *, weighted: bool
) -> None:
    log_p, y = random_predictions(count, right)
    weight = torch.arange(1, count + 1).double() if weighted else None
    copies = np.ones(count) if weight is None else (weight * count / weight.sum()).numpy()

    def energy(log_temperature: float) -> float:
        cooled = torch.log_softmax(log_p * np.exp(-log_temperature), dim=1).numpy()
        return float(
            -copies @ cooled[np.arange(count), y.numpy()] + log_temperature**2 / (2 * 0.15**2)
        )

    bounds = (np.log(0.05), np.log(20))
    expected = optimize.minimize_scalar(energy, bounds=bounds, method="bounded").x
    assert shrunk(log_p, y, weight=weight) == pytest.approx(expected, abs=1e-4)


def test_the_temperature_of_many_samples_is_the_usual_one() -> None:
    log_p, y = random_predictions(20_000, 0.7)
    usual = float(fit_temperature(log_p, y))
    assert shrunk(log_p, y) == pytest.approx(usual, abs=0.02)
    assert shrunk(log_p, y, prior=1e6) == pytest.approx(usual, abs=1e-6)


def test_a_temperature_where_all_are_alike_or_right() -> None:
    log_p, y = random_predictions(20, 1.0)
    assert float(fit_temperature(log_p, y)) == pytest.approx(np.log(0.05))  # the bound
    assert -0.5 < shrunk(log_p, y) < 0
    uniform = torch.full((5, 4), 0.25).log()
    found = shrunk(uniform, torch.zeros(5, dtype=torch.int64))
    assert found == pytest.approx(0, abs=1e-9)
    impossible = torch.tensor([[0.0, -1e3]])  # as the estimator has it
    assert 0 < shrunk(impossible, torch.tensor([1])) <= np.log(20)


@pytest.mark.parametrize("name", METHODS)
def test_every_method(name: str) -> None:
    x, y = blobs(120)
    classifier = quick(name, max_steps=12).fit(x, y)
    assert classifier.predict_proba(x).shape == (120, 3)
    found = classifier.predict_uncertainty(x)
    assert all(np.isfinite(column).all() for column in found.values())
    epistemic = classifier.model_.head.named_scores["epistemic"]
    assert epistemic in found
    assert len(classifier.decide(x)) == 120


def test_a_configuration_reaches_the_method() -> None:
    x, y = blobs(60)
    classifier = quick("gem-fi", config=GEMConfig(num_components=2), max_steps=4).fit(x, y)
    assert classifier.model_.predict(x).log_p.shape == (60, 2, 3)
    with pytest.raises(InputError, match="gem-fi takes a GEMConfig, got EDLConfig"):
        quick("gem-fi", config=EDLConfig()).fit(x, y)


# -- any label, any input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        np.array(["ham", "spam", "eggs"]),
        np.array(["ham", "spam", "eggs"], dtype=object),
        np.array([-5, 0, 70]),
        np.array([0.0, 1.0, 2.0]),
        np.array([False, True, True]),
        np.array([3, 200, 7], dtype=np.uint8),
    ],
    ids=lambda names: str(names.dtype),
)
def test_labels_of_any_type(names: Array) -> None:
    x, y = blobs()
    classifier = quick().fit(x, names[y])
    assert (classifier.classes_ == np.unique(names)).all()
    predicted = classifier.predict(x)
    assert predicted.dtype == names.dtype
    assert (predicted == names[y]).mean() > 0.9
    decisions = classifier.decide(x)
    assert (decisions.label == predicted).all()
    assert decisions[0].label in names.tolist()


def test_labels_of_pandas_and_torch() -> None:
    x, y = blobs()
    expected = quick().fit(x, y).predict_proba(x)
    for labels in (pd.Series(y), torch.from_numpy(y), y.tolist(), pd.Categorical(y)):
        classifier = quick().fit(x, labels)
        np.testing.assert_array_equal(classifier.predict_proba(x), expected)
        assert classifier.score(x, labels) == (expected.argmax(axis=1) == y).mean()


def read_only(x: Array) -> Array:
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    "given",
    [
        lambda x: x.astype(np.float32),
        lambda x: x.astype(np.uint8),
        lambda x: x.astype(">f8"),
        np.asfortranarray,
        read_only,
        lambda x: x.tolist(),
        lambda x: pd.DataFrame(x).astype({0: "int16", 1: "float32"}),
        lambda x: torch.from_numpy(x).requires_grad_(),
        lambda x: torch.from_numpy(x).to(torch.bfloat16),
    ],
    ids=[
        "float32",
        "uint8",
        "big-endian",
        "fortran",
        "read-only",
        "list",
        "frame",
        "torch",
        "bf16",
    ],
)
def test_the_same_numbers_in_any_form_give_the_same_model(given: Any) -> None:
    x, y = blobs()
    x = np.rint(x * 4 + 100)  # small whole numbers, which every type holds
    expected = quick().fit(x, y)
    found = quick().fit(given(x), y)
    np.testing.assert_array_equal(found.predict_proba(given(x)), expected.predict_proba(x))


def test_booleans() -> None:
    x = np.random.default_rng(0).integers(2, size=(200, 5)).astype(bool)
    y = x[:, 0] ^ x[:, 1]
    assert quick(max_steps=150).fit(x, y).score(x, y) > 0.9


def test_a_column_that_float32_cannot_hold() -> None:
    seconds = 1.7e9 + np.random.default_rng(0).uniform(0, 60, size=(300, 1))
    y = seconds[:, 0] > 1.7e9 + 30
    assert quick(max_steps=100).fit(seconds, y).score(seconds, y) > 0.95


def test_units_do_not_matter() -> None:
    x, y = blobs()
    units = np.array([2.0**20, 1.0, 2.0**-30, 4.0])  # powers of two, so that nothing is rounded
    one, other = quick().fit(x, y), quick().fit(x * units, y)
    np.testing.assert_allclose(one.predict_proba(x), other.predict_proba(x * units), atol=1e-9)


def test_the_model_takes_x_as_it_is() -> None:
    x, y = blobs()
    classifier = quick("gem-fi", max_steps=10).fit(1e3 * x + 7, y)
    labels = classifier.model_.predict(torch.from_numpy(1e3 * x + 7)).labels().numpy()
    assert (classifier.classes_[labels] == classifier.predict(1e3 * x + 7)).all()


def test_images_and_a_backbone_by_name() -> None:
    x, y = load_digits(n_class=3, return_X_y=True)
    images = x.reshape(-1, 1, 8, 8)
    settings = {"backbone": "convnet", "backbone_options": {"channels": 8}, "learning_rate": 5e-3}
    classifier = quick(**settings).fit(images, y)
    assert classifier.score(images, y) > 0.9
    assert classifier.n_features_in_ == 1
    with pytest.raises(InputError, match=r"convnet takes square images .*\(64,\)"):
        quick(**settings).fit(x, y)
    with pytest.raises(InputError, match=r"trained on inputs \(1, 8, 8\)"):
        classifier.predict(images[:, :, :4])


class Own(nn.Module):
    """A backbone without `num_features`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))


@pytest.mark.parametrize("name", ["softmax", "ensemble"])
def test_a_module_is_copied(name: str) -> None:
    x, y = blobs()
    backbone = Own()
    before = copy.deepcopy(backbone.state_dict())
    classifier = quick(name, backbone=backbone, learning_rate=0.05).fit(x, y)
    assert classifier.score(x, y) > 0.9
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())


# -- determinism ---------------------------------------------------------------------------------


def test_a_random_state_decides_everything() -> None:
    x, y = blobs()
    one, again, other = (
        quick("gem-fi", max_steps=10, random_state=seed).fit(x, y) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one.predict_proba(x), again.predict_proba(x))
    np.testing.assert_array_equal(one.decide(x).p_value, again.decide(x).p_value)
    assert (one.predict_proba(x) != other.predict_proba(x)).any()
    state = np.random.RandomState(0)
    drawn = [quick(max_steps=10, random_state=state).fit(x, y).predict_proba(x) for _ in range(2)]
    assert (drawn[0] != drawn[1]).any()


@pytest.mark.parametrize("seed", [0, None])
@pytest.mark.parametrize("name", ["gem-fi", "ensemble", "mc-dropout"])
def test_no_global_state_is_touched(name: str, seed: int | None) -> None:
    x, y = blobs(60)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    classifier = quick(name, max_steps=4, random_state=seed).fit(x, y)
    classifier.predict_uncertainty(x)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002
    assert random.getstate() == before[2]


def test_without_a_random_state_results_differ() -> None:
    x, y = blobs(60)
    one, other = (quick(max_steps=4, random_state=None).fit(x, y) for _ in range(2))
    assert (one.predict_proba(x) != other.predict_proba(x)).any()


# -- uncertainty ---------------------------------------------------------------------------------


def test_named_columns(iris: tuple[GEMClassifier, Array, Array]) -> None:
    classifier, x, _ = iris
    found = classifier.predict_uncertainty(x)
    total = found["aleatoric"] + found["within"] + found["between"]
    np.testing.assert_allclose(found["total"], total, atol=1e-12)
    np.testing.assert_allclose(found["epistemic"], found["within"] + found["between"], atol=1e-15)
    np.testing.assert_allclose(
        found["max_prob"], 1 - classifier.predict_proba(x).max(axis=1), atol=1e-12
    )
    belief = classifier.model_.predict(torch.from_numpy(x.to_numpy()))
    for name in ("evidence", "energy", "unfamiliarity"):
        np.testing.assert_allclose(found[name], scores.SCORES[name](belief).numpy())
    assert set(scores.available(belief)) <= set(found)


def test_many_samples_are_asked_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = blobs(130)
    classifier = quick("gem-fi", max_steps=5).fit(x, y)
    whole = classifier.predict_uncertainty(x), classifier.decide(x), classifier.predict(x)
    monkeypatch.setattr(inputs, "ROWS", 50)
    for name, column in classifier.predict_uncertainty(x).items():
        np.testing.assert_allclose(column, whole[0][name], atol=1e-9)
    np.testing.assert_array_equal(classifier.decide(x).p_value, whole[1].p_value)
    np.testing.assert_array_equal(classifier.predict(x), whole[2])
    assert len(list(inputs.chunks(x))) == 3


def test_a_method_has_the_columns_that_it_can_fill() -> None:
    x, y = blobs(60)
    found = quick(max_steps=4).fit(x, y).predict_uncertainty(x)
    assert "entropy" in found
    assert not {"evidence", "energy", "unfamiliarity"} & set(found)


def test_data_frames_come_out_where_they_go_in_or_are_asked_for() -> None:
    x, y = blobs(60)
    classifier = quick(max_steps=4).fit(x, y)
    frame = pd.DataFrame(x, index=[f"row {each}" for each in range(60)])
    plain = classifier.predict_uncertainty(x)
    given = quick(max_steps=4).fit(frame, y).predict_uncertainty(frame)
    assert list(given.index) == list(frame.index)
    assert list(given.columns) == list(plain)
    np.testing.assert_array_equal(given["entropy"], plain["entropy"])
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(classifier.predict_uncertainty(x), pd.DataFrame)
    asked = clone(quick(max_steps=4).set_output(transform="pandas")).fit(x, y)
    assert isinstance(asked.predict_uncertainty(x), pd.DataFrame)
    assert isinstance(asked.set_output().predict_uncertainty(x), pd.DataFrame)
    assert isinstance(asked.set_output(transform="default").predict_uncertainty(x), dict)
    with pytest.raises(InputError, match="transform must be one of default, pandas"):
        classifier.set_output(transform="polars")


# -- decisions -----------------------------------------------------------------------------------


def test_decisions_on_iris(iris: tuple[GEMClassifier, Array, Array]) -> None:
    classifier, x, y = iris
    decisions = classifier.decide(x)
    assert (decisions.label == classifier.predict(x)).all()
    assert decisions.counts()["accept"] > 0.8 * len(x)
    assert (decisions.label == y)[decisions.accepted].mean() > 0.9
    with pytest.warns(GemfiWarning, match="look like they are on another scale"):
        far = classifier.decide(x * np.array([1, -30, 1, 30]))
    assert far.counts() == {"accept": 0, "abstain": 0, "unfamiliar": len(x)}
    assert far[0].verdict is Verdict.UNFAMILIAR
    assert isinstance(far[0].label, str)


@pytest.mark.filterwarnings("ignore:these inputs look like they are on another scale")
@pytest.mark.parametrize("method", ["gem-core", "gem-mix", "gem-fi"])
def test_rows_far_from_few_samples_are_unfamiliar(method: str) -> None:
    x, y = load_wine(return_X_y=True)  # 133 rows to fit on, with 13 columns
    train, test, seen, _ = train_test_split(x, y, stratify=y, random_state=0)
    classifier = quick(method, max_steps=30).fit(train, seen)
    middle, spread = x.mean(axis=0), x.std(axis=0)
    noise = middle + 5 * spread * np.random.default_rng(0).normal(size=test.shape)
    for far in (10 * test, 3 * test + 10, middle + 10 * (test - middle), noise):
        assert classifier.decide(far).counts()["unfamiliar"] == len(far)
    assert classifier.decide(test).counts()["unfamiliar"] < 0.2 * len(test)


def test_the_density_of_rows_alone_is_of_raw_features() -> None:
    x, y = load_digits(n_class=3, return_X_y=True)
    settings = {"backbone": "convnet", "backbone_options": {"channels": 4}, "max_steps": 4}
    of_images = quick("gem-fi", **settings).fit(x.reshape(-1, 1, 8, 8), y)
    assert of_images.model_.head.config == GEMConfig(taps=2 * 3 * 4)
    of_rows = quick("gem-fi", max_steps=4).fit(x, y)
    assert of_rows.model_.head.config == GEMConfig(density_space="raw")
    assert of_rows.get_params()["config"] is None
    # what is given is kept, and probabilities do not depend on it
    chosen = quick("gem-fi", config=GEMConfig(), max_steps=4).fit(x, y)
    assert chosen.model_.head.config == GEMConfig()
    np.testing.assert_array_equal(chosen.predict_proba(x), of_rows.predict_proba(x))


def test_false_alarms_are_as_rare_as_asked() -> None:
    x, y = blobs(4000, classes=5)
    classifier = quick("edl", max_steps=100, calibration_fraction=0.25).fit(x[:2000], y[:2000])
    for level in (0.02, 0.1, 0.3):
        share = (classifier.decide(x[2000:], false_alarm=level).verdict == 2).mean()
        assert share == pytest.approx(level, abs=0.03 + level / 4)


def test_goals() -> None:
    x, y = blobs(600, classes=2)
    classifier = quick(calibration_fraction=0.4).fit(x, y)
    by_text = classifier.policy("false_alarm=0.1,risk=0.05")
    by_name = classifier.policy(false_alarm=0.1, risk=0.05)
    assert by_text.goal == by_name.goal == Goal(false_alarm=0.1, risk=0.05)
    assert by_text.threshold == by_name.threshold
    assert classifier.policy(by_name.goal).level == 0.1
    assert classifier.policy().level == 0.05
    assert (by_text.score, by_text.doubt) == (
        classifier.model_.head.named_scores["epistemic"],
        "max_prob",
    )
    with pytest.raises(InputError, match="give a goal or risk, not both"):
        classifier.decide(x, by_name.goal, risk=0.1)
    with pytest.raises(InputError, match=r"a false-alarm rate of 0\.0001 needs 9999 or more"):
        classifier.decide(x, false_alarm=1e-4)


def test_goals_that_need_unfamiliar_samples() -> None:
    x, y = blobs(600, classes=2)
    classifier = quick("gem-fi", calibration_fraction=0.4).fit(x, y)
    far = 10 * x[:100]
    decisions = classifier.decide(np.concatenate([x, 8 * x]), youden=True, ood_validation=far)
    assert (decisions.verdict[:600] == Verdict.UNFAMILIAR).mean() < 0.2
    assert (decisions.verdict[600:] == Verdict.UNFAMILIAR).mean() > 0.9
    costs = Costs(error=5, unfamiliar=1, abstain=1, prevalence=0.1)
    assert classifier.policy(costs=costs, ood_validation=far).goal.costs == costs
    with pytest.raises(InputError, match="need OOD-validation data: give ood_validation="):
        classifier.decide(x, youden=True)


def test_few_samples_need_calibration_of_their_own() -> None:
    x, y = blobs(300)
    names = np.array(["a", "b", "c"])
    classifier = quick().fit(x[:90], names[y[:90]])
    assert classifier.calibration_ is None
    with pytest.raises(InputError, match=r"fit on 100 samples or more .* calibrate\(X, y\)"):
        classifier.decide(x)
    decisions = classifier.calibrate(x[90:200], names[y[90:200]]).decide(x[200:])
    assert classifier.calibration_ is not None
    assert len(classifier.calibration_) == 110
    assert (decisions.verdict == Verdict.UNFAMILIAR).mean() < 0.2
    with pytest.raises(InputError, match="label 'd' is none of the 3 classes"):
        classifier.calibrate(x[:2], ["a", "d"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier.calibrate(x[:3], ["a", "b"])


@pytest.mark.filterwarnings("ignore:these inputs look like they are on another scale")
def test_calibration_samples_are_no_training_samples() -> None:
    """A label that calibration samples alone have changes no weight."""
    x, y = blobs(200, classes=2)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    held = split_parts(y, None, None, seed).calibration
    moved = x.copy()
    moved[held] += 100
    one, other = quick().fit(x, y), quick().fit(moved, y)
    np.testing.assert_array_equal(one.predict_proba(x), other.predict_proba(x))
    assert (one.decide(x).p_value != other.decide(x).p_value).any()


# -- within scikit-learn -------------------------------------------------------------------------


def test_pipeline_search_and_cross_validation() -> None:
    x, y = blobs()
    pipeline = make_pipeline(StandardScaler(), quick()).set_output(transform="pandas")
    assert pipeline.fit(x, y).score(x, y) > 0.9
    inner = pipeline[:-1].transform(x)
    assert isinstance(pipeline[-1].predict_uncertainty(inner), pd.DataFrame)
    grid = {"learning_rate": [1e-6, 5e-3], "method": ["softmax", "edl"]}
    search = GridSearchCV(quick(), grid, cv=2).fit(x, y)
    assert search.best_params_["learning_rate"] == 5e-3
    assert cross_val_score(quick(), x, y, cv=3).mean() > 0.9


def test_joblib(tmp_path: Path) -> None:
    x, y = blobs()
    classifier = quick("gem-fi", max_steps=10).fit(x, y)
    joblib.dump(classifier, tmp_path / "classifier")
    again = joblib.load(tmp_path / "classifier")
    np.testing.assert_array_equal(again.predict_proba(x), classifier.predict_proba(x))
    np.testing.assert_array_equal(again.decide(x).p_value, classifier.decide(x).p_value)
    for name, column in classifier.predict_uncertainty(x).items():
        np.testing.assert_array_equal(again.predict_uncertainty(x)[name], column)


def test_it_prints_nothing_but_a_bar_where_asked(capfd: pytest.CaptureFixture[str]) -> None:
    x, y = blobs(60)
    quick(max_steps=4).fit(x, y)
    assert capfd.readouterr() == ("", "")
    quick(max_steps=4, verbose=1).fit(x, y)
    out, err = capfd.readouterr()
    assert out == ""
    assert "softmax" in err


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "unknown method 'magic'; known: softmax"),
        ({"backbone": "magic"}, "unknown backbone 'magic'; known: convnet"),
        ({"backbone": 3}, "unknown backbone 3"),
        ({"backbone_options": {"wide": 3}}, "unexpected keyword argument 'wide'"),
        ({"epochs": 0}, "epochs must be an integer of at least 1, got 0"),
        ({"max_steps": 1.5}, "max_steps must be an integer of at least 1, got 1.5"),
        ({"batch_size": "all"}, "batch_size must be an integer of at least 1, got 'all'"),
        ({"learning_rate": 0}, "learning_rate must be above 0, got 0"),
        ({"validation_fraction": 0.5}, "validation_fraction must be at least 0 and below 0.5"),
        ({"calibration_fraction": -1}, "calibration_fraction must be at least 0"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_settings_that_mean_nothing(settings: dict[str, Any], message: str) -> None:
    x, y = blobs(60)
    with pytest.raises((InputError, TypeError), match=message):
        quick(**settings).fit(x, y)


def test_data_that_cannot_be_learnt() -> None:
    x, y = blobs(60)
    with pytest.raises(InputError, match="one class only: all 60 labels are 7"):
        quick().fit(x, np.full(60, 7))
    with pytest.raises(InputError, match=r"rows \(N, D\) or images .* got shape \(60, 2, 2\)"):
        quick().fit(x.reshape(60, 2, 2), y)
    with pytest.raises(InputError, match="column 1 of X has values too far apart"):
        quick().fit(x * np.array([1, 1e200, 1, 1]), y)
    with pytest.raises(ValueError, match="contains infinity"):
        quick().fit(np.where(x > 0, np.inf, x), y)


# -- the parts -----------------------------------------------------------------------------------


def test_scaling_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "CHUNK", 100)  # so that there are many pieces
    x = np.random.default_rng(0).normal([1e6, 0, 5], [1, 1e-9, 0], size=(500, 3))
    scaler = StandardScaler().fit(x)
    scaling = Scaling.of(x)
    np.testing.assert_allclose(scaling.mean, scaler.mean_, rtol=1e-12, atol=1e-18)
    np.testing.assert_allclose(scaling.std, scaler.scale_, rtol=1e-9)
    assert scaling.std[2] == 1
    np.testing.assert_allclose(scaling.apply(x).numpy(), scaler.transform(x), atol=1e-5)
    images = np.random.default_rng(0).normal(3, 2, size=(20, 3, 4, 5))
    scaling = Scaling.of(images)
    np.testing.assert_allclose(scaling.mean, images.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(scaling.std, images.std(axis=(0, 2, 3)))
    expected = (images - scaling.mean[:, None, None]) / scaling.std[:, None, None]
    np.testing.assert_allclose(scaling.apply(images).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("samples", [99, 100, 150, 800, 5000, 50_000])
def test_parts_are_disjoint_and_stratified(samples: int) -> None:
    y = np.random.default_rng(0).choice(4, p=[0.4, 0.3, 0.2, 0.1], size=samples)
    parts = split_parts(y, None, None, 3)
    assert (np.sort(np.concatenate(parts)) == np.arange(samples)).all()
    held = 0 if samples < 100 else max(20, round(min(samples / 10, 4 * samples**0.5)))
    assert len(parts.validation) == len(parts.calibration) == held
    for part in parts:
        if len(part):
            share = np.bincount(y[part], minlength=4) / len(part)
            assert share == pytest.approx(np.bincount(y) / samples, abs=1.5 / len(part))
    again = split_parts(y, None, None, 3)
    assert (parts.calibration == again.calibration).all()
    if held:
        other = split_parts(y, None, None, 4)
        assert list(parts.validation) != list(other.validation)


def test_shares_of_ones_own_and_rare_classes() -> None:
    y = np.arange(1000) % 10
    assert [len(part) for part in split_parts(y, 0.2, 0.0, 0)] == [800, 200, 0]
    assert [len(part) for part in split_parts(y, 0.0, 0.3, 0)] == [700, 0, 300]
    assert [len(part) for part in split_parts(y, 0.001, 0.0, 0)] == [980, 20, 0]
    rare = np.concatenate([np.arange(90), np.zeros(30, dtype=np.int64)])
    parts = split_parts(rare, None, None, 0)
    assert len(parts.train) == 120  # thirty could be spared, of which half is too few
    some = np.concatenate([np.arange(90), np.zeros(60, dtype=np.int64)])
    assert set(some[split_parts(some, None, None, 0).train]) == set(range(90))


def test_budget() -> None:
    assert choose_budget(1000, batch_size=100, epochs=7) == Budget(100, 7)
    assert choose_budget(1000, batch_size=100, max_steps=55) == Budget(100, 5)
    assert choose_budget(1000, batch_size=100, max_steps=3) == Budget(100, 1)
    assert choose_budget(1000, batch_size=100, epochs=7, max_steps=55) == Budget(100, 5)
    assert choose_budget(1000, batch_size=100, epochs=3, max_steps=55) == Budget(100, 3)
    assert choose_budget(30, batch_size=100, epochs=2) == Budget(30, 2)


@pytest.mark.parametrize("samples", [2, 10, 110, 1000, 10_000, 48_000, 10**6])
def test_a_budget_is_of_steps(samples: int) -> None:
    size, epochs = choose_budget(samples)
    steps = epochs * batches_per_epoch(samples, size)
    assert steps == pytest.approx(default_steps(samples), rel=0.5, abs=20)
    assert 1 <= size <= max(16, samples)


# -- one file ------------------------------------------------------------------------------------


def test_a_classifier_is_saved_as_one_file(tmp_path: Path) -> None:
    frame, codes = load_wine(return_X_y=True, as_frame=True)
    labels = np.array(["red", "white", "rose"])[codes]
    known = GEMClassifier(random_state=0, max_steps=40).fit(frame, labels)
    found = gemfi.load(known.save(tmp_path / "wine.safetensors", false_alarm=0.2))
    rows = np.ascontiguousarray(frame.to_numpy())
    mine, theirs = found.predict(rows), known.model_.predict(rows)
    assert torch.equal(mine.log_probs(), theirs.log_probs())
    np.testing.assert_allclose(mine.log_probs(), known.predict_log_proba(frame), rtol=1e-9)
    decided, expected = found.decide(rows), known.policy(false_alarm=0.2)(theirs)
    np.testing.assert_array_equal(decided.verdict, expected.verdict)
    np.testing.assert_array_equal(decided.p_value, expected.p_value)
    assert found.info.class_names == tuple(map(str, known.classes_))
    assert found.info.feature_names == tuple(frame.columns)
    assert found.policy_for(false_alarm=0.1).level == 0.1
    usual = gemfi.load(known.save(tmp_path / "usual.safetensors")).policy
    assert usual is not None
    assert usual.to_plain()["level"] == known.policy().level == 0.05
    bare = GEMClassifier(random_state=0, max_steps=5, calibration_fraction=0).fit(frame, labels)
    assert gemfi.load(bare.save(tmp_path / "bare.safetensors")).policy is None
    with pytest.raises(NotFittedError):
        GEMClassifier().save(tmp_path / "none.safetensors")
