"""What decides a run: complete records, choices by shape, and weights from the seed alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from gemfi.data import Role, Split, Task
from gemfi.data.augmentation import AUGMENTATIONS, Augmentation
from gemfi.data.normalisation import Normalisation
from gemfi.errors import InputError
from gemfi.methods import METHODS, PAPER_PRESETS, GEMConfig
from gemfi.outliers import NONE, VOS, OutlierConfig
from gemfi.runs import RunSpec, find_task, make_spec, matched_spec
from gemfi.runs.spec import matched_recipe
from gemfi.training import TrainConfig
from gemfi_bench.recipes import OWN, paper_recipe

from .conftest import toy_spec


def images(shape: tuple[int, ...], **more: Any) -> Task:
    """A task of noise; every split has two samples a class."""

    def split(role: Role) -> Split:
        return Split(torch.rand(6, *shape), torch.arange(6) % 3, role, "noise", 3)

    roles = (Role.TRAIN, Role.VALIDATION, Role.CALIBRATION, Role.TEST)
    splits: dict[str, Any] = {str(role): split(role) for role in roles}
    return Task("noise", ("a", "b", "c"), **splits, ood_validation={}, ood_test={}, **more)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("backbone", ["mlp", "convnet", "resnet18", "vgg16"])
def test_a_spec_of_every_method_comes_back_from_json(method: str, backbone: str) -> None:
    options = {"in_features": 64} if backbone == "mlp" else {"in_channels": 1, "size": 32}
    train = TrainConfig(
        seed=3,
        select="best",
        optimizer="sgd",
        schedule="step",
        milestones=(150 / 350, 250 / 350),
        augmentation=AUGMENTATIONS["strong"],
    )
    spec = RunSpec("digits", method, backbone, options, train=train, normalise=True)
    again = RunSpec.from_plain(json.loads(json.dumps(spec.to_plain())))
    assert again == spec
    assert again.digest == spec.digest
    assert again.train.augmentation == AUGMENTATIONS["strong"]
    assert again.head == METHODS[method].default_config()


def test_what_is_left_out_is_filled_in() -> None:
    plain = toy_spec().to_plain()
    assert plain["head"]["outliers"]["kind"] == "halo"
    assert plain["backbone_options"] == {
        "in_features": 2,
        "width": 16,
        "depth": 1,
        "dropout": 0.0,
        "spectral": {"kind": "off", "bound": 3.0},
    }


def test_without_sn_the_backbone_is_not_normalised_unless_it_says_so() -> None:
    toy = toy_spec("gem-paper")
    kinds = {}
    for sn in (False, True):
        head = replace(PAPER_PRESETS["gem-fi"], sn=sn)
        spec = replace(toy, backbone_options={"in_features": 2}, head=head)
        kinds[sn] = spec.backbone_options["spectral"]["kind"]
    assert kinds == {False: "off", True: "soft"}
    hard = {"in_features": 2, "spectral": {"kind": "hard", "bound": 2.0}}
    model = replace(spec, backbone_options=hard).build(2, None)
    assert model.backbone.first.spectral.kind == "hard"  # type: ignore[union-attr]
    assert model.backbone.first.spectral.bound == 2.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "gem"}, "unknown method 'gem'; known: softmax"),
        ({"backbone": "vgg"}, "unknown backbone 'vgg'; known: convnet, mlp, resnet18, vgg16"),
        ({"backbone_options": {}}, "backbone_options: mlp needs in_features"),
        (
            {"backbone_options": {"in_features": 2, "wdith": 3}},
            r"backbone_options\.wdith: mlp has no such option; known: in_features, width",
        ),
        (
            {"backbone_options": {"in_features": "2"}},
            r"backbone_options\.in_features: expected an integer, got '2'",
        ),
        (
            {"backbone_options": {"in_features": 2, "spectral": {"kind": "sfot"}}},
            r"backbone_options\.spectral\.kind: expected one of soft, hard, off",
        ),
        ({"head": TrainConfig()}, "gem-fi takes a GEMConfig, got TrainConfig"),
    ],
)
def test_a_spec_that_cannot_be_built_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(toy_spec(), **change)


def test_auxiliary_outliers_need_data_that_no_task_has() -> None:
    with pytest.raises(InputError, match=r"outliers\.kind=auxiliary needs an auxiliary split"):
        replace(toy_spec(), head=GEMConfig(outliers=OutlierConfig(kind="auxiliary")))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "expected a mapping with the name of a method"),
        ({"method": "gem-fi"}, "field task is missing"),
        ({"method": "edl", "head": {"evidense": 1}}, r"spec\.head\.evidense: unknown field"),
    ],
)
def test_a_record_that_is_not_a_spec_is_refused(value: Any, message: str) -> None:
    if isinstance(value, dict) and "head" in value:
        value = {**toy_spec("edl").to_plain(), **value}
    with pytest.raises(InputError, match=message):
        RunSpec.from_plain(value)


@pytest.mark.parametrize(
    ("shape", "backbone", "options"),
    [
        ((1, 28, 28), "convnet", {"in_channels": 1, "size": 28, "channels": 64}),
        ((1, 8, 8), "convnet", {"in_channels": 1, "size": 8}),
        ((3, 32, 32), "resnet18", {"in_channels": 3, "size": 32, "width": 16}),
        ((3, 64, 64), "resnet18", {"in_channels": 3, "size": 64, "width": 16}),
        ((5,), "mlp", {"in_features": 5}),
        ((1, 4, 6), "mlp", {"in_features": 24}),
    ],
)
def test_the_backbone_follows_from_the_shape_of_a_sample(
    shape: tuple[int, ...], backbone: str, options: dict[str, int]
) -> None:
    spec = matched_spec("noise", "edl", images(shape))
    assert spec.backbone == backbone
    assert spec.backbone_options.items() >= options.items()
    assert spec.train == TrainConfig(batch_size=16)
    assert spec.build(3, None).predict(torch.rand(2, *shape)).probs().shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "augmentation"),
    [
        ("cifar10", AUGMENTATIONS["standard"]),
        ("cifar100", AUGMENTATIONS["standard"]),
        ("svhn", Augmentation(crop=4)),
        ("/data/signs", Augmentation()),
    ],
)
def test_images_are_flipped_only_where_that_is_known_to_be_right(
    name: str, augmentation: Augmentation
) -> None:
    assert matched_spec(name, "edl", images((3, 32, 32))).train.augmentation == augmentation


@pytest.mark.parametrize("method", OWN)
def test_the_spec_of_a_recipe_is_the_methods_own(method: str) -> None:
    recipe = paper_recipe(method, "mnist")
    spec = make_spec("mnist", method, images((1, 28, 28)), recipe=paper_recipe(method, "mnist"))
    assert (spec.train, spec.backbone) == (recipe.train, recipe.backbone)
    assert spec.backbone_options["dropout"] == recipe.backbone_options.get("dropout", 0.0)
    for name, value in recipe.head.items():
        assert getattr(spec.head, name) == value
    with pytest.raises(
        InputError, match="recipes of their own for mnist, cifar10, not for 'digits"
    ):
        paper_recipe(method, "digits")


@pytest.mark.parametrize("method", METHODS)
def test_the_matched_spec_is_one_for_all(method: str) -> None:
    spec, other = (matched_spec("noise", name, images((3, 32, 32))) for name in (method, "gem-fi"))
    assert spec.train == other.train == TrainConfig(batch_size=16)
    own = {"spectral": spec.backbone_options["spectral"]} if method == "gem-paper" else {}  # SN
    assert (spec.backbone, spec.backbone_options) == (
        other.backbone,
        other.backbone_options | own,
    )
    assert spec.head == METHODS[method].default_config()


def test_a_recipe_may_leave_inputs_as_they_are() -> None:
    task = images((1, 28, 28), normalisation=Normalisation((0.1,), (0.3,)))
    assert not make_spec("mnist", "r-edl", task, recipe=paper_recipe("r-edl", "mnist")).normalise
    assert make_spec(
        "mnist", "gem-paper", task, recipe=paper_recipe("gem-paper", "mnist")
    ).normalise
    assert matched_spec("mnist", "r-edl", task).normalise


ABLE = [name for name in METHODS if hasattr(METHODS[name].default_config(), "outliers")]


@pytest.mark.parametrize("method", ABLE)
@pytest.mark.parametrize(
    ("kind", "outliers"),
    [
        ("none", NONE),
        ("vos", VOS),
        ("halo", OutlierConfig()),
        ("noise", OutlierConfig(kind="noise", scrambled=0.0)),
        ("between", OutlierConfig(kind="between", scrambled=0.0)),
        ("scrambled", OutlierConfig(kind="scrambled", scrambled=0.3)),
    ],
)
def test_outliers_by_one_word(method: str, kind: Any, outliers: OutlierConfig) -> None:
    task = images((5,))
    spec = make_spec("noise", method, task, outliers=kind)
    assert spec.head == replace(METHODS[method].default_config(), outliers=outliers)
    assert spec.build(3, None).head.outliers == outliers
    if kind != "none":
        spec = make_spec("noise", method, task, outliers=kind, settings=["outliers.ratio=0.7"])
        assert spec.head.outliers == replace(outliers, ratio=0.7)


def test_outliers_where_they_would_do_nothing() -> None:
    unable = {"softmax", "logit-norm", "t2f-norm", "mc-dropout", "ensemble"}
    assert unable == set(METHODS) - set(ABLE)
    task = images((1, 28, 28))
    for kind in ("none", "vos"):
        with pytest.raises(InputError, match=r"softmax has no term on outliers.* one: edl, i-edl"):
            make_spec("noise", "softmax", task, outliers=kind)
    bare = {"recipe": paper_recipe("gem-paper", "mnist"), "preset": "ablation-mix"}
    with pytest.raises(InputError, match="gem-paper has no term on outliers in this configuration"):
        make_spec("mnist", "gem-paper", task, outliers="vos", **bare)
    assert make_spec("mnist", "gem-paper", task, outliers="none", **bare).head.outliers == NONE
    spec = make_spec(
        "mnist", "gem-paper", task, outliers="vos", settings=["ebm_weight=0.1"], **bare
    )
    assert spec.head.outliers == VOS
    with pytest.raises(InputError, match="needs an auxiliary split"):
        make_spec("noise", "edl", task, outliers="auxiliary")


def test_changes_keep_the_rest_of_the_recipe() -> None:
    task = images((1, 28, 28))
    spec = make_spec(
        "mnist",
        "gem-paper",
        task,
        recipe=paper_recipe("gem-paper", "mnist"),
        options=["channels=8", "spectral.kind=off"],
        settings=["fi_reg_weight=0.7"],
        train={"epochs": 2, "seed": None},
    )
    own = make_spec("mnist", "gem-paper", task, recipe=paper_recipe("gem-paper", "mnist"))
    assert spec.train == replace(own.train, epochs=2)
    assert spec.head == replace(own.head, fi_reg_weight=0.7)
    changed = {"channels": 8, "spectral": {"kind": "off", "bound": 3.0}}
    assert spec.backbone_options == {**own.backbone_options, **changed}


def test_another_backbone_takes_the_shape_and_not_the_recipes_options() -> None:
    spec = make_spec(
        "mnist", "edl", images((1, 28, 28)), recipe=paper_recipe("edl", "mnist"), backbone="mlp"
    )
    assert spec.backbone_options["in_features"] == 784
    assert spec.backbone_options["dropout"] == 0.0
    with pytest.raises(InputError, match=r"convnet takes square images .* a sample is \(5,\)"):
        make_spec("x", "edl", images((5,)), backbone="convnet")


def test_inputs_are_normalised_where_the_task_has_constants_and_nobody_minds() -> None:
    constants = Normalisation((0.5,), (0.25,))
    task = images((1, 8, 8), normalisation=constants)
    spec = matched_spec("noise", "edl", task)
    assert spec.normalise
    assert spec.build(3, constants).input_mean.tolist() == [0.5]  # type: ignore[union-attr]
    bare = make_spec("noise", "edl", task, normalise=False)
    assert not bare.normalise
    assert bare.build(3, constants).input_mean is None
    assert not matched_spec("noise", "edl", images((1, 8, 8))).normalise


def test_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = toy_spec().build(2, None).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    second = toy_spec().build(2, None).state_dict()
    other = toy_spec(seed=1).build(2, None).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["backbone.first.weight"], other["backbone.first.weight"])


def test_the_digest_changes_with_every_setting() -> None:
    spec = toy_spec()
    others = [
        replace(spec, task="line"),
        replace(spec, normalise=True),
        replace(spec, train=replace(spec.train, weight_decay=0.0)),
        replace(spec, train=replace(spec.train, augmentation=Augmentation(flip=0.5))),
        replace(spec, head=replace(spec.head, kl_weight=0.5)),
        replace(spec, backbone_options={**spec.backbone_options, "width": 17}),
    ]
    assert len({each.digest for each in (spec, *others)}) == 7
    assert spec.name == f"gem-fi-mlp-seed0-{spec.digest}"
    assert len(spec.digest) == 8


def test_an_unknown_task_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown task 'moons'; known: digits, two-moons, line"):
        find_task("moons")


@pytest.mark.parametrize(
    ("samples", "size"), [(1, 16), (105, 16), (759, 32), (1280, 64), (2559, 64), (2560, 128)]
)
def test_few_samples_come_in_small_batches(samples: int, size: int) -> None:
    recipe = matched_recipe((4,), "table", samples)
    assert recipe.train == TrainConfig(batch_size=size)
