"""The paper's hyper-parameter table, value by value."""

from __future__ import annotations

import pytest

from gemfi.errors import InputError
from gemfi.methods import PAPER_PRESETS
from gemfi.recipes import gem_config, paper_recipe

TABLE = {
    "mnist": {"lr": 5e-4, "batch": 64, "epochs": 50, "kl": 1e-3, "fi": 0.3, "dropout": 0.05},
    "cifar10": {"lr": 1e-3, "batch": 128, "epochs": 100, "kl": 1e-4, "fi": 0.1, "dropout": 0.1},
}


@pytest.mark.parametrize("dataset", list(TABLE))
def test_the_table(dataset: str) -> None:
    row, recipe = TABLE[dataset], paper_recipe(dataset)
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
    assert (config.gate_low, config.gate_high, config.clip) == (0.1, 0.9, 10.0)
    assert config.outliers.start * train.epochs == pytest.approx(10)  # ten epochs of warm-up


@pytest.mark.parametrize("preset", list(PAPER_PRESETS))
def test_presets_keep_their_switches(preset: str) -> None:
    switches = ("sn", "core", "mix", "fi_reg", "fi_mod", "ebm", "unc")
    for released in (False, True):
        config = gem_config(preset, "cifar10", released=released)
        assert [getattr(config, s) for s in switches] == [
            getattr(PAPER_PRESETS[preset], s) for s in switches
        ]
        assert config.used_outliers.kind == PAPER_PRESETS[preset].used_outliers.kind


def test_released_values_differ_where_the_code_does() -> None:
    config = gem_config("gem-fi", "cifar10", released=True)
    assert (config.sizes, config.gate_bound, config.fi_gradient) == ("released", "clamp", "router")
    assert config.rho == "none"  # the released code never applies it


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="recipes for mnist, cifar10, not for 'svhn'"):
        paper_recipe("svhn")
    with pytest.raises(InputError, match="unknown preset 'edl'"):
        gem_config("edl", "mnist")
