"""The default GEM presets, which are not the paper's: forward, gate, terms, familiarity."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from gemfi import scores
from gemfi._config import from_plain, to_plain
from gemfi.errors import InputError
from gemfi.methods import GEMFI, METHODS, PRESETS, GEMConfig, GEMPaper, PaperConfig
from gemfi.methods.base import DataFacts
from gemfi.methods.gem_paper import OURS, ablation, switches
from gemfi.methods.upgrade import upgraded
from gemfi.outliers import NONE, OutlierConfig
from support.gem import C, D, features, objective, perceptron


def default(**changes: object) -> GEMFI:
    torch.manual_seed(0)
    return GEMFI(D, C, replace(PRESETS["gem-fi"], **{"dropout": 0.0, **changes})).double().eval()


def default_fitted(**changes: object) -> GEMFI:
    head = default(**changes)
    z, y = features(2, 200)
    head.fit_statistics([(z.double(), y)], [(features(3, 100)[0].double(), y[:100])])
    return head


def test_evidence_is_bounded_by_the_clip() -> None:
    """However large the logits, α lies between exp(−10) + 1e-8 and exp(10) + 1e-8."""
    head = default(num_components=1)
    logits = head.parts(1e4 * features()[0].double()).logits
    assert float(logits.abs().max().detach()) > 100
    parts = head.parts(1e4 * features()[0].double())
    alpha = torch.exp(parts.log_alpha - parts.log_gate[:, None]).detach()  # type: ignore[index]
    assert float(alpha.max()) == pytest.approx(math.exp(10) + 1e-8, rel=1e-6)
    assert float(alpha.min()) == pytest.approx(math.exp(-10) + 1e-8, rel=1e-6)


@pytest.mark.parametrize("name", ["gem-core", "gem-mix", "gem-fi"])
def test_presets_add_one_thing_at_a_time(name: str) -> None:
    config = PRESETS[name]
    assert METHODS[name].default_config() == config
    assert (config.num_components, config.fi_reg_weight, config.fi_mod_strength) == {
        "gem-core": (1, 0.0, 0.0),
        "gem-mix": (3, 0.0, 0.0),
        "gem-fi": (3, 0.1, 0.1),
    }[name]
    assert METHODS[name](D, C).outliers == OutlierConfig()


def test_forward_step_by_step() -> None:
    """Linear heads on raw features; energy and router on unit ones; α·σ(−E)."""
    head = default()
    z = features()[0].double()
    belief = head(z)
    unit = z / z.norm(dim=1, keepdim=True)
    energy = perceptron(head.energy, unit)[:, 0] / 0.2
    pi = torch.softmax(
        perceptron(head.router, torch.cat([unit, torch.sigmoid(energy)[:, None]], 1)), 1
    )
    gate = 1 / (1 + torch.exp(energy))
    torch.testing.assert_close(belief.energy, energy)
    torch.testing.assert_close(belief.log_weight.exp(), pi)
    torch.testing.assert_close(belief.log_gate.exp(), gate[:, None])
    for k in range(3):
        u = z @ head.heads.layers[0].weight[k].T + head.heads.layers[0].bias[k]
        alpha = gate[:, None] * (torch.exp(u.clamp(-10, 10)) + 1e-8)
        torch.testing.assert_close(belief.log_p[:, k].exp(), alpha / alpha.sum(1, keepdim=True))
        torch.testing.assert_close(belief.log_evidence[:, k].exp(), alpha.sum(1))


def test_energy_gate_moves_the_evidence_and_not_the_prediction() -> None:
    config = replace(OURS, core=False, dropout=0.0)
    gated, open_ = default(), GEMPaper(D, C, config).double().eval()
    open_.load_state_dict(gated.state_dict())
    z = features()[0].double()
    one, other = gated(z), open_(z)
    torch.testing.assert_close(one.probs(), other.probs(), rtol=1e-12, atol=1e-12)
    moved = one.log_total_evidence() - other.log_total_evidence()
    torch.testing.assert_close(moved, one.log_gate[:, 0], rtol=1e-5, atol=1e-6)
    assert other.log_gate is None


def test_energy_gate_is_calibrated_on_validation_data() -> None:
    head = default_fitted()
    inside = features(3, 100)[0].double()
    gate = head(inside).log_gate.exp()[:, 0]
    assert torch.quantile(gate, 0.5).item() == pytest.approx(0.9, abs=1e-3)
    assert torch.quantile(gate, 0.05).item() == pytest.approx(0.5, abs=1e-3)


def test_the_energy_learns_from_its_own_terms_alone() -> None:
    head = default(num_components=1)  # without a router, which sees σ(E) and may teach it
    terms = objective(head)
    assert terms.keys() == {"nll", "kl", "fisher", "energy", "energy_outliers"}
    last = head.energy.layers[1].weight

    def gradient(*names: str) -> Tensor | None:
        total = torch.stack([terms[name] for name in names]).sum()
        return torch.autograd.grad(total, last, retain_graph=True, allow_unused=True)[0]

    assert gradient("nll", "kl", "fisher") is None
    assert gradient("energy") is not None
    assert gradient("energy_outliers") is not None


def test_balanced_energy_terms() -> None:
    head = default()
    terms = objective(head)
    inside = head(features()[0].double()).energy
    outside = head(features(1, 5)[0].double()).energy
    torch.testing.assert_close(terms["energy"], 0.03 * torch.log1p(inside.exp()).mean())
    torch.testing.assert_close(
        terms["energy_outliers"], 0.03 * torch.log1p((-outside).exp()).mean()
    )


def test_router_entropy_is_that_of_the_modulated_weights() -> None:
    modulated, plain = objective(default()), default(fi_mod_strength=0.0)
    pi = plain(features()[0].double()).log_weight.exp()
    expected = -0.1 * -(pi * pi.log()).sum(1).mean()
    torch.testing.assert_close(objective(plain)["router_entropy"], expected)
    assert modulated["router_entropy"].item() != expected.item()


def test_familiarity_is_evidence_gate_and_rho_without_power_and_floor() -> None:
    head = default_fitted(rho_floor=0.0)
    belief = head(features(4)[0].double())
    inside = -scores.logit_energy(head(features(3, 100)[0].double()))
    low, middle = torch.quantile(inside, torch.tensor([0.05, 0.5]).double())
    at = (-scores.logit_energy(belief) - low) / (middle - low)
    own = -torch.log1p(torch.exp(-math.log(9) * at))
    expected = own + belief.log_gate[:, 0] + belief.log_rho / 1.2
    torch.testing.assert_close(belief.log_familiarity, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores.unfamiliarity(belief), -belief.log_familiarity)


def test_a_gate_that_is_nearly_shut_leaves_the_prediction_alone() -> None:
    head = default()
    z = features()[0].double()
    before = head(z)
    with torch.no_grad():
        head.energy.layers[-1].bias += 20.0  # E rises by 100
    after = head(z)
    moved = before.log_total_evidence() - after.log_total_evidence()
    assert bool((moved > 90).all())
    for k in range(3):
        torch.testing.assert_close(after.log_p[:, k], before.log_p[:, k])


def test_training_again_forgets_the_old_calibration() -> None:
    head = default_fitted()
    assert head.familiarity.fitted
    head.prepare(DataFacts(torch.ones(C), 10))
    z = features()[0].double()
    belief = head(z)
    assert belief.log_familiarity is None
    gate = torch.sigmoid(-belief.energy)
    torch.testing.assert_close(belief.log_gate.exp()[:, 0], gate)


def test_a_gate_without_energy_training_is_noted() -> None:
    for changes in ({"ebm_weight": 0.0}, {"outliers": NONE}):
        assert "the energy learns nothing" in " ".join(default(**changes).notes())
    assert default().notes() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_components": 0}, "num_components must be an integer of at least 1, got 0"),
        ({"feature_space": "odd"}, "feature_space must be one of unit, raw, got 'odd'"),
        ({"density_covariance": "none"}, "density_covariance must be one of class, tied"),
        ({"density_shrinkage": 1.5}, "density_shrinkage must be at least 0 and at most 1"),
        ({"rho_floor": 1.0}, "rho_floor must be at least 0 and below 1, got 1.0"),
        ({"ebm_weight": -0.1}, "ebm_weight must be at least 0, got -0.1"),
        ({"outliers": "halo"}, "outliers must be an OutlierConfig, got 'halo'"),
    ],
)
def test_bad_configurations_say_what_was_expected(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        replace(GEMConfig(), **changes)


def test_heads_on_directions_start_at_a_smaller_temperature() -> None:
    z = features()[0].double()
    unit, raw = default(feature_space="unit"), default()
    torch.testing.assert_close(unit(z).probs(), unit(3 * z).probs())
    assert not torch.allclose(raw(z).probs(), raw(3 * z).probs())
    temperatures = [float(head.log_temperature.detach().exp()) for head in (unit, raw)]
    assert temperatures == pytest.approx([0.2, 1.0])


class TestUpgrade:
    """Configurations of files that are older than `gem_paper.py`."""

    OLD: ClassVar[dict[str, object]] = {
        **to_plain(OURS), "unc_weight": 0.1, "core": True, "mix": True, "fi_reg": True,
        "fi_mod": True, "ebm": True, "unc": False, "energy_space": "unit",
        "temperature_learned": True, "clip": 10.0, "epsilon": 1e-8, "energy_detached": False,
        "energy_tanh": False, "energy_desaturate": 0.5, "energy_source": "learned",
        "kl_evidence": "unscaled", "fi_smoothing": 1e-4, "pi_balance": 0.0, "repulsion": 0.0,
        "rho_power": 1.2, "rho_refit": 0.0,
    }  # fmt: skip

    def test_ours_stays_ours(self) -> None:
        name, config = upgraded("gem-fi", self.OLD)
        assert name == "gem-fi"
        assert from_plain(GEMConfig, config, "old") == PRESETS["gem-fi"]
        core = {**self.OLD, "mix": False, "fi_reg": False, "fi_mod": False}
        name, config = upgraded("gem-core", core)
        assert from_plain(GEMConfig, config, "old") == PRESETS["gem-core"]

    def test_anything_else_is_the_papers(self) -> None:
        for name, preset in ablation(OURS).items():
            on = switches(to_plain(preset))
            old = self.OLD | on
            method, config = upgraded("gem-fi", old)
            if method == "gem-paper":
                found = from_plain(PaperConfig, config, "old")
                assert replace(found, ebm_outlier_weight=0.03) == preset, name
            else:
                assert name == "ablation-ebm-without-sn"
        assert method == "gem-paper"

    def test_what_is_gone_is_refused_by_name(self) -> None:
        with pytest.raises(InputError, match="gem-fi sets repulsion, which this version does not"):
            upgraded("gem-fi", self.OLD | {"repulsion": 0.1})

    def test_others_and_new_ones_are_left_alone(self) -> None:
        assert upgraded("edl", {"mix": 1}) == ("edl", {"mix": 1})
        new = to_plain(PRESETS["gem-fi"])
        assert upgraded("gem-fi", new) == ("gem-fi", new)
