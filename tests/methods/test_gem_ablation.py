"""The ablation's rows and the related-work presets: switches as in the paper's table, and alive."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gemfi._config import to_plain
from gemfi.data import two_moons
from gemfi.errors import InputError
from gemfi.methods import PAPER_PRESETS, Batch, GEMPaper, Progress
from gemfi.methods.gem_paper import OURS, SWITCHES, ablation, meaning, preset, presets, switches
from gemfi.runs import make_spec
from gemfi_bench.recipes import gem_config

# ticks of the paper's table of the ablation, row by row
TABLE = [
    set(),
    {"sn"},
    {"sn", "core"},
    {"sn", "core", "mix"},
    {"sn", "core", "mix", "fi_reg"},
    {"sn", "core", "mix", "fi_mod"},
    {"sn", "core", "mix", "fi_reg", "fi_mod"},
    {"sn", "core", "mix", "fi_reg", "fi_mod", "ebm"},
    {"sn", "core", "mix", "fi_reg", "fi_mod", "ebm", "unc"},
    {"core", "mix", "fi_reg", "fi_mod", "ebm", "unc"},
]


def test_the_rows_are_the_papers() -> None:
    rows = ablation()
    plain = [switches(to_plain(config)) for config in rows.values()]
    on = [{name for name in SWITCHES if found[name]} for found in plain]
    assert on == TABLE
    off = {"fi_reg_weight": 0.0, "fi_mod_strength": 0.0, "ebm_weight": 0.0, "unc_weight": 0.0}
    same = {"sn": False, "core": False, "num_components": 1, **off}
    assert {replace(config, **same) for config in rows.values()} == {
        replace(PAPER_PRESETS["gem-fi"], **same)
    }
    assert rows["ablation-full"] == PAPER_PRESETS["gem-fi"]


def test_our_own_configuration_has_an_ablation_too() -> None:
    rows = ablation(OURS)
    assert all(config.gate == "energy" and config.sizes == "linear" for config in rows.values())


@pytest.mark.parametrize("name", list(presets()))
def test_each_preset_trains_and_no_two_agree(name: str) -> None:
    def loss(which: str) -> torch.Tensor:
        torch.manual_seed(0)
        head = GEMPaper(6, 3, replace(preset(which), dropout=0.0)).double()
        torch.manual_seed(1)
        outliers = torch.randn(4, 6).double() if head.takes_outliers else None
        batch = Batch(torch.randn(8, 6).double(), torch.randint(3, (8,)), outliers)
        total = torch.stack(list(head.objective(batch, Progress(5, 10)).values())).sum()
        total.backward()
        assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in head.parameters())
        assert head(batch.z).probs().sum(dim=-1).allclose(torch.ones(8, dtype=torch.float64))
        return total.detach()

    mine = loss(name)
    assert not any(torch.equal(loss(other), mine) for other in presets() if other != name)


def test_related_work_says_what_it_stands_for() -> None:
    names = ("dirichlet-mixture", "gated-dirichlet")
    mixture, gated = map(preset, names)
    assert mixture.num_components == 3
    assert not mixture.has_energy
    assert gated.num_components == 1
    assert gated.core
    assert all("stands for" in meaning(name) for name in names)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown preset 'full'; known: ablation-none"):
        preset("full")


def test_the_switches_come_on_top_of_a_data_sets_own_values() -> None:
    mnist = gem_config("gem-fi", "mnist")
    assert preset("ablation-full", mnist) == mnist
    assert preset("ablation-mix", mnist).kl_weight == mnist.kl_weight == 1e-3


def test_a_preset_from_the_command_line() -> None:
    task = two_moons()
    spec = make_spec(
        "two-moons", "gem-paper", task, preset="ablation-mix", settings=["ebm_margin=9"]
    )
    assert spec.head == replace(preset("ablation-mix"), ebm_margin=9.0)
    with pytest.raises(InputError, match="--preset ablation-mix is one of gem-paper, not of edl"):
        make_spec("two-moons", "edl", task, preset="ablation-mix")
