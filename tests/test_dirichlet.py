"""Closed forms against autograd, torch.distributions, mpmath and plain loops (METHODS.md, C)."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from torch import distributions as td

from gemfi import dirichlet

mp.mp.dps = 50
F64 = torch.float64


def random_log_p(*shape, spread=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(spread * torch.randn(shape, generator=generator, dtype=F64), dim=-1)


def random_log_alpha(*shape, spread=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(shape, generator=generator, dtype=F64)


def one_hot_alpha(top, rest, classes=10):
    """Log concentrations: one class at `top`, the others at `rest`."""
    return torch.tensor([top] + [rest] * (classes - 1), dtype=F64)


# ---------------------------------------------------------------- C1: the Fisher proxy


def fisher_by_autograd(u, label, rho, clip, eps):
    """‖∂ log p_y / ∂u‖², one sample at a time."""
    values = []
    for row, y in zip(u, label, strict=True):
        x = row.clone().requires_grad_()
        alpha = rho * x.clamp(-clip, clip).exp() + eps
        (gradient,) = torch.autograd.grad(torch.log(alpha[y] / alpha.sum()), x)
        values.append(gradient.square().sum())
    return torch.stack(values)


@pytest.mark.parametrize("log_rho", [0.0, -6.0, -12.0, -18.0])
@pytest.mark.parametrize("clip", [100.0, 2.0], ids=["inside", "half-clipped"])
def test_fisher_proxy_is_the_squared_gradient_of_autograd(clip, log_rho):
    u = random_log_alpha(50, 10, spread=3.0)
    label = torch.arange(50) % 10
    clipped = u.abs() > clip
    if clip == 2.0:
        assert 0.4 < clipped.double().mean() < 0.6
    log_e = log_rho + u.clamp(-clip, clip)
    log_alpha = torch.logaddexp(log_e, torch.tensor(math.log(1e-8), dtype=F64))
    log_p, _ = dirichlet.log_mean(log_alpha)
    factor = torch.where(clipped, 0.0, torch.exp(log_e - log_alpha))
    expected = fisher_by_autograd(u, label, math.exp(log_rho), clip, 1e-8)
    found = dirichlet.fisher_proxy(log_p, label, factor)
    assert (found - expected).abs().max() <= 1e-13
    if log_rho == -18.0:  # here ε is as large as ρ·e^u, and leaving the factor out would show
        assert (dirichlet.fisher_proxy(log_p, label) - expected).abs().max() > 0.1


def test_fisher_proxy_without_clip_and_eps_equals_the_expanded_form():
    log_p, label = random_log_p(200, 7), torch.arange(200) % 7
    p = log_p.exp()
    expanded = 1 - 2 * p.gather(1, label[:, None])[:, 0] + p.square().sum(-1)
    assert torch.allclose(dirichlet.fisher_proxy(log_p, label), expanded, rtol=0, atol=1e-14)


def test_fisher_proxy_is_differentiable_through_the_logits():
    u = random_log_alpha(4, 3, 5).requires_grad_()
    label = torch.tensor([[0], [1], [2], [4]])
    assert torch.autograd.gradcheck(
        lambda x: dirichlet.fisher_proxy(torch.log_softmax(x, -1), label), u
    )


def test_fisher_proxy_keeps_a_confident_head_in_float32():
    p = torch.tensor([1 - 9e-6] + [1e-6] * 9, dtype=F64)
    log_p, label = p.log().float(), torch.tensor(0)
    found = dirichlet.fisher_proxy(log_p, label).item()
    assert found == pytest.approx(9e-11, rel=1e-5, abs=0)
    q = log_p.exp()
    assert abs(1 - 2 * q[0] + q.square().sum()).item() == 0.0  # the expanded form


def test_fisher_proxy_known_values_and_range():
    uniform = torch.full((10,), -math.log(10), dtype=F64)
    assert dirichlet.fisher_proxy(uniform, torch.tensor(3)).item() == pytest.approx(0.9, abs=1e-15)
    log_p, label = random_log_p(2000, 10, spread=10.0), torch.arange(2000) % 10
    fisher = dirichlet.fisher_proxy(log_p, label)
    assert ((fisher >= 0) & (fisher < 2)).all()
    assert fisher.max() > 1.99  # confident and wrong
    assert fisher.min() < 1e-3  # confident and right


def test_fisher_proxy_has_mean_one_minus_sum_of_squares_under_its_own_labels():
    log_p = random_log_p(100, 6)
    by_label = torch.stack([dirichlet.fisher_proxy(log_p, torch.tensor(y)) for y in range(6)], -1)
    p = log_p.exp()
    assert torch.allclose((p * by_label).sum(-1), 1 - p.square().sum(-1), rtol=0, atol=1e-14)


def test_fisher_proxy_broadcasts_labels_over_heads():
    log_p, label = random_log_p(5, 3, 4), torch.tensor([0, 3, 1, 2, 2])
    found = dirichlet.fisher_proxy(log_p, label.unsqueeze(1))
    assert found.shape == (5, 3)
    for b in range(5):
        for k in range(3):
            p = log_p[b, k].exp().tolist()
            expected = sum((float(c == label[b]) - p[c]) ** 2 for c in range(4))
            assert found[b, k].item() == pytest.approx(expected, abs=1e-14)


# ---------------------------------------------------------------- C2: KL to the uniform


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_kl_equals_torch_distributions(classes):
    alpha = random_log_alpha(200, classes, seed=1).exp()
    beta = random_log_alpha(200, classes, seed=2).exp()
    ones = torch.ones_like(alpha)
    expected = td.kl_divergence(td.Dirichlet(alpha), td.Dirichlet(beta))
    assert torch.allclose(dirichlet.kl(alpha, beta), expected, rtol=1e-12, atol=1e-10)
    expected = td.kl_divergence(td.Dirichlet(alpha), td.Dirichlet(ones))
    assert torch.allclose(dirichlet.kl_to_uniform(alpha), expected, rtol=1e-12, atol=1e-10)
    assert torch.allclose(dirichlet.kl(alpha, ones), expected, rtol=1e-12, atol=1e-10)
    assert (dirichlet.kl(alpha, beta) > 0).all()
    assert dirichlet.kl(alpha, alpha).abs().max() < 1e-10 * alpha.sum(-1).max()


@pytest.mark.parametrize(
    ("log_alpha", "value", "half_digit", "float32_error"),
    [
        (one_hot_alpha(10, -10), 198_222, 0.5, 0.015),
        (one_hot_alpha(5, -5), 1319, 0.5, 2e-3),
        (one_hot_alpha(5, -2), 74, 0.5, 2e-3),
        (one_hot_alpha(10, 10), 41.3, 0.05, 0.011),
        (torch.full((10,), math.log(1e-8), dtype=F64), 9.0e8, 0.05e8, 100.0),
        (torch.zeros(10, dtype=F64), 0.0, 1e-12, 1e-12),
        (one_hot_alpha(0.05, -0.03), 0.006255, 5e-7, 5e-6),
    ],
    ids=["clip bounds", "e5 e-5", "e5 e-2", "all e10", "all 1e-8", "ones", "near ones"],
)
def test_kl_to_uniform_known_values_and_float32(log_alpha, value, half_digit, float32_error):
    exact = dirichlet.kl_to_uniform(log_alpha.exp()).item()
    assert exact == pytest.approx(value, abs=half_digit)
    alpha = log_alpha.exp().float()
    assert abs(dirichlet.kl_to_uniform(alpha).item() - exact) <= float32_error


def test_kl_to_uniform_in_bfloat16_is_not_fine():
    for log_alpha, least in [(one_hot_alpha(10, -10), 400), (one_hot_alpha(10, 10), 1000)]:
        exact = dirichlet.kl_to_uniform(log_alpha.exp())
        assert (dirichlet.kl_to_uniform(log_alpha.exp().bfloat16()) - exact).abs() > least
    rounded = one_hot_alpha(10, -10).exp().bfloat16().double()  # the inputs alone do it
    assert (dirichlet.kl_to_uniform(rounded) - 198_222).abs() > 400


def test_kl_to_uniform_gradient_is_the_closed_form():
    alpha = random_log_alpha(50, 10).exp().requires_grad_()
    (found,) = torch.autograd.grad(dirichlet.kl_to_uniform(alpha).sum(), alpha)
    a = alpha.detach()
    total = a.sum(-1, keepdim=True)
    expected = (a - 1) * torch.polygamma(1, a) - (total - 10) * torch.polygamma(1, total)
    assert torch.allclose(found, expected, rtol=1e-11, atol=1e-12)
    beta = random_log_alpha(3, 4, seed=3).exp().requires_grad_()
    gamma = random_log_alpha(3, 4, seed=4).exp().requires_grad_()
    assert torch.autograd.gradcheck(dirichlet.kl, (beta, gamma))


# ---------------------------------------------------------------- C3: entropies


def exact_entropies(log_p, log_total):
    """H, E[H], MI and h of one Dirichlet with 50 digits, from log p and log α0."""
    total = mp.e ** mp.mpf(log_total)
    p = [mp.e ** mp.mpf(value) for value in log_p]
    alpha = [each * total for each in p]
    entropy = -sum(each * mp.log(each) for each in p)
    expected = sum(
        each * (mp.psi(0, total + 1) - mp.psi(0, a + 1)) for each, a in zip(p, alpha, strict=True)
    )
    log_beta = sum(mp.loggamma(a) for a in alpha) - mp.loggamma(total)
    spread = sum((a - 1) * mp.psi(0, a) for a in alpha)
    differential = log_beta + (total - len(p)) * mp.psi(0, total) - spread
    return entropy, expected, entropy - expected, differential


def test_log_mean_and_log_concentration_are_inverse():
    log_alpha = random_log_alpha(5, 3, 4, spread=200.0)
    log_p, log_total = dirichlet.log_mean(log_alpha)
    assert torch.allclose(torch.logsumexp(log_p, -1), torch.zeros(5, 3, dtype=F64), atol=1e-13)
    assert torch.allclose(dirichlet.log_concentration(log_p, log_total), log_alpha, rtol=1e-15)


def test_entropies_equal_torch_distributions():
    alpha = random_log_alpha(200, 10).exp()
    log_p, log_total = dirichlet.log_mean(alpha.log())
    found, expected = dirichlet.entropy(log_p), td.Categorical(logits=log_p).entropy()
    assert torch.allclose(found, expected, rtol=1e-13)
    found = dirichlet.differential_entropy(log_p, log_total)
    assert torch.allclose(found, td.Dirichlet(alpha).entropy(), rtol=1e-12, atol=1e-11)


def test_entropy_of_impossible_classes_is_finite_and_so_is_its_gradient():
    u = torch.tensor([0.0, -math.inf, 1.0], dtype=F64, requires_grad=True)
    value = dirichlet.entropy(torch.log_softmax(u, -1))
    p = 1 / (1 + math.e)
    assert value.item() == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), abs=1e-15)
    value.backward()
    assert u.grad.isfinite().all()
    assert u.grad[1] == 0


@pytest.mark.parametrize("log_total", [-40.0, -5.0, 0.0, 2.9, 3.1, 12.0, 30.0])
@pytest.mark.parametrize("spread", [0.1, 2.0, 15.0])
def test_expected_entropy_and_mutual_information_equal_mpmath(spread, log_total):
    log_p = random_log_p(4, 5, spread=spread)
    totals = torch.full((4,), log_total, dtype=F64)
    expected = [exact_entropies(row, log_total) for row in log_p.tolist()]
    found = dirichlet.expected_entropy(log_p, totals).tolist()
    assert found == pytest.approx([float(each[1]) for each in expected], rel=1e-11, abs=2e-14)
    found = dirichlet.mutual_information(log_p, totals).tolist()
    # with much evidence relative: the ranking of confident inputs is in numbers as small as e^−30
    floor = 1e-25 if log_total > 4 else 4e-15 * (1 + abs(log_total))
    assert found == pytest.approx([float(each[2]) for each in expected], rel=1e-10, abs=floor)
    if abs(log_total) < 15:  # beyond, lgamma(α0) cancels more than float64 holds
        found = dirichlet.differential_entropy(log_p, totals).tolist()
        assert found == pytest.approx([float(each[3]) for each in expected], rel=1e-11, abs=1e-8)


def test_expected_entropy_equals_quadrature_for_two_classes():
    a, b = 2.3, 0.9

    def integrand(x):
        entropy = -x * mp.log(x) - (1 - x) * mp.log(1 - x)
        return entropy * x ** (a - 1) * (1 - x) ** (b - 1)

    expected = float(mp.quad(integrand, [0, 0.5, 1]) / mp.beta(a, b))
    log_p, log_total = dirichlet.log_mean(torch.tensor([a, b], dtype=F64).log())
    found = dirichlet.expected_entropy(log_p, log_total).item()
    assert found == pytest.approx(expected, abs=1e-12)
    expected = dirichlet.entropy(log_p).item() - expected
    found = dirichlet.mutual_information(log_p, log_total).item()
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("log_alpha", "value", "direct_error"),
    [(one_hot_alpha(10, 10), 2.04e-5, 2e-6), (one_hot_alpha(10, -10), 1.7e-7, 1.7e-7)],
    ids=["all e10", "one-hot"],
)
def test_mutual_information_in_float32_where_the_direct_form_is_noise(
    log_alpha, value, direct_error
):
    exact = float(exact_entropies(*(each.tolist() for each in dirichlet.log_mean(log_alpha)))[2])
    assert exact == pytest.approx(value, rel=0.03)
    log_p, log_total = dirichlet.log_mean(log_alpha.float())
    assert abs(dirichlet.mutual_information(log_p, log_total).item() - exact) < 1e-11
    alpha = log_alpha.float().exp()
    p, total = alpha / alpha.sum(), alpha.sum()
    direct = -(p * p.log()).sum() - torch.digamma(total + 1) + (p * torch.digamma(alpha + 1)).sum()
    assert abs(direct.item() - exact) > direct_error


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_mutual_information_is_not_negative_where_a_head_is_certain(dtype):
    logits = torch.zeros(2000, 3, dtype=F64)
    logits[:, 0] = torch.linspace(5, 90, 2000)
    log_p = torch.log_softmax(logits, -1).to(dtype)
    for log_total in torch.linspace(-3, 5, 50).tolist():
        totals = torch.full((2000,), log_total, dtype=dtype)
        assert (dirichlet.mutual_information(log_p, totals) >= 0).all()
        assert (dirichlet.expected_entropy(log_p, totals) >= 0).all()


def test_limits_of_vanishing_and_growing_evidence():
    log_p = torch.full((10,), -math.log(10), dtype=F64)
    little, much = torch.tensor(-60.0, dtype=F64), torch.tensor(60.0, dtype=F64)
    assert dirichlet.mutual_information(log_p, little).item() == pytest.approx(math.log(10))
    assert dirichlet.expected_entropy(log_p, little).item() < 1e-20
    assert 0 < dirichlet.mutual_information(log_p, much).item() < 1e-24
    assert dirichlet.expected_entropy(log_p, much).item() == pytest.approx(math.log(10))


def test_differential_entropy_of_an_impossible_class_is_very_low_and_not_nan():
    log_p = torch.tensor([[0.0, -math.inf], [0.0, -300.0]], dtype=F64)
    for dtype in (F64, torch.float32):
        value = dirichlet.differential_entropy(log_p.to(dtype), torch.ones(2, dtype=dtype))
        assert (value < -1e37).all()


@pytest.mark.parametrize(
    ("dtype", "below", "above"), [(F64, 1e-14, 1e-11), (torch.float32, 4e-7, 2e-7)]
)
def test_digamma_gap_equals_mpmath(dtype, below, above):
    log_x = torch.linspace(math.log(1e-30), math.log(1e12), 300, dtype=F64)
    near = torch.linspace(math.log(15), math.log(25), 60, dtype=F64)
    log_x = torch.cat([log_x, near]).to(dtype)
    for at, found in zip(log_x.tolist(), dirichlet.digamma_gap(log_x).tolist(), strict=True):
        exact = float(mp.psi(0, mp.e ** mp.mpf(at) + 1) - mp.mpf(at))
        if at > math.log(20):  # the series: relative
            assert found == pytest.approx(exact, rel=above, abs=0)
        else:  # the difference of two numbers of the size of ln x
            assert abs(found - exact) <= below * max(1.0, abs(at))


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_digamma_gap_is_positive_decreasing_and_continuous(dtype):
    log_x = torch.cat(
        [torch.linspace(-69, 28, 2000, dtype=F64), torch.linspace(2.9, 3.1, 100, dtype=F64)]
    )
    gap = dirichlet.digamma_gap(log_x.sort().values.to(dtype))
    assert (gap > 0).all()
    assert (gap.diff() < 0).all()
    step = 4 * torch.finfo(dtype).eps  # a few numbers on either side of the switch
    around = math.log(20) + step * torch.arange(-4, 5, dtype=F64)
    jump = dirichlet.digamma_gap(around.to(dtype)).diff().abs().max().item()
    assert jump < (2e-13 if dtype == F64 else 1e-6)


def test_digamma_gap_has_the_right_gradient_everywhere():
    log_x = torch.tensor([-700.0, -69, -3, 0, 2.5, 2.99, 3.0, 3.7, 12, 28, 90, 700], dtype=F64)
    log_x.requires_grad_()
    (found,) = torch.autograd.grad(dirichlet.digamma_gap(log_x).sum(), log_x)
    for at, slope in zip(log_x.tolist(), found.tolist(), strict=True):
        x = mp.e ** mp.mpf(at)
        exact = float(x * mp.psi(1, x + 1) - 1) if at < 28 else float(-1 / (2 * x))
        assert slope == pytest.approx(exact, rel=1e-9, abs=0)
    for value in (-100.0, 89.0, 1000.0):  # x itself underflows, overflows in float32
        single = torch.tensor(value, requires_grad=True)
        (slope,) = torch.autograd.grad(dirichlet.digamma_gap(single), single)
        assert slope.isfinite()


@pytest.mark.parametrize("name", ["mutual_information", "expected_entropy"])
def test_information_is_differentiable_with_impossible_classes_too(name):
    def value(u, log_total):
        return getattr(dirichlet, name)(torch.log_softmax(u, -1), log_total)

    u, log_total = random_log_alpha(3, 5), torch.tensor([-1.0, 2.0, 6.0], dtype=F64)
    assert torch.autograd.gradcheck(value, (u.requires_grad_(), log_total.requires_grad_()))
    masked = torch.tensor([0.0, -math.inf, 2.0], dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(value(masked, torch.tensor(1.0)), masked)
    assert slope.isfinite().all()


# ---------------------------------------------------------------- C4, C5: mixtures


def mixture(heads=3, classes=4, spread=2.0, seed=0, batch=20):
    log_p = random_log_p(batch, heads, classes, spread=spread, seed=seed)
    return log_p, random_log_p(batch, heads, spread=1.0, seed=seed + 1)


def exact_softmax(values):
    powers = [mp.e ** mp.mpf(value) for value in values]
    return [power / sum(powers) for power in powers]


def naive_disagreement(log_p, log_weight):
    values = []
    for heads, weights in zip(log_p.tolist(), log_weight.tolist(), strict=True):
        w, p = exact_softmax(weights), [exact_softmax(head) for head in heads]
        mix = [sum(wk * pk[c] for wk, pk in zip(w, p, strict=True)) for c in range(len(p[0]))]
        total = mp.mpf(0)
        for wk, pk in zip(w, p, strict=True):
            total += wk * sum(a * mp.log(a / m) for a, m in zip(pk, mix, strict=True))
        values.append(float(total))
    return values


@pytest.mark.parametrize("spread", [1e-4, 0.5, 5.0, 100.0])
@pytest.mark.parametrize("heads", [2, 5])
def test_disagreement_equals_a_naive_loop(heads, spread):
    log_p, log_weight = mixture(heads=heads, spread=spread)
    found = dirichlet.disagreement(log_p, log_weight)
    expected = naive_disagreement(log_p, log_weight)
    assert found.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-18)
    assert (found >= 0).all()


def test_log_mixture_equals_the_sum_and_takes_one_head_as_it_is():
    log_p, log_weight = mixture()
    expected = (log_weight.exp().unsqueeze(-1) * log_p.exp()).sum(1).log()
    assert torch.allclose(dirichlet.log_mixture(log_p, log_weight), expected, atol=1e-14)
    one = torch.tensor([[[0.0, -math.inf]]], requires_grad=True)
    found = dirichlet.log_mixture(one, torch.zeros(1, 1))
    assert torch.equal(found, one[:, 0])
    (slope,) = torch.autograd.grad(found[0, 0], one)
    assert slope.tolist() == [[[1.0, 0.0]]]  # through logsumexp it would be NaN


def test_disagreement_resolves_heads_that_nearly_agree_in_float32():
    base = random_log_p(1, 1, 10)
    log_p = torch.log_softmax(base + 1e-4 * random_log_alpha(50, 2, 10), -1)
    log_weight = torch.full((50, 2), -math.log(2), dtype=F64)
    exact = dirichlet.disagreement(log_p, log_weight)
    assert exact.max() < 1e-7  # below the float32 rounding of the terms p log(p/m) − p + m
    single = dirichlet.disagreement(log_p.float(), log_weight.float()).double()
    assert ((single - exact) / exact).abs().max() < 0.05


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("spread", [1.0, 30.0, 400.0])
def test_disagreement_of_equal_heads_is_exactly_zero(spread, dtype):
    log_p = random_log_p(200, 1, 10, spread=spread).to(dtype).expand(-1, 3, -1)
    log_weight = random_log_p(200, 3).to(dtype)
    assert (dirichlet.disagreement(log_p, log_weight) == 0).all()
    masked = log_p.clone()
    masked[..., 4] = -math.inf
    assert (dirichlet.disagreement(masked, log_weight) == 0).all()


def test_disagreement_of_certain_opposite_heads_is_the_entropy_of_the_weights():
    log_p = torch.tensor([[[0.0, -math.inf], [-math.inf, 0.0]]], dtype=F64)
    log_weight = torch.tensor([[0.3, 0.7]], dtype=F64).log()
    expected = dirichlet.entropy(log_weight).item()
    assert dirichlet.disagreement(log_p, log_weight).item() == pytest.approx(expected, abs=1e-15)


def test_disagreement_is_differentiable_at_agreement_and_away_from_it():
    u, v = random_log_alpha(4, 3, 5).requires_grad_(), random_log_alpha(4, 3).requires_grad_()

    def value(x, y):
        return dirichlet.disagreement(torch.log_softmax(x, -1), torch.log_softmax(y, -1))

    assert torch.autograd.gradcheck(value, (u, v))
    equal = torch.zeros(1, 3, 5, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(value(equal, v[:1]).sum(), equal)
    assert (slope == 0).all()


def test_gate_components_is_the_same_mixture():
    log_p, log_weight = mixture(spread=3.0)
    log_gate = torch.log(0.1 + 0.8 * torch.rand(20, 4, dtype=F64))
    gated_p, gated_weight = dirichlet.gate_components(log_p, log_weight, log_gate)
    s, p, w = log_gate.exp(), log_p.exp(), log_weight.exp()
    gated = s * (w.unsqueeze(-1) * p).sum(1)
    expected = gated / gated.sum(-1, keepdim=True)
    found = dirichlet.log_mixture(gated_p, gated_weight).exp()
    assert (found - expected).abs().max() < 2e-15
    mass = w * (s.unsqueeze(1) * p).sum(-1)
    assert torch.allclose(gated_weight.exp(), mass / mass.sum(-1, keepdim=True), atol=1e-15)
    head = s.unsqueeze(1) * p
    assert torch.allclose(gated_p.exp(), head / head.sum(-1, keepdim=True), atol=1e-15)


def test_class_variance_equals_monte_carlo_and_the_variance_of_one_dirichlet():
    log_p, log_weight = mixture(heads=2, classes=3, batch=1)
    log_total = torch.tensor([[1.0, 2.5]], dtype=F64)
    between, within = dirichlet.class_variance(log_p, log_weight, log_total)
    alpha = dirichlet.log_concentration(log_p, log_total).exp()
    n = 400_000
    head = torch.multinomial(log_weight.exp()[0], n, replacement=True)
    draws = td.Dirichlet(alpha[0][head]).sample()
    assert torch.allclose((between + within)[0], draws.var(0), rtol=0.01)
    each = torch.zeros(1, 1, dtype=F64)
    for k in range(2):
        none, one = dirichlet.class_variance(log_p[:, k : k + 1], each, log_total[:, k : k + 1])
        assert torch.allclose(one[0], td.Dirichlet(alpha[0, k]).variance, rtol=1e-12)
        assert none.abs().max() == 0


# ---------------------------------------------------------------- C7: precision of torch itself


def test_special_functions_of_torch_are_safe_in_float32_and_not_in_bfloat16():
    x = torch.logspace(-8, math.log10(2e4), 5000)
    for function in (torch.lgamma, torch.digamma, lambda t: torch.polygamma(1, t)):
        exact = function(x.double())
        error = (function(x) - exact).abs() / exact.abs().clamp_min(1)  # ψ has a root at 1.46
        assert error.max() < 1e-6
    assert torch.lgamma(torch.tensor(22026.0).bfloat16()).item() == 197632
    assert math.lgamma(22026) == pytest.approx(198229, abs=1)
