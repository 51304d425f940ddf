"""GEMClassifier's training: when it stops, what weights do, and threads and modes of torch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from gemfi import METHODS
from gemfi.data import as_split
from gemfi.errors import InputError
from gemfi.estimator import GEMClassifier, training
from gemfi.estimator.inputs import Scaling, total_weight
from gemfi.estimator.training import (
    CALM,
    FREE,
    USUAL,
    annealed,
    better,
    build,
    choose_budget,
    choose_paces,
    choose_threads,
    limited_threads,
    split_parts,
)
from gemfi.training import TrainConfig, fit

Array = npt.NDArray[Any]


def quick(method: str = "softmax", **settings: Any) -> GEMClassifier:
    """A classifier that trains for a moment."""
    return GEMClassifier(method, **{"max_steps": 25, "random_state": 0, **settings})


def blobs(count: int = 200, classes: int = 3) -> tuple[Array, Array]:
    x, y = make_blobs(count, n_features=4, centers=classes, random_state=0)
    return x, y


def noise(count: int = 600) -> tuple[Array, Array]:
    """Four labels of five are drawn whatever x is, from 84, 13 and 3 %."""
    random = np.random.default_rng(0)
    x, y = make_classification(
        count, 12, n_informative=3, n_classes=3, n_clusters_per_class=1, weights=[0.84, 0.13],
        random_state=0,
    )  # fmt: skip
    drawn = random.choice(3, count, p=[0.84, 0.13, 0.03])
    return x, np.where(random.random(count) < 0.8, drawn, y)


def same(one: GEMClassifier, other: GEMClassifier, x: Array) -> bool:
    return bool((one.predict_log_proba(x) == other.predict_log_proba(x)).all())


# -- stopping ------------------------------------------------------------------------------------


def test_it_stops_before_it_learns_noise() -> None:
    x, y = noise()
    train, test, seen, unseen = train_test_split(x, y, stratify=y, random_state=0)
    classifier = GEMClassifier(random_state=0, epochs=100).fit(train, seen)
    shares = np.bincount(seen) / len(seen)
    majority = (unseen == shares.argmax()).mean()
    assert classifier.score(test, unseen) > majority - 0.02
    p = classifier.predict_proba(test)
    assert log_loss(unseen, p) < log_loss(unseen, np.tile(shares, (len(test), 1))) + 0.02
    nlls = [record["validation_nll"] for record in classifier.history_]
    assert classifier.best_epoch_ == int(np.argmin(nlls))
    assert classifier.n_iter_ == len(nlls) == classifier.best_epoch_ + 11
    assert classifier.n_steps_ == classifier.history_[-1]["step"]
    assert any("training stopped after" in note for note in classifier.notes_)


def test_without_patience_every_epoch_is_run_and_the_last_kept() -> None:
    x, y = noise(200)
    classifier = quick(patience=None, epochs=7, max_steps=None).fit(x, y)
    assert (classifier.n_iter_, classifier.best_epoch_) == (7, None)


def test_the_best_pace_is_trained_again_on_both_parts_with_a_rate_that_ends_at_zero() -> None:
    x, y = noise(300)
    known = quick(max_steps=60, patience=2).fit(x, y)
    assert known.best_epoch_ is not None
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    parts = split_parts(y, None, None, seed)
    scaling, rows = Scaling.of(x[parts.train]), np.sort(np.concatenate(parts[:2]))
    example = scaling.apply(x[parts.train[:2]])
    model = build("softmax", "mlp", None, 3, config=None, example=example, seed=seed)
    budget = choose_budget(len(parts.train), max_steps=60)
    pace = CALM if known.history_[0]["learning_rate"] < CALM.learning_rate * 1.01 else FREE
    config = TrainConfig(
        epochs=annealed(known.best_epoch_ + 1, budget.epochs),
        batch_size=budget.batch_size,
        learning_rate=pace.learning_rate,
        weight_decay=pace.weight_decay,
        seed=seed,
    )
    with limited_threads(1):
        fit(model, as_split(scaling.apply(x[rows]), y[rows], role="train"), None, config)
    for name, value in model.double().named_parameters():
        assert torch.equal(value, known.model_.get_parameter(name)), name


@pytest.mark.parametrize("best", [1, 7, 20, 40])
def test_a_second_training_has_the_same_sum_of_rates(best: int) -> None:
    config = TrainConfig(epochs=40)
    first = sum(config.rate((step + 0.5) / 4000) for step in range(100 * best))
    epochs = annealed(best, 40)
    again = replace(config, epochs=epochs)
    second = sum(again.rate((step + 0.5) / (100 * epochs)) for step in range(100 * epochs))
    assert second == pytest.approx(first, abs=0.3 * 100 * config.learning_rate)  # of an epoch


def test_nothing_to_stop_by_is_said() -> None:
    x, y = blobs(60)
    classifier = quick().fit(x, y)
    assert classifier.best_epoch_ is None
    assert any("training did not stop early" in note for note in classifier.notes_)
    assert not any("early" in note for note in quick(patience=None).fit(x, y).notes_)


# -- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [60, 240])
def test_a_weight_of_zero_leaves_the_sample_out(count: int) -> None:
    x, y = blobs(count)
    weight = np.random.default_rng(0).choice([0.0, 1.0, 3.0], count)
    one = quick("gem-fi").fit(np.where(weight[:, None] > 0, x, 1e3), y, sample_weight=weight)
    kept = weight > 0
    other = quick("gem-fi").fit(x[kept], y[kept], sample_weight=weight[kept])
    assert same(one, other, x)


def test_weights_that_are_all_alike_are_none() -> None:
    x, y = blobs()
    assert same(quick().fit(x, y), quick().fit(x, y, sample_weight=np.full(len(x), 0.2)), x)
    assert same(quick().fit(x, y), quick(class_weight={}).fit(x, y), x)


@pytest.mark.parametrize("method", METHODS)
def test_a_weight_of_three_is_a_sample_three_times(method: str) -> None:
    """One input with two labels, half and half; three copies of one label make it 3:1."""
    y = np.arange(400) % 2
    x = np.zeros((400, 2))
    x[200:] = [5.0, 1.0]  # another input, so that something varies
    weight = np.where((x[:, 0] == 0) & (y == 1), 3, 1)
    # one length of training for all: here it is weights that are compared, and not when to stop
    settings = {"max_steps": 150, "batch_size": 32, "learning_rate": 5e-3, "patience": None}
    classifier = quick(method, calibration_fraction=0, **settings)

    def probability(*data: Array, sample_weight: Array | None = None) -> float:
        fitted = classifier.fit(*data, sample_weight=sample_weight)
        return float(fitted.predict_proba(x[:1])[0, 1])

    weighted, plain = probability(x, y, sample_weight=weight), probability(x, y)
    repeated = probability(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    assert weighted == pytest.approx(repeated, abs=0.1)
    assert weighted > plain + 0.12


def test_a_balanced_class_weight_finds_the_rare_class() -> None:
    x, y = make_classification(
        600, 6, n_informative=3, weights=[0.93], class_sep=0.5, random_state=1
    )
    recall = [
        (classifier.predict(x)[y == 1] == 1).mean()
        for classifier in (
            quick(class_weight=weight, max_steps=100).fit(x, y) for weight in (None, "balanced")
        )
    ]
    assert recall[1] > recall[0] + 0.3


def test_total_weights() -> None:
    labels = np.array(["a", "a", "a", "b"])
    assert total_weight(None, None, labels) is None
    np.testing.assert_allclose(total_weight(None, "balanced", labels), [2 / 3, 2 / 3, 2 / 3, 2])
    np.testing.assert_allclose(total_weight([3, 0, 0, 1], {"b": 2.0}, labels), [3, 0, 0, 2])
    # as of the rows aaab, repeated: three of a and two of b
    weighted = total_weight([1, 1, 1, 2], "balanced", labels)
    np.testing.assert_allclose(weighted, [5 / 6, 5 / 6, 5 / 6, 2 * 5 / 4])


@pytest.mark.parametrize(
    ("settings", "weight", "message"),
    [
        ({}, np.ones(3), r"one number for each of the 60 samples of X, got shape \(3,\)"),
        ({}, -np.ones(60), "sample_weight must be finite and not negative"),
        ({}, np.zeros(60), "not all of them zero"),
        ({}, ["x"] * 60, "sample_weight must be numbers"),
        ({"class_weight": "even"}, None, "None, 'balanced' or a dict of weights by class"),
        ({"class_weight": {9: 1.0}}, None, "names the class 9, but the classes of y are 0, 1, 2"),
        ({"class_weight": {1: -1.0}}, None, "class_weight must be finite and above 0"),
        ({"patience": 0}, None, "patience must be an integer of at least 1, got 0"),
        ({"n_threads": 0}, None, "n_threads must be an integer of at least 1, got 0"),
    ],
)
def test_weights_and_settings_that_mean_nothing(
    settings: dict[str, Any], weight: Any, message: str
) -> None:
    x, y = blobs(60)
    with pytest.raises(InputError, match=message):
        quick(**settings).fit(x, y, sample_weight=weight)


def test_weights_that_leave_one_class() -> None:
    x, y = blobs(60)
    with pytest.raises(InputError, match="all samples of weight above 0 are of class 1"):
        quick().fit(x, y, sample_weight=y == 1)
    assert list(quick().fit(x, y, sample_weight=y != 1).classes_) == [0, 2]


# -- threads and modes ---------------------------------------------------------------------------


def test_four_threads_with_one_seed_give_what_one_gives() -> None:
    x, y = blobs()
    options = {"dropout": 0.2}

    def fitted(_index: int) -> GEMClassifier:
        return quick("gem-fi", backbone_options=options).fit(x, y)

    alone = fitted(0)
    with ThreadPoolExecutor(4) as pool:
        others = list(pool.map(fitted, range(4)))
    assert all(same(alone, other, x) for other in others)


def test_a_small_fit_takes_one_thread_and_gives_the_others_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What torch was set to, on a machine of many cores or of one, changes no bit."""
    x, y = blobs()
    before, used = torch.get_num_threads(), []
    real = torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda count: (used.append(count), real(count)))
    found = []
    try:
        for count in (1, 3):
            real(count)
            found.append(quick().fit(x, y))
            assert torch.get_num_threads() == count
            with pytest.raises(InputError):
                quick(learning_rate=-1).fit(x, y)
            assert torch.get_num_threads() == count
    finally:
        real(before)
    assert same(*found, x)
    assert used == [1, 1, 1, 1, 1, 3, 1, 3]  # to one, and back, in each of four fits


def test_which_fits_are_small() -> None:
    model = build("softmax", "mlp", None, 3, config=None, example=torch.zeros(2, 4), seed=0)
    weights = sum(each.numel() for each in model.parameters())
    assert choose_threads(model, training.SMALL // weights, 2) == 1
    assert choose_threads(model, training.SMALL // weights + 1, 2) is None
    assert choose_threads(model, 16, 4) is None  # images
    before = torch.get_num_threads()
    with limited_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_fit_learns_under_no_grad(mode: type) -> None:
    x, y = blobs()
    with mode():
        classifier = quick().fit(x, y)
        assert not torch.is_grad_enabled()
    assert same(classifier, quick().fit(x, y), x)


def test_balanced_classes_of_which_one_has_no_weight() -> None:
    x, y = load_iris(return_X_y=True)
    weight = (y != 2).astype(float)
    known = quick(class_weight="balanced").fit(x, y, sample_weight=weight)
    assert known.classes_.tolist() == [0, 1]


def test_an_ensemble_says_which_epochs_it_keeps() -> None:
    x, y = load_iris(return_X_y=True)
    known = quick("ensemble").fit(x, y)
    assert any(note.startswith("each member keeps its best epoch: after ") for note in known.notes_)


# -- paces ---------------------------------------------------------------------------------------


def trained(losses: list[float]) -> Any:
    return SimpleNamespace(losses=torch.tensor(losses, dtype=torch.float64))


def test_the_free_pace_has_to_be_clearly_better() -> None:
    noise = np.random.default_rng(0).normal(size=100)
    noise = (noise - noise.mean()) / noise.std() * 10  # a mean has a standard error of 1
    calm = trained((noise + 50).tolist())
    for gain, clear in ((1.1, False), (1.3, True)):  # 1 + 20/100 standard errors
        free = trained([50 - gain] * 100)
        assert better(calm, free, None) is (free if clear else calm)
        assert better(calm, free, torch.full((100,), 7.0).double()) is (free if clear else calm)
    few = trained([0.9, 1.1] * 10)  # twenty: a standard error of 0.1 / sqrt(20), and two are asked
    assert better(few, trained([1 - 0.04] * 20), None) is few
    assert better(few, trained([1 - 0.05] * 20), None) is not few


def test_which_paces_are_tried() -> None:
    assert choose_paces(None, None, 2, 20) == [CALM, FREE]
    assert choose_paces(None, None, 2, 0) == choose_paces(None, None, 4, 20) == [USUAL]
    assert choose_paces(0.1, None, 2, 20) == [(0.1, USUAL.weight_decay)]
    assert choose_paces(None, 0.1, 2, 20) == [(USUAL.learning_rate, 0.1)]


def test_what_is_kept_is_said() -> None:
    x, y = blobs()
    classifier = quick().fit(x, y)
    rate = 0.0003 if classifier.history_[0]["learning_rate"] < 0.0003 else 0.001
    said = [note for note in classifier.notes_ if "learning rates" in note]
    assert said == [f"trained with learning rates 0.0003 and 0.001; {rate:g} is kept"]
    assert not any("learning rates" in note for note in quick(learning_rate=0.01).fit(x, y).notes_)
