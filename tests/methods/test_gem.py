"""The GEM head against the paper's algorithm written out by hand, and its switches and options."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gemfi import scores
from gemfi.errors import InputError
from gemfi.methods import (
    GEMFI,
    PAPER_PRESETS,
    Batch,
    GEMConfig,
    GEMCore,
    GEMMix,
    Progress,
)
from gemfi.outliers import NONE, OutlierConfig
from support.gem import MIDDLE, B, C, D, features, objective, perceptron


def build(**changes: object) -> GEMFI:
    torch.manual_seed(0)
    return (
        GEMFI(D, C, replace(PAPER_PRESETS["gem-fi"], **{"dropout": 0.0, **changes})).double().eval()
    )


def algorithm(head: GEMFI, z: Tensor) -> dict[str, Tensor]:
    """Algorithm 1 of the paper, sample by sample, head by head, with probabilities and not logs."""
    out: dict[str, list[Tensor]] = {"p": [], "alpha0": [], "pi": [], "s": [], "E": []}
    temperature = float(head.log_temperature.detach().exp())
    for row in z:
        unit = row / row.norm()
        energy = perceptron(head.energy, unit)[0]
        signal = torch.cat([unit, torch.sigmoid(energy)[None]])
        pi = torch.softmax(perceptron(head.router, signal), 0)
        gate = 0.1 + 0.8 * torch.sigmoid(perceptron(head.gate, signal))
        mixture = torch.zeros(C, dtype=z.dtype)
        alpha0 = []
        for k in range(head.config.components):
            u = perceptron(head.heads, unit, k) / temperature
            alpha = torch.exp(u.clamp(-10, 10)) + 1e-8
            mixture = mixture + pi[k] * alpha / alpha.sum()
            alpha0.append(alpha.sum())
        gated = mixture * gate
        out["p"].append(gated / gated.sum())
        out["alpha0"].append((pi * torch.stack(alpha0)).sum())
        out["pi"].append(pi)
        out["s"].append(gate)
        out["E"].append(energy)
    return {name: torch.stack(values) for name, values in out.items()}


def test_forward_is_the_papers_algorithm() -> None:
    head = build()
    z = features()[0].double()
    belief, expected = head(z), algorithm(head, z)
    torch.testing.assert_close(belief.probs(), expected["p"])
    torch.testing.assert_close(belief.log_total_evidence().exp(), expected["alpha0"])
    torch.testing.assert_close(belief.log_weight.exp(), expected["pi"])
    torch.testing.assert_close(belief.log_gate.exp(), expected["s"])
    torch.testing.assert_close(belief.energy, expected["E"])


def test_heads_differ_and_all_matter() -> None:
    belief = build()(features()[0].double())
    assert bool((scores.disagreement(belief) > 0).all())


@pytest.mark.parametrize("name", ["gem-core", "gem-mix", "gem-fi"])
def test_presets_have_the_switches_of_the_ablation(name: str) -> None:
    config = PAPER_PRESETS[name]
    switches = (config.sn, config.core, config.mix, config.fi_reg, config.fi_mod)
    expected = {
        "gem-core": ((True, True, False, False, False), False, "none"),
        "gem-mix": ((True, True, True, False, False), False, "none"),
        "gem-fi": ((True, True, True, True, True), True, "vos"),
    }[name]
    assert (switches, config.ebm and config.unc, config.used_outliers.kind) == expected
    assert config.ebm == config.unc


def test_full_objective_term_by_term() -> None:
    head = build()
    z, y = features()
    z = z.double()
    inside, outside = algorithm(head, z), algorithm(head, features(1, 5)[0].double())
    belief = head(z)
    alpha = (belief.log_p + belief.log_evidence[..., None]).exp()
    p_k = belief.log_p.exp()
    truth = torch.nn.functional.one_hot(y, C).double()[:, None]
    fisher = ((truth - p_k) ** 2).sum(-1)
    share = fisher / fisher.sum(1, keepdim=True)
    pi = inside["pi"] * torch.exp(0.1 * (1 - share))
    pi = pi / pi.sum(1, keepdim=True)
    pi = (pi + 1e-4) / (pi + 1e-4).sum(1, keepdim=True)
    gated = (pi[..., None] * p_k).sum(1) * inside["s"]
    p_hat = gated / gated.sum(1, keepdim=True)
    dirichlet = torch.distributions.Dirichlet
    kl = torch.distributions.kl_divergence(dirichlet(alpha), dirichlet(torch.ones_like(alpha)))
    entropy = lambda p: -(p * p.log()).sum(1).mean()  # noqa: E731
    softplus = torch.nn.functional.softplus
    expected = {
        "nll": -p_hat.gather(1, y[:, None]).log().mean(),
        "kl": 1e-4 * (pi * kl).sum(1).mean(),
        "fisher": 0.1 * (pi * fisher).sum(1).mean(),
        "energy": 0.01 * softplus(inside["E"]).mean(),
        "energy_outliers": 0.1 * softplus(3 - outside["E"]).mean(),
        "entropy": 0.1 * 0.1 * entropy(p_hat),
        "entropy_outliers": -0.1 * 0.1 * entropy(outside["p"]),
    }
    terms = objective(head)
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value, msg=lambda text, n=name: f"{n}: {text}")


def test_core_objective_is_squared_error_and_kl() -> None:
    torch.manual_seed(0)
    head = GEMCore(D, C, replace(PAPER_PRESETS["gem-core"], dropout=0.0)).double().eval()
    z, y = features()
    belief = head(z.double())
    terms = head.objective(Batch(z.double(), y), MIDDLE)
    target = torch.nn.functional.one_hot(y, C)
    alpha = (belief.log_p + belief.log_evidence[..., None]).exp()[:, 0]
    dirichlet = torch.distributions.Dirichlet
    kl = torch.distributions.kl_divergence(dirichlet(alpha), dirichlet(torch.ones_like(alpha)))
    assert terms.keys() == {"squared_error", "kl"}
    error = (target - belief.probs()).square().sum(1).mean()
    torch.testing.assert_close(terms["squared_error"], error)
    torch.testing.assert_close(terms["kl"], 1e-4 * kl.mean())


def test_core_loss_edl_adds_variance_and_spares_the_true_class() -> None:
    torch.manual_seed(0)
    config = replace(PAPER_PRESETS["gem-core"], dropout=0.0, core_loss="edl")
    head = GEMCore(D, C, config).double().eval()
    z, y = features()
    belief = head(z.double())
    terms = head.objective(Batch(z.double(), y), MIDDLE)
    p, total = belief.log_p[:, 0].exp(), belief.log_evidence[:, 0].exp()
    variance = (p * (1 - p) / (total[:, None] + 1)).sum(1).mean()
    torch.testing.assert_close(terms["variance"], variance)
    alpha = (p * total[:, None]).scatter(1, y[:, None], 1.0)
    dirichlet = torch.distributions.Dirichlet
    kl = torch.distributions.kl_divergence(dirichlet(alpha), dirichlet(torch.ones_like(alpha)))
    torch.testing.assert_close(terms["kl"], 1e-4 * kl.mean())


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"fi_reg": False}, {"fisher"}),
        ({"ebm": False}, {"energy", "energy_outliers"}),
        ({"unc": False}, {"entropy", "entropy_outliers"}),
    ],
)
def test_a_switch_removes_its_terms(changes: dict[str, bool], absent: set[str]) -> None:
    everything = objective(build()).keys()
    assert everything - objective(build(**changes)).keys() == absent


def test_fisher_modulation_acts_in_training_only() -> None:
    on, off = build(), build(fi_mod=False)
    z = features()[0].double()
    torch.testing.assert_close(on(z).probs(), off(z).probs(), rtol=0, atol=0)
    assert objective(on)["nll"].item() != objective(off)["nll"].item()


def test_without_outliers_the_outlier_halves_are_absent_and_the_config_says_so() -> None:
    config = replace(PAPER_PRESETS["gem-fi"], outliers=NONE)
    terms = objective(build(outliers=NONE), outliers=False)
    assert {"energy_outliers", "entropy_outliers"}.isdisjoint(terms)
    assert {"energy", "entropy"} <= terms.keys()
    text = " ".join(config.notes())
    assert "EBM" in text
    assert "UNC" in text


def test_outlier_terms_carry_the_weight_of_the_batch() -> None:
    head = build()
    z, y = features()
    outside = features(1, 5)[0].double()
    terms = {
        weight: head.objective(Batch(z.double(), y, outside, weight), MIDDLE)
        for weight in (0.0, 0.5, 1.0)
    }
    for name in ("energy_outliers", "entropy_outliers"):
        none, half, full = (terms[weight][name].item() for weight in (0.0, 0.5, 1.0))
        assert none == 0
        assert half == pytest.approx(full / 2)
    assert torch.equal(terms[0.0]["nll"], terms[1.0]["nll"])


def test_core_switch_off_leaves_no_gate_and_mix_off_one_head() -> None:
    z = features()[0].double()
    ungated = build(core=False)
    assert ungated.gate is None
    assert ungated(z).log_gate is None
    assert ungated.energy is not None  # EBM is on
    bare = build(core=False, ebm=False, unc=False, mix=False, fi_reg=False, fi_mod=False)
    assert bare.energy is None
    assert bare.router is None
    assert bare(z).log_p.shape == (B, 1, C)
    assert bare(z).energy is None


def test_sn_switch() -> None:
    assert build().heads.layers[0].spectral.kind == "soft"
    assert build(spectral="hard").gate.layers[0].spectral.kind == "hard"
    assert build(sn=False).heads.layers[0].spectral.kind == "off"


# -- options ------------------------------------------------------------------------------------


def test_logit_gate_multiplies_logits() -> None:
    head = build(gate="logit")
    z = features()[0].double()
    belief = head(z)
    gate = belief.extra["log_gate"].exp()
    gated = (belief.logits * gate[:, None]).clamp(-10, 10)
    torch.testing.assert_close(belief.log_p, torch.log_softmax(gated, -1), rtol=1e-6, atol=1e-6)
    assert belief.log_gate is None


def test_evidence_gate_scales_alpha_and_so_moves_the_evidence() -> None:
    z = features()[0].double()
    gated, plain = build(gate="evidence")(z), build()(z)
    alpha = (plain.log_p + plain.log_evidence[..., None]).exp() - 1e-8
    scaled = alpha * gated.extra["log_gate"].exp()[:, None] + 1e-8
    torch.testing.assert_close(gated.log_evidence.exp(), scaled.sum(-1))
    torch.testing.assert_close(gated.log_p.exp(), scaled / scaled.sum(-1, keepdim=True))
    assert bool((gated.log_evidence < plain.log_evidence).all())


def test_clamped_gate_stays_in_its_bounds_and_sigmoid_gate_too() -> None:
    z = 50 * features()[0].double()
    for bound in ("sigmoid", "clamp"):
        gate = build(gate_bound=bound, feature_space="raw")(z).log_gate.exp()
        assert gate.min().item() >= 0.1 - 1e-12
        assert gate.max().item() <= 0.9 + 1e-12


def test_unit_features_ignore_scale_and_raw_features_do_not() -> None:
    z = features()[0].double()
    unit, raw = build(), build(feature_space="raw")
    torch.testing.assert_close(unit(z).probs(), unit(3 * z).probs())
    assert not torch.allclose(raw(z).probs(), raw(3 * z).probs())
    assert unit.config.initial_temperature == 0.2
    assert raw.config.initial_temperature == 1.0


def test_temperature_fixed_or_learned() -> None:
    assert "log_temperature" in dict(build().named_parameters())
    fixed = build(temperature_learned=False, temperature=0.5)
    assert "log_temperature" not in dict(fixed.named_parameters())
    assert float(fixed.log_temperature) == pytest.approx(math.log(0.5))


def gradients(head: GEMFI, term: str) -> dict[str, float]:
    head.zero_grad()
    objective(head)[term].backward()
    return {
        name: float(p.grad.abs().sum())
        for name, p in head.named_parameters()
        if p.grad is not None and float(p.grad.abs().sum()) > 0
    }


def test_fisher_gradient_full_or_through_the_router_only() -> None:
    full = gradients(build(fi_mod=False), "fisher")
    assert any(name.startswith("heads.") for name in full)
    traced = build(fi_mod=False, fi_gradient="router", fi_trace=0.5)
    assert not objective(traced)["fisher_trace"].requires_grad  # as in the released code
    router = gradients(build(fi_mod=False, fi_gradient="router"), "fisher")
    assert router
    assert all(name.startswith(("router.", "energy.")) for name in router)


def test_fisher_label_pseudo_is_the_argmax_of_the_mean_logits() -> None:
    head = build(fi_label="pseudo", fi_mod=False)
    z, _ = features()
    belief = head(z.double())
    label = belief.logits.mean(1).argmax(-1)
    p_k = belief.log_p.exp()
    truth = torch.nn.functional.one_hot(label, C)[:, None]
    fisher = (belief.log_weight.exp() * ((truth - p_k) ** 2).sum(-1)).sum(1).mean()
    torch.testing.assert_close(objective(head)["fisher"], 0.1 * fisher)


@pytest.mark.parametrize("gate", ["prob", "logit", "evidence"])
@pytest.mark.parametrize("temperature", [0.01, 0.5])
def test_fisher_with_clip_is_the_gradient_in_the_logits_that_alpha_is_made_of(
    gate: str, temperature: float
) -> None:
    head = build(gate=gate, temperature=temperature, fi_clip=True, fi_mod=False, clip=2.0)
    z, y = features()
    parts = head.parts(z.double())
    s = parts.log_gate.exp()[:, None].detach()
    u = (parts.logits * (s if gate == "logit" else 1)).detach().requires_grad_()
    alpha = torch.exp(u.clamp(-2, 2)) * (s if gate == "evidence" else 1) + 1e-8
    log_p = (alpha / alpha.sum(-1, keepdim=True)).log()
    (gradient,) = torch.autograd.grad(log_p.gather(2, y[:, None, None].expand(-1, 3, 1)).sum(), u)
    fisher = (parts.log_weight.exp() * gradient.square().sum(-1)).sum(1).mean()
    torch.testing.assert_close(objective(head)["fisher"], 0.1 * fisher)
    assert bool((u.abs() > 2).any()) == (temperature == 0.01)  # some coordinates are clipped


def test_fisher_trace_and_router_entropy() -> None:
    plain, more = objective(build()), objective(build(fi_trace=0.02, pi_entropy=0.5))
    assert more.keys() - plain.keys() == {"fisher_trace", "router_entropy"}
    pi = build()(features()[0].double()).log_weight  # the modulation is small but there
    entropy = -(pi.exp() * pi).sum(1).mean()
    assert more["router_entropy"].item() == pytest.approx(-0.5 * entropy.item(), rel=1e-2)
    assert more["fisher_trace"].item() > 0


def test_energy_tanh_is_bounded_and_desaturated_in_evaluation() -> None:
    head = build(energy_tanh=True, feature_space="raw", energy_space="raw", sn=False)
    z = features()[0].double()
    raw = head.energy(z).squeeze(1)
    torch.testing.assert_close(head(z).energy, torch.tanh(0.5 * raw))
    head.train()
    torch.testing.assert_close(head.parts(z).energy, torch.tanh(head.energy(z).squeeze(1)))


def test_released_sizes() -> None:
    torch.manual_seed(0)
    head = GEMFI(512, 10, replace(PAPER_PRESETS["gem-fi"], sizes="released"))
    widths = lambda m: [m.layers[0].inputs, *(layer.outputs for layer in m.layers)]  # noqa: E731
    assert widths(head.heads) == [512, 512, 256, 10]
    assert widths(head.energy) == [512, 1024, 512, 256, 512, 1]
    assert widths(head.gate) == [513, 512, 512, 256, 10]
    assert widths(head.router) == [513, 256, 128, 3]
    assert len(head.energy.norms) == 4


# -- density ------------------------------------------------------------------------------------


def fitted(**changes: object) -> GEMFI:
    head = build(**changes)
    z, y = features(2, 200)
    head.fit_statistics([(z.double(), y)], [(features(3, 100)[0].double(), y[:100])])
    return head


def test_density_is_fitted_after_training_and_scales_evidence_only() -> None:
    before, after = build(), fitted()
    z = features()[0].double()
    assert before(z).log_rho is None
    one, other = before(z), after(z)
    torch.testing.assert_close(one.probs(), other.probs())
    torch.testing.assert_close(scores.evidence(other), scores.evidence(one) - other.log_rho)
    torch.testing.assert_close(scores.bare_evidence(other), scores.evidence(one))


def test_rho_location_and_scale_come_from_validation_features() -> None:
    head = fitted(rho_floor=0.0)
    z = features(3, 100)[0].double()
    log_rho = head(z).log_rho
    levels = torch.quantile(log_rho.exp(), torch.tensor([0.05, 0.5], dtype=torch.float64))
    torch.testing.assert_close(
        levels, torch.tensor([0.5**1.2, 0.9**1.2], dtype=torch.float64), rtol=0.02, atol=0
    )


def test_rho_none_has_no_density() -> None:
    belief = fitted(rho="none")(features()[0].double())
    assert belief.log_rho is None
    assert belief.log_density is None


def test_density_space() -> None:
    z = features()[0].double()
    unit, raw = fitted(), fitted(density_space="raw")
    torch.testing.assert_close(unit(z).log_density, unit(2 * z).log_density)
    assert not torch.allclose(raw(z).log_density, raw(2 * z).log_density)


def test_energy_source_and_the_clipped_confidence() -> None:
    z = features()[0].double()
    learned, gmm = fitted(), fitted(energy_source="gmm")
    torch.testing.assert_close(gmm(z).energy, -gmm(z).log_density)
    logits = fitted(energy_source="logits")(z)
    torch.testing.assert_close(logits.energy, scores.logit_energy(logits))
    auto = fitted(energy_source="auto")(z)
    torch.testing.assert_close(auto.energy, gmm(z).energy)  # the wider span by far
    inside = features(3, 100)[0].double()
    energy = learned(inside).energy
    low, high = torch.quantile(energy, torch.tensor([0.01, 0.99], dtype=torch.float64))
    confidence = (1 - (energy - low) / (high - low)).clamp(0, 1)
    torch.testing.assert_close(
        learned(inside).extra["energy_confidence"], confidence, rtol=1e-4, atol=1e-4
    )


def test_density_refitted_in_training_scales_the_kl() -> None:
    options = {"rho_refit": 0.25, "kl_evidence": "scaled", "kl_weight": 1.0}
    head, plain = build(**options), build(kl_weight=1.0)
    for step in (0, 10, 20):
        objective(head, at=Progress(step, 100))
    assert head.density is not None
    assert not head.density.fitted
    torch.testing.assert_close(objective(head, at=Progress(24, 100))["kl"], objective(plain)["kl"])
    scaled = objective(head, at=Progress(25, 100))["kl"]
    assert head.density.fitted
    assert not torch.allclose(scaled, objective(plain)["kl"])


def test_statistics_survive_saving() -> None:
    head, other = fitted(), build()
    other.load_state_dict(head.state_dict())
    z = features()[0].double()
    for name in ("log_rho", "log_density", "energy"):
        assert torch.equal(getattr(head(z), name), getattr(other(z), name))


# -- the interface ------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"gate": "logit"}, {"energy_source": "auto"}])
def test_forward_exports_with_a_dynamic_batch(changes: dict[str, str]) -> None:
    head = fitted(**changes)
    z = features()[0].double()
    batch = torch.export.Dim("batch", min=2, max=512)
    program = torch.export.export(head, (z,), dynamic_shapes=({0: batch},)).module()
    more = features(5, 40)[0].double()
    mine, theirs = head(more), program(more)
    torch.testing.assert_close(mine.log_probs(), theirs.log_probs())
    torch.testing.assert_close(scores.evidence(mine), scores.evidence(theirs))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_components": 0}, "num_components must be an integer of at least 1, got 0"),
        ({"gate": "nowhere"}, "gate must be one of energy, prob, logit, evidence"),
        ({"rho": "guess"}, "rho must be one of standardised, minmax, raw, none"),
        ({"gate_low": 0.9, "gate_high": 0.1}, "gate_high must be at most 1 and above 0.9, got 0.1"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"rho_refit": 2.0}, "rho_refit must be at least 0 and below 1"),
        ({"clip": 0.0}, "clip must be at most 1e+30 and above 0, got 0.0"),
        ({"clip": 1e308}, "clip must be at most 1e+30 and above 0, got 1e+308"),
        ({"num_components": 1.5}, "num_components must be an integer of at least 1, got 1.5"),
        ({"num_components": True}, "num_components must be an integer of at least 1, got True"),
        ({"rho_power": -1.0}, "rho_power must be at least 0, got -1.0"),
        ({"fi_smoothing": -1.0}, "fi_smoothing must be at least 0, got -1.0"),
        ({"ebm_clip": 0.0}, "ebm_clip must be above 0, got 0.0"),
        ({"unc_outlier": -0.1}, "unc_outlier must be at least 0, got -0.1"),
        ({"outliers": "halo"}, "outliers must be an OutlierConfig, got 'halo'"),
        ({"kl_weight": "much"}, "kl_weight must be a number, got 'much'"),
        ({"kl_weight": math.nan}, "kl_weight must be at least 0, got nan"),
        ({"fi_reg_weight": -0.1}, "fi_reg_weight must be at least 0, got -0.1"),
        ({"core_loss": "edl", "loss": "squared"}, "is for one head"),
    ],
)
def test_bad_configurations_say_what_was_expected(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        replace(GEMConfig(), **changes)


def test_bad_sizes_and_foreign_configurations() -> None:
    with pytest.raises(InputError, match="num_classes must be at least 2, got 1"):
        GEMMix(D, 1)
    with pytest.raises(InputError, match="num_features must be at least 1, got 0"):
        GEMMix(0, C)
    with pytest.raises(InputError, match="gem-mix takes a GEMConfig, got OutlierConfig"):
        GEMMix(D, C, OutlierConfig())
