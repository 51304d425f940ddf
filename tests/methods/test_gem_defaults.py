"""The default GEM presets, which are not the paper's: forward, gate, terms, familiarity."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gemfi import scores
from gemfi.methods import GEMFI, METHODS, PRESETS, Batch, Progress
from gemfi.methods.base import DataFacts
from gemfi.outliers import OutlierConfig
from support.gem import C, D, features, objective, perceptron


def default(**changes: object) -> GEMFI:
    torch.manual_seed(0)
    return GEMFI(D, C, replace(PRESETS["gem-fi"], **{"dropout": 0.0, **changes})).double().eval()


def default_fitted(**changes: object) -> GEMFI:
    head = default(**changes)
    z, y = features(2, 200)
    head.fit_statistics([(z.double(), y)], [(features(3, 100)[0].double(), y[:100])])
    return head


@pytest.mark.parametrize("name", ["gem-core", "gem-mix", "gem-fi"])
def test_presets_add_one_thing_at_a_time(name: str) -> None:
    config = PRESETS[name]
    assert METHODS[name].default_config() == config
    assert (config.mix, config.fi_reg, config.fi_mod) == {
        "gem-core": (False, False, False),
        "gem-mix": (True, False, False),
        "gem-fi": (True, True, True),
    }[name]
    assert (config.sn, config.core, config.ebm, config.unc) == (False, True, True, False)
    assert config.used_outliers == OutlierConfig()


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
    torch.testing.assert_close(belief.extra["log_gate"].exp(), gate[:, None])
    for k in range(3):
        u = z @ head.heads.layers[0].weight[k].T + head.heads.layers[0].bias[k]
        alpha = gate[:, None] * (torch.exp(u.clamp(-10, 10)) + 1e-8)
        torch.testing.assert_close(belief.log_p[:, k].exp(), alpha / alpha.sum(1, keepdim=True))
        torch.testing.assert_close(belief.log_evidence[:, k].exp(), alpha.sum(1))


def test_energy_gate_moves_the_evidence_and_not_the_prediction() -> None:
    gated, open_ = default(), default(core=False)
    open_.load_state_dict(gated.state_dict())
    z = features()[0].double()
    one, other = gated(z), open_(z)
    torch.testing.assert_close(one.probs(), other.probs(), rtol=1e-12, atol=1e-12)
    moved = one.log_total_evidence() - other.log_total_evidence()
    torch.testing.assert_close(moved, one.extra["log_gate"][:, 0], rtol=1e-5, atol=1e-6)
    assert gated.gate is None


def test_energy_gate_is_calibrated_on_validation_data() -> None:
    head = default_fitted()
    inside = features(3, 100)[0].double()
    gate = head(inside).extra["log_gate"].exp()[:, 0]
    assert torch.quantile(gate, 0.5).item() == pytest.approx(0.9, abs=1e-3)
    assert torch.quantile(gate, 0.05).item() == pytest.approx(0.5, abs=1e-3)


def test_the_energy_learns_from_its_own_terms_alone() -> None:
    head = default(mix=False)  # without a router, which sees σ(E) and may teach it
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


def test_router_terms_and_repulsion() -> None:
    head = default(pi_entropy=0.2, pi_balance=0.3, repulsion=0.4)
    terms = objective(head)
    fisher = default(pi_entropy=0.2, fi_mod=False, pi_balance=0.3, repulsion=0.4)
    plain = objective(fisher)
    pi = fisher(features()[0].double()).log_weight.exp()
    each = -(pi * pi.log()).sum(1).mean()
    mean = pi.mean(0)
    torch.testing.assert_close(plain["router_entropy"], -0.2 * each)
    torch.testing.assert_close(plain["router_balance"], 0.3 * (mean * mean.log()).sum())
    outside = fisher(features(1, 5)[0].double())
    torch.testing.assert_close(plain["repulsion"], -0.4 * scores.disagreement(outside).mean())
    assert terms["router_entropy"].item() != plain["router_entropy"].item()  # π is modulated


def test_familiarity_is_evidence_gate_and_rho_without_power_and_floor() -> None:
    head = default_fitted(rho_power=1.0, rho_floor=0.0)
    belief = head(features(4)[0].double())
    inside = -scores.logit_energy(head(features(3, 100)[0].double()))
    low, middle = torch.quantile(inside, torch.tensor([0.05, 0.5]).double())
    at = (-scores.logit_energy(belief) - low) / (middle - low)
    own = -torch.log1p(torch.exp(-math.log(9) * at))
    expected = own + belief.extra["log_gate"][:, 0] + belief.log_rho
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
    torch.testing.assert_close(belief.extra["log_gate"].exp()[:, 0], gate)


def test_a_gate_without_energy_training_is_noted() -> None:
    assert "its gate means nothing" in " ".join(replace(PRESETS["gem-fi"], ebm=False).notes())
    assert "its gate means nothing" not in " ".join(PRESETS["gem-fi"].notes())


@pytest.mark.parametrize("detached", [False, True])
def test_a_detached_energy_does_not_move_the_backbone(detached: bool) -> None:
    head = default(energy_detached=detached, fi_reg=False, fi_mod=False, pi_entropy=0.0)
    torch.manual_seed(3)
    z = torch.randn(6, D, dtype=torch.float64, requires_grad=True)
    outliers = torch.randn(4, D, dtype=torch.float64, requires_grad=True)
    y = torch.arange(6) % C
    terms = head.objective(Batch(z, y, outliers), Progress(5, 10))
    moved = torch.autograd.grad(
        terms["energy"] + terms["energy_outliers"],
        [z, outliers, *head.energy.parameters()],
        allow_unused=True,
    )
    assert all((each is None) == detached for each in moved[:2])
    assert all(each is not None and bool((each != 0).any()) for each in moved[2:])
