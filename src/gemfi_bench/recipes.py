"""Recipes: how each method's own paper trains it, by data set, in one place.

`paper_recipe("daedl", "cifar10")` is optimiser, schedule, budget, backbone, augmentation and head
as the paper, or its code where that says more, has them; its `notes` say what could not be
followed. What holds for all of them is said here: weight decay spares biases and norms, crops are
from a reflected border, losses are means over the batch, the validation data are the task's, and a
weight decay or a clip of the gradient that a paper does not mention is off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.errors import InputError
from gemfi.methods import PAPER_PRESETS, PRESETS, PaperConfig, method
from gemfi.outliers import VOS
from gemfi.runs.spec import Recipe
from gemfi.spectral import Spectral
from gemfi.training.config import TrainConfig

DATASETS: Final = ("mnist", "cifar10")


def paper_recipe(method_name: str, dataset: str) -> Recipe:
    """The recipe of a method's own paper, on `mnist` or `cifar10`."""
    name = method(method_name).info.name
    _check_dataset(dataset)
    if name not in OWN:
        why = "; use the recipe matched"
        if name in PRESETS:
            why = ": it is this project's, and the paper's is gem-paper"
        raise InputError(f"{name} has no recipe of its own{why}")
    return OWN[name](dataset)


def _check_dataset(dataset: str) -> None:
    if dataset not in DATASETS:
        raise InputError(
            f"methods have recipes of their own for {', '.join(DATASETS)}, not for {dataset!r}; "
            "use the recipe matched"
        )


# -- what several share ---------------------------------------------------------------------------

_GREY: Final = {"in_channels": 1, "size": 28}
_COLOUR: Final = {"in_channels": 3, "size": 32}
_UNCLIPPED: Final = 1e9  # no gradient is that long

_SGD = TrainConfig(  # DDU
    epochs=350,
    batch_size=128,
    optimizer="sgd",
    learning_rate=0.1,
    schedule="step",
    milestones=(150 / 350, 250 / 350),
    decay=0.1,
    weight_decay=5e-4,
    clip_norm=_UNCLIPPED,
)
_ADAM = TrainConfig(  # PostNet, and I-EDL after it
    epochs=200,
    batch_size=64,
    optimizer="adam",
    learning_rate=1e-3,
    schedule="constant",
    weight_decay=0.0,
    clip_norm=_UNCLIPPED,
    select="best",
)
_STOPPED = (
    "the authors stop when validation data no longer improve; here all epochs run, and the one "
    "with the best validation NLL is kept"
)
_BEST = "the authors keep the epoch with the best validation accuracy, here that of the best NLL"


def _grey(
    train: TrainConfig,
    head: Mapping[str, Any],
    *notes: str,
    hidden: tuple[int, ...] = (64, 64, 64),
    normalise: bool = False,
) -> Recipe:
    """On MNIST: the network of PostNet, I-EDL and R-EDL, unless it is told otherwise."""
    return Recipe(train, "convnet", _GREY | {"hidden": hidden}, head, normalise, notes)


def _vgg(
    train: TrainConfig,
    head: Mapping[str, Any],
    *notes: str,
    dropout: float = 0.5,
    normalise: bool = False,
) -> Recipe:
    """On CIFAR-10: the network and the augmentation of PostNet, I-EDL, R-EDL and DAEDL."""
    train = replace(train, augmentation=AUGMENTATIONS["daedl"])
    return Recipe(train, "vgg16", _COLOUR | {"dropout": dropout}, head, normalise, notes)


def _resnet(train: TrainConfig, head: Mapping[str, Any], *notes: str, width: int) -> Recipe:
    train = replace(train, augmentation=AUGMENTATIONS["standard"])
    return Recipe(train, "resnet18", _COLOUR | {"width": width}, head, notes=notes)


# -- one function a method ------------------------------------------------------------------------


def _softmax(dataset: str) -> Recipe:
    """DDU's, which trains with cross-entropy."""
    if dataset == "mnist":
        note = "DDU has no network for MNIST: the network and the training of I-EDL, "
        return _grey(_ADAM, {}, f"{note}without its head", _STOPPED)
    note = "DDU's network and training, without spectral normalisation, which is no part of softmax"
    return _resnet(_SGD, {}, note, width=64)


def _mc_dropout(dataset: str) -> Recipe:
    note = (
        "the paper's networks are others: this is the recipe of softmax with dropout on the "
        "features, which is ours; 100 passes as in R-EDL's comparison"
    )
    recipe = _softmax(dataset)
    return replace(recipe, head={"rate": 0.5, "passes": 100}, notes=(note, *recipe.notes))


def _ensemble(dataset: str) -> Recipe:
    note = "the paper's networks are others: this is the recipe of softmax for each of 5 members"
    recipe = _softmax(dataset)
    return replace(recipe, head={"members": 5}, notes=(note, *recipe.notes))


def _edl(dataset: str) -> Recipe:
    head = {"risk": "mse", "kl_weight": 1.0}
    if dataset == "mnist":
        train = TrainConfig(
            epochs=50,
            batch_size=1000,
            optimizer="adam",
            learning_rate=1e-3,
            schedule="step",
            milestones=tuple(epoch / 50 for epoch in range(7, 50, 7)),
            decay=0.1,
            weight_decay=5e-3,
            clip_norm=_UNCLIPPED,
        )
        return _grey(
            train,
            head | {"evidence": "relu", "kl_ramp": 10 / 50},
            "a convolutional network in place of LeNet",
            "the number of epochs is ours; the rate falls to a tenth every 7",
            hidden=(),
        )
    note = "the paper's network for CIFAR is another: this is EDL as I-EDL trains it"
    head |= {"evidence": "softplus", "kl_ramp": 10 / 200}
    return _vgg(replace(_ADAM, learning_rate=1e-4), head, note, _STOPPED)


def _i_edl(dataset: str) -> Recipe:
    head = {"kl_weight": 1.0, "kl_ramp": 10 / 200}
    if dataset == "mnist":
        return _grey(_ADAM, head | {"fisher_weight": 0.005}, _STOPPED)
    return _vgg(replace(_ADAM, learning_rate=5e-4), head | {"fisher_weight": 0.05}, _STOPPED)


def _r_edl(dataset: str) -> Recipe:
    recipe = _re_edl(dataset)
    ramp = 10 / recipe.train.epochs
    return replace(recipe, head={"prior": 0.1, "kl_weight": 1.0, "kl_ramp": ramp})


def _re_edl(dataset: str) -> Recipe:
    if dataset == "mnist":
        train = replace(_ADAM, epochs=60, schedule="step", milestones=(0.25, 0.5, 0.75), decay=0.1)
        return _grey(train, {"prior": 0.1}, _BEST)
    return _vgg(replace(_ADAM, learning_rate=1e-4), {"prior": 0.8}, _BEST)


def _daedl(dataset: str) -> Recipe:
    train = replace(_ADAM, epochs=100, schedule="exponential", decay=0.95**100)
    head = {"kl_weight": 0.05}
    notes = (
        "the authors look at validation data every 10 epochs, here after each one",
        _BEST,
        "the rate falls by 5 % an epoch, here a little every step",
        "spectral norms are those of the convolutions; the authors bound the reshaped kernels",
    )
    if dataset == "mnist":
        # its density sees the output of the convolutions, so nothing may come after them
        note = "one linear layer in place of four: the density is that of what the head sees"
        recipe = _grey(train, head, *notes, note, hidden=())
    else:
        recipe = _vgg(train, head, *notes, normalise=True)
    bound = {"spectral": Spectral("hard", 1.0)}
    return replace(recipe, backbone_options={**recipe.backbone_options, **bound})


def _postnet(dataset: str) -> Recipe:
    train = replace(_ADAM, learning_rate=2.5e-4)
    head = {"latent": 6, "flow_length": 6, "entropy_weight": 1e-5}
    notes = (_STOPPED, "the authors compute in float64, here in float32")
    if dataset == "mnist":
        return _grey(train, head, *notes, "the learning rate is that of CIFAR-10")
    return _vgg(train, head, *notes, dropout=0.0)


def _prior_network(dataset: str) -> Recipe:
    train = replace(_SGD, decay=0.2, weight_decay=0.0, clip_norm=10.0)
    head = {"precision": 100.0, "outlier_weight": 1.0, "nll_weight": 0.0}
    notes = (
        "the papers train on a real set of outliers; no task has one, and virtual ones stand in",
        "network as in PostNet's comparison; budget, milestones and learning rate are DDU's",
    )
    if dataset == "mnist":
        return _grey(train, head, *notes, normalise=True)
    return _vgg(train, head, *notes, dropout=0.0, normalise=True)


def _cedl_plus(dataset: str) -> Recipe:
    train = TrainConfig(
        epochs=120,
        batch_size=128,
        optimizer="sgd",
        learning_rate=0.1,
        schedule="cosine",
        weight_decay=0.0,
        clip_norm=_UNCLIPPED,
    )
    head = {"kl_weight": 0.1, "kl_start": 0.01}
    note = "training as in the code of CEDL, of which 120 epochs are the shorter of two budgets"
    if dataset == "mnist":
        network = "the paper has no network for MNIST: that of I-EDL"
        return _grey(train, head, note, network, normalise=True)
    network = "resnet18 of width 16 in place of ResNet-32, the nearest in size that is here"
    return _resnet(train, head, note, network, width=16)


# -- the GEM family -------------------------------------------------------------------------------

# VOS warms up for 10 epochs, which is a fifth of the MNIST run and a tenth of the CIFAR-10 run.
_GEM: dict[str, Recipe] = {
    "mnist": Recipe(
        train=TrainConfig(epochs=50, batch_size=64, learning_rate=5e-4, weight_decay=1e-4),
        backbone="convnet",
        backbone_options=_GREY | {"dropout": 0.05},
        head={
            "num_components": 3,
            "kl_weight": 1e-3,
            "fi_reg_weight": 0.3,
            "fi_mod_strength": 0.3,
            "outliers": replace(VOS, start=0.2),
        },
    ),
    "cifar10": Recipe(
        train=TrainConfig(
            epochs=100,
            batch_size=128,
            learning_rate=1e-3,
            weight_decay=1e-4,
            augmentation=AUGMENTATIONS["standard"],
        ),
        backbone="resnet18",
        backbone_options=_COLOUR | {"dropout": 0.1},
        head={
            "num_components": 3,
            "kl_weight": 1e-4,
            "fi_reg_weight": 0.1,
            "fi_mod_strength": 0.1,
            "outliers": VOS,
        },
        notes=("the paper does not say how it augments: crop and flip, as most of the others",),
    ),
}

# What the released code's mixture (MIX and FI) does on CIFAR-10 with VOS where it differs from the
# paper's text, as far as the head goes. Its CORE is another network (a plain linear layer on raw
# features with a logit gate), its margin and outlier weight ramp up, and its backbone is hard-SN.
RELEASED: dict[str, Any] = {
    "sizes": "released",
    "spectral": "hard",
    "gate_bound": "clamp",
    "temperature": 1.0,
    "fi_gradient": "router",
    "fi_label": "pseudo",
    "fi_trace": 0.02,
    "core_loss": "edl",
    "ebm_weight": 0.01,
    "ebm_clip": 50.0,
    "unc_weight": 1.0,
    "unc_id": 0.002,
    "unc_outlier": 0.001,
    "rho": "none",
    "outliers": replace(VOS, covariance="per-class", draws=1000, start=0.3, ramp=0.3),
}


def gem_config(preset: str, dataset: str, *, released: bool = False) -> PaperConfig:
    """A GEM preset with the paper's values for a data set.

    With `released`, it also takes over what the released code does differently.
    """
    if preset not in PAPER_PRESETS:
        raise InputError(f"unknown preset {preset!r}; known: {', '.join(PAPER_PRESETS)}")
    _check_dataset(dataset)
    config = PAPER_PRESETS[preset]
    changes = dict(_GEM[dataset].head) | (RELEASED if released else {})
    weights = ("fi_reg_weight", "fi_mod_strength", "ebm_weight", "unc_weight")
    off = {name for name in weights if getattr(config, name) == 0}  # by the preset
    off |= {"outliers"} if config.outliers.is_none else set()
    off |= {"num_components"} if config.num_components == 1 else set()
    return replace(config, **{name: changes[name] for name in changes.keys() - off})


def _gem(dataset: str) -> Recipe:
    config = gem_config("gem-fi", dataset)
    head = {field.name: getattr(config, field.name) for field in fields(config)}
    return replace(_GEM[dataset], head=head)


OWN: Final[Mapping[str, Callable[[str], Recipe]]] = {
    "softmax": _softmax,
    "mc-dropout": _mc_dropout,
    "ensemble": _ensemble,
    "edl": _edl,
    "i-edl": _i_edl,
    "r-edl": _r_edl,
    "re-edl": _re_edl,
    "daedl": _daedl,
    "postnet": _postnet,
    "kl-pn": _prior_network,
    "rkl-pn": _prior_network,
    "cedl-plus": _cedl_plus,
    "gem-paper": _gem,
}
"""Method -> its recipe for a data set."""
