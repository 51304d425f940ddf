"""The methods' own recipes against their papers' numbers, written out here once more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from gemfi._config import to_plain
from gemfi.backbones import BACKBONES
from gemfi.data import Role, Split, Task
from gemfi.data.augmentation import AUGMENTATIONS, Augmentation
from gemfi.errors import InputError
from gemfi.methods import METHODS, PAPER_PRESETS, PRESETS
from gemfi.methods.gem_paper import switches
from gemfi.runs import RunSpec, make_spec
from gemfi.training import fit
from gemfi_bench.recipes import DATASETS, OWN, gem_config, paper_recipe

SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def noise(dataset: str) -> Task:
    def split(role: Role) -> Split:
        return Split(torch.rand(20, *SHAPES[dataset]), torch.arange(20) % 10, role, "noise", 10)

    roles = (Role.TRAIN, Role.VALIDATION, Role.CALIBRATION, Role.TEST)
    splits: dict[str, Any] = {str(role): split(role) for role in roles}
    names = tuple("0123456789")
    return Task(dataset, names, **splits, ood_validation={}, ood_test={})


def every(dataset: str) -> list[Any]:
    return [pytest.param(name, dataset, id=f"{name}-{dataset}") for name in OWN]


# -- all of them ----------------------------------------------------------------------------------


def test_every_method_of_a_paper_has_one() -> None:
    elsewhere = {*PRESETS, "logit-norm", "t2f-norm"}  # ours, and two that no paper here compares
    assert list(OWN) == [name for name in METHODS if name not in elsewhere]
    with pytest.raises(InputError, match=r"gem-fi has no recipe of its own.*paper's is gem-paper"):
        paper_recipe("gem-fi", "mnist")


@pytest.mark.parametrize(("method", "dataset"), [*every("mnist"), *every("cifar10")])
def test_it_builds_and_comes_back_from_json(method: str, dataset: str) -> None:
    recipe, spec = (
        paper_recipe(method, dataset),
        make_spec(dataset, method, noise(dataset), recipe=paper_recipe(method, dataset)),
    )
    again = RunSpec.from_plain(json.loads(json.dumps(spec.to_plain())))
    assert again == spec
    assert again.digest == spec.digest
    assert spec.train == recipe.train
    assert (spec.backbone, spec.backbone in BACKBONES) == (recipe.backbone, True)
    known = METHODS[method].default_config()
    assert all(hasattr(known, name) for name in recipe.head)
    assert all(getattr(spec.head, name) == value for name, value in recipe.head.items())
    assert all(note and not note.endswith(".") for note in recipe.notes)


@pytest.mark.parametrize("method", OWN)
def test_it_trains(method: str) -> None:
    """On MNIST, where networks are small enough to do so in a test."""
    task = noise("mnist")
    spec = make_spec("mnist", method, task, recipe=paper_recipe(method, "mnist"))
    model = spec.build(10, None)
    before = {name: each.clone() for name, each in model.backbone.named_parameters()}
    fit(model, task.train, task.validation, replace(spec.train, epochs=1, batch_size=10))
    for name, each in model.backbone.named_parameters():
        assert torch.isfinite(each).all()
        assert not torch.equal(each, before[name]), name
    assert model.predict(task.test.x).probs().shape == (20, 10)


@pytest.mark.parametrize("dataset", DATASETS)
def test_digits_are_not_flipped(dataset: str) -> None:
    flips = {paper_recipe(name, dataset).train.augmentation.flip for name in OWN}
    assert flips == ({0.0} if dataset == "mnist" else {0.5})


# -- the numbers ----------------------------------------------------------------------------------

# data set, methods -> optimiser, rate, weight decay, batch, epochs, schedule, select
TRAINING: dict[tuple[str, str], tuple[Any, ...]] = {
    ("cifar10", "softmax mc-dropout ensemble"): ("sgd", 0.1, 5e-4, 128, 350, "step", "last"),
    ("mnist", "softmax mc-dropout ensemble"): ("adam", 1e-3, 0, 64, 200, "constant", "best"),
    ("cifar10", "edl"): ("adam", 1e-4, 0, 64, 200, "constant", "best"),
    ("mnist", "edl"): ("adam", 1e-3, 5e-3, 1000, 50, "step", "last"),
    ("cifar10", "i-edl"): ("adam", 5e-4, 0, 64, 200, "constant", "best"),
    ("mnist", "i-edl"): ("adam", 1e-3, 0, 64, 200, "constant", "best"),
    ("cifar10", "r-edl re-edl"): ("adam", 1e-4, 0, 64, 200, "constant", "best"),
    ("mnist", "r-edl re-edl"): ("adam", 1e-3, 0, 64, 60, "step", "best"),
    ("cifar10", "daedl"): ("adam", 1e-3, 0, 64, 100, "exponential", "best"),
    ("mnist", "daedl"): ("adam", 1e-3, 0, 64, 100, "exponential", "best"),
    ("cifar10", "postnet"): ("adam", 2.5e-4, 0, 64, 200, "constant", "best"),
    ("mnist", "postnet"): ("adam", 2.5e-4, 0, 64, 200, "constant", "best"),
    ("cifar10", "kl-pn rkl-pn"): ("sgd", 0.1, 0, 128, 350, "step", "last"),
    ("mnist", "kl-pn rkl-pn"): ("sgd", 0.1, 0, 128, 350, "step", "last"),
    ("cifar10", "cedl-plus"): ("sgd", 0.1, 0, 128, 120, "cosine", "last"),
    ("mnist", "cedl-plus"): ("sgd", 0.1, 0, 128, 120, "cosine", "last"),
    ("cifar10", "gem-paper"): ("adamw", 1e-3, 1e-4, 128, 100, "cosine", "last"),
    ("mnist", "gem-paper"): ("adamw", 5e-4, 1e-4, 64, 50, "cosine", "last"),
}


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_method_is_in_the_table(dataset: str) -> None:
    listed = [name for where, names in TRAINING if where == dataset for name in names.split()]
    assert sorted(listed) == sorted(OWN)


@pytest.mark.parametrize(("dataset", "names"), list(TRAINING))
def test_training(dataset: str, names: str) -> None:
    for name in names.split():
        train = paper_recipe(name, dataset).train
        assert (
            train.optimizer,
            train.learning_rate,
            train.weight_decay,
            train.batch_size,
            train.epochs,
            train.schedule,
            train.select,
        ) == TRAINING[dataset, names], name


@pytest.mark.parametrize(
    ("method", "dataset", "epochs", "factor"),
    [
        ("softmax", "cifar10", (150, 250), 0.1),
        ("rkl-pn", "cifar10", (150, 250), 0.2),
        ("edl", "mnist", (7, 14, 21, 28, 35, 42, 49), 0.1),
        ("r-edl", "mnist", (15, 30, 45), 0.1),
    ],
)
def test_rates_fall_at_the_papers_epochs(
    method: str, dataset: str, epochs: tuple[int, ...], factor: float
) -> None:
    train = paper_recipe(method, dataset).train
    rate = train.learning_rate
    for epoch in range(train.epochs):
        rate *= factor if epoch in epochs else 1
        assert train.rate(epoch / train.epochs) == pytest.approx(rate, rel=1e-9)


def test_the_rate_of_daedl_falls_by_five_percent_an_epoch() -> None:
    train = paper_recipe("daedl", "cifar10").train
    for epoch in range(100):
        assert train.rate(epoch / 100) == pytest.approx(1e-3 * 0.95**epoch)


@pytest.mark.parametrize(
    ("method", "dataset", "head"),
    [
        ("mc-dropout", "cifar10", {"rate": 0.5, "passes": 100}),
        ("ensemble", "mnist", {"members": 5}),
        ("edl", "cifar10", {"evidence": "softplus", "risk": "mse", "kl_ramp": 0.05}),
        ("edl", "mnist", {"evidence": "relu", "risk": "mse", "kl_ramp": 0.2}),
        ("i-edl", "cifar10", {"fisher_weight": 0.05, "kl_weight": 1.0, "kl_ramp": 0.05}),
        ("i-edl", "mnist", {"fisher_weight": 0.005, "kl_ramp": 0.05}),
        ("r-edl", "cifar10", {"prior": 0.1, "kl_weight": 1.0, "kl_ramp": 0.05}),
        ("r-edl", "mnist", {"prior": 0.1, "kl_ramp": 1 / 6}),
        ("re-edl", "cifar10", {"prior": 0.8}),
        ("re-edl", "mnist", {"prior": 0.1}),
        ("daedl", "cifar10", {"kl_weight": 0.05}),
        ("postnet", "cifar10", {"latent": 6, "flow_length": 6, "entropy_weight": 1e-5}),
        ("kl-pn", "cifar10", {"precision": 100.0, "outlier_weight": 1.0}),
        ("cedl-plus", "cifar10", {"kl_weight": 0.1, "kl_start": 0.01}),
    ],
)
def test_heads(method: str, dataset: str, head: dict[str, Any]) -> None:
    found = make_spec(dataset, method, noise(dataset), recipe=paper_recipe(method, dataset)).head
    assert {name: getattr(found, name) for name in head} == pytest.approx(head)


def test_networks_and_images() -> None:
    for name in OWN:
        grey, colour = paper_recipe(name, "mnist"), paper_recipe(name, "cifar10")
        assert grey.backbone == "convnet"
        assert grey.train.augmentation == Augmentation()
        vgg = name in ("edl", "i-edl", "r-edl", "re-edl", "daedl", "postnet", "kl-pn", "rkl-pn")
        assert colour.backbone == ("vgg16" if vgg else "resnet18")
        assert colour.train.augmentation == AUGMENTATIONS["daedl" if vgg else "standard"], name
        raw = {"edl", "i-edl", "r-edl", "re-edl", "postnet"}
        assert colour.normalise == (name not in raw), name
        softmaxes = {"softmax", "mc-dropout", "ensemble"}
        assert grey.normalise == (name not in raw | softmaxes | {"daedl"}), name
    assert paper_recipe("i-edl", "cifar10").backbone_options["dropout"] == 0.5
    assert paper_recipe("softmax", "cifar10").backbone_options["width"] == 64
    assert paper_recipe("rkl-pn", "cifar10").train.clip_norm == 10
    held = make_spec(
        "cifar10", "daedl", noise("cifar10"), recipe=paper_recipe("daedl", "cifar10")
    ).backbone_options
    assert held["spectral"] == {"kind": "hard", "bound": 1.0}
    assert held["dropout"] == 0.5
    assert (
        make_spec("mnist", "daedl", noise("mnist"), recipe=paper_recipe("daedl", "mnist"))
        .build(10, None)
        .head.num_features
        == 576
    )
    assert (
        make_spec("mnist", "i-edl", noise("mnist"), recipe=paper_recipe("i-edl", "mnist"))
        .build(10, None)
        .head.num_features
        == 64
    )


@pytest.mark.parametrize("dataset", DATASETS)
def test_departures_are_said(dataset: str) -> None:
    for name in OWN:
        recipe = paper_recipe(name, dataset)
        if recipe.train.select == "best":
            assert any("best" in note and "NLL" in note for note in recipe.notes), name
    assert "ours" in paper_recipe("mc-dropout", dataset).notes[0]
    assert "virtual" in paper_recipe("kl-pn", dataset).notes[0]
    assert ("crop and flip" in " ".join(paper_recipe("gem-paper", dataset).notes)) == (
        dataset == "cifar10"
    )


# -- the GEM family -------------------------------------------------------------------------------

TABLE = {
    "mnist": {"lr": 5e-4, "batch": 64, "epochs": 50, "kl": 1e-3, "fi": 0.3, "dropout": 0.05},
    "cifar10": {"lr": 1e-3, "batch": 128, "epochs": 100, "kl": 1e-4, "fi": 0.1, "dropout": 0.1},
}


@pytest.mark.parametrize("dataset", list(TABLE))
def test_the_table(dataset: str) -> None:
    row, recipe = TABLE[dataset], paper_recipe("gem-paper", dataset)
    train, config = recipe.train, gem_config("gem-fi", dataset)
    assert (train.learning_rate, train.batch_size, train.epochs) == (
        row["lr"],
        row["batch"],
        row["epochs"],
    )
    assert train.weight_decay == 1e-4
    assert train.clip_norm == 1.0
    assert recipe.backbone_options["dropout"] == row["dropout"]
    assert (config.kl_weight, config.fi_reg_weight, config.fi_mod_strength) == (
        row["kl"],
        row["fi"],
        row["fi"],
    )
    assert config.num_components == 3
    assert (config.unc_id, config.unc_outlier) == (0.1, 0.1)
    assert (config.gate_low, config.gate_high) == (0.1, 0.9)
    assert config.outliers.start * train.epochs == pytest.approx(10)  # ten epochs of warm-up


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_head_of_the_recipe_is_the_papers(dataset: str) -> None:
    head = make_spec(
        dataset, "gem-paper", noise(dataset), recipe=paper_recipe("gem-paper", dataset)
    ).head
    assert head == gem_config("gem-fi", dataset)


@pytest.mark.parametrize("preset", list(PAPER_PRESETS))
def test_presets_keep_their_switches(preset: str) -> None:
    expected = switches(to_plain(PAPER_PRESETS[preset]))
    for released in (False, True):
        config = gem_config(preset, "cifar10", released=released)
        assert switches(to_plain(config)) == expected
        assert config.outliers.kind == PAPER_PRESETS[preset].outliers.kind


def test_released_values_differ_where_the_code_does() -> None:
    config = gem_config("gem-fi", "cifar10", released=True)
    assert (config.sizes, config.gate_bound, config.fi_gradient) == ("released", "clamp", "router")
    assert config.rho == "none"  # the released code never applies it


def test_unknown_names() -> None:
    for method in ("gem-paper", "edl"):
        with pytest.raises(InputError, match="own for mnist, cifar10, not for 'svhn'"):
            paper_recipe(method, "svhn")
    with pytest.raises(InputError, match="own for mnist, cifar10, not for 'svhn'"):
        gem_config("gem-fi", "svhn")
    with pytest.raises(InputError, match="unknown method 'gem'"):
        paper_recipe("gem", "mnist")
    with pytest.raises(InputError, match="unknown preset 'edl'"):
        gem_config("edl", "mnist")


def test_a_method_without_a_recipe_is_told_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemfi_bench.recipes.OWN", ())
    with pytest.raises(InputError, match="edl has no recipe of its own; use the recipe matched"):
        paper_recipe("edl", "mnist")
