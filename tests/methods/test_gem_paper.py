"""The GEM head against the paper's algorithm written out by hand, and its switches and options."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gemfi import scores
from gemfi._config import to_plain
from gemfi.errors import InputError
from gemfi.methods import (
    PAPER_PRESETS,
    Batch,
    GEMMix,
    GEMPaper,
    PaperConfig,
)
from gemfi.methods.gem_paper import switches
from gemfi.outliers import NONE, OutlierConfig
from support.gem import MIDDLE, B, C, D, features, objective, perceptron


def build(**changes: object) -> GEMPaper:
    torch.manual_seed(0)
    return (
        GEMPaper(D, C, replace(PAPER_PRESETS["gem-fi"], **{"dropout": 0.0, **changes}))
        .double()
        .eval()
    )


def algorithm(head: GEMPaper, z: Tensor) -> dict[str, Tensor]:
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
        for k in range(head.config.num_components):
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
    on = switches(to_plain(config))
    first = tuple(on[name] for name in ("sn", "core", "mix", "fi_reg", "fi_mod"))
    expected = {
        "gem-core": ((True, True, False, False, False), False, "none"),
        "gem-mix": ((True, True, True, False, False), False, "none"),
        "gem-fi": ((True, True, True, True, True), True, "vos"),
    }[name]
    used = GEMPaper(D, C, config).outliers.kind
    assert (first, on["ebm"] and on["unc"], used) == expected
    assert on["ebm"] == on["unc"]


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
    head = GEMPaper(D, C, replace(PAPER_PRESETS["gem-core"], dropout=0.0)).double().eval()
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
    head = GEMPaper(D, C, config).double().eval()
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
        ({"fi_reg_weight": 0.0}, {"fisher"}),
        ({"ebm_weight": 0.0}, {"energy", "energy_outliers"}),
        ({"unc_weight": 0.0}, {"entropy", "entropy_outliers"}),
    ],
)
def test_a_switch_removes_its_terms(changes: dict[str, float], absent: set[str]) -> None:
    everything = objective(build()).keys()
    assert everything - objective(build(**changes)).keys() == absent


def test_fisher_modulation_acts_in_training_only() -> None:
    on, off = build(), build(fi_mod_strength=0.0)
    z = features()[0].double()
    torch.testing.assert_close(on(z).probs(), off(z).probs(), rtol=0, atol=0)
    assert objective(on)["nll"].item() != objective(off)["nll"].item()


def test_without_outliers_the_outlier_halves_are_absent_and_the_config_says_so() -> None:
    terms = objective(build(outliers=NONE), outliers=False)
    assert {"energy_outliers", "entropy_outliers"}.isdisjoint(terms)
    assert {"energy", "entropy"} <= terms.keys()
    text = " ".join(build(outliers=NONE).notes())
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
    bare = build(core=False, ebm_weight=0.0, unc_weight=0.0, num_components=1)
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
    parts = head.parts(z)
    signal = torch.cat([functional.normalize(z), torch.sigmoid(parts.energy)[:, None]], 1)
    gate = 0.1 + 0.8 * torch.sigmoid(head.gate(signal))
    gated = (belief.logits * gate[:, None]).clamp(-10, 10)
    torch.testing.assert_close(belief.log_p, torch.log_softmax(gated, -1), rtol=1e-6, atol=1e-6)
    assert belief.log_gate is None


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
    assert unit.config.start_temperature == 0.2
    assert raw.config.start_temperature == 1.0


def test_temperature_is_learned_from_where_it_is_said() -> None:
    parameters = dict(build(temperature=0.5).named_parameters())
    assert float(parameters["log_temperature"].detach()) == pytest.approx(math.log(0.5))


def gradients(head: GEMPaper, term: str) -> dict[str, float]:
    head.zero_grad()
    objective(head)[term].backward()
    return {
        name: float(p.grad.abs().sum())
        for name, p in head.named_parameters()
        if p.grad is not None and float(p.grad.abs().sum()) > 0
    }


def test_fisher_gradient_full_or_through_the_router_only() -> None:
    full = gradients(build(fi_mod_strength=0.0), "fisher")
    assert any(name.startswith("heads.") for name in full)
    traced = build(fi_mod_strength=0.0, fi_gradient="router", fi_trace=0.5)
    assert not objective(traced)["fisher_trace"].requires_grad  # as in the released code
    router = gradients(build(fi_mod_strength=0.0, fi_gradient="router"), "fisher")
    assert router
    assert all(name.startswith(("router.", "energy.")) for name in router)


def test_fisher_label_pseudo_is_the_argmax_of_the_mean_logits() -> None:
    head = build(fi_label="pseudo", fi_mod_strength=0.0)
    z, _ = features()
    belief = head(z.double())
    label = belief.logits.mean(1).argmax(-1)
    p_k = belief.log_p.exp()
    truth = torch.nn.functional.one_hot(label, C)[:, None]
    fisher = (belief.log_weight.exp() * ((truth - p_k) ** 2).sum(-1)).sum(1).mean()
    torch.testing.assert_close(objective(head)["fisher"], 0.1 * fisher)


@pytest.mark.parametrize("temperature", [0.002, 0.5])
def test_fisher_with_clip_is_the_gradient_in_the_logits_that_alpha_is_made_of(
    temperature: float,
) -> None:
    head = build(temperature=temperature, fi_clip=True, fi_mod_strength=0.0)
    z, y = features()
    parts = head.parts(z.double())
    u = parts.logits.detach().requires_grad_()
    alpha = torch.exp(u.clamp(-10, 10)) + 1e-8
    log_p = (alpha / alpha.sum(-1, keepdim=True)).log()
    (gradient,) = torch.autograd.grad(log_p.gather(2, y[:, None, None].expand(-1, 3, 1)).sum(), u)
    fisher = (parts.log_weight.exp() * gradient.square().sum(-1)).sum(1).mean()
    torch.testing.assert_close(objective(head)["fisher"], 0.1 * fisher)
    assert bool((u.abs() > 10).any()) == (temperature == 0.002)  # some coordinates are clipped


def test_fisher_trace_and_router_entropy() -> None:
    plain, more = objective(build()), objective(build(fi_trace=0.02, pi_entropy=0.5))
    assert more.keys() - plain.keys() == {"fisher_trace", "router_entropy"}
    pi = build()(features()[0].double()).log_weight  # the modulation is small but there
    entropy = -(pi.exp() * pi).sum(1).mean()
    assert more["router_entropy"].item() == pytest.approx(-0.5 * entropy.item(), rel=1e-2)
    assert more["fisher_trace"].item() > 0


def test_released_sizes() -> None:
    torch.manual_seed(0)
    head = GEMPaper(512, 10, replace(PAPER_PRESETS["gem-fi"], sizes="released"))
    widths = lambda m: [m.layers[0].inputs, *(layer.outputs for layer in m.layers)]  # noqa: E731
    assert widths(head.heads) == [512, 512, 256, 10]
    assert widths(head.energy) == [512, 1024, 512, 256, 512, 1]
    assert widths(head.gate) == [513, 512, 512, 256, 10]
    assert widths(head.router) == [513, 256, 128, 3]
    assert len(head.energy.norms) == 4


# -- density ------------------------------------------------------------------------------------


def fitted(**changes: object) -> GEMPaper:
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


def test_density_space() -> None:
    z = features()[0].double()
    unit, raw = fitted(), fitted(density_space="raw")
    torch.testing.assert_close(unit(z).log_density, unit(2 * z).log_density)
    assert not torch.allclose(raw(z).log_density, raw(2 * z).log_density)


def test_statistics_survive_saving() -> None:
    head, other = fitted(), build()
    other.load_state_dict(head.state_dict())
    z = features()[0].double()
    for name in ("log_rho", "log_density", "energy"):
        assert torch.equal(getattr(head(z), name), getattr(other(z), name))


# -- the interface ------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"gate": "logit"}, {"rho": "none"}])
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
        ({"gate": "nowhere"}, "gate must be one of energy, prob, logit"),
        ({"rho": "guess"}, "rho must be one of standardised, minmax, raw, none"),
        ({"gate_low": 0.9, "gate_high": 0.1}, "gate_high must be at most 1 and above 0.9, got 0.1"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"num_components": 1.5}, "num_components must be an integer of at least 1, got 1.5"),
        ({"num_components": True}, "num_components must be an integer of at least 1, got True"),
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
        replace(PaperConfig(), **changes)


def test_bad_sizes_and_foreign_configurations() -> None:
    with pytest.raises(InputError, match="num_classes must be an integer of at least 2, got 1"):
        GEMMix(D, 1)
    with pytest.raises(InputError, match="num_features must be an integer of at least 1, got 0"):
        GEMMix(0, C)
    with pytest.raises(InputError, match="gem-mix takes a GEMConfig, got OutlierConfig"):
        GEMMix(D, C, OutlierConfig())
