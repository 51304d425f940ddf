"""Loss terms against loops over samples, `torch.distributions`, quadrature and autograd."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta
from torch import Tensor
from torch.distributions import Categorical, Dirichlet, kl_divergence

from gemfi import losses

BATCH, HEADS, CLASSES = 6, 3, 5


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def log_probs(*shape: int, seed: int = 0) -> Tensor:
    logits = 2 * torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)
    return torch.log_softmax(logits, dim=-1)


def labels() -> Tensor:
    return torch.tensor([0, 4, 2, 2, 1, 3])


def dirichlets(seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """log p, log α0 and α of a batch."""
    log_alpha = 1.5 * torch.randn(BATCH, CLASSES, generator=seeded(seed), dtype=torch.float64)
    log_total = torch.logsumexp(log_alpha, dim=1)
    return log_alpha - log_total[:, None], log_total, log_alpha.exp()


def mean_over(samples: list[float]) -> float:
    return sum(samples) / len(samples)


# ---------------------------------------------------------------- prediction


def test_nll() -> None:
    log_p, y = log_probs(BATCH, CLASSES), labels()
    expected = mean_over([-log_p[i, y[i]].item() for i in range(BATCH)])
    assert losses.nll(log_p, y).item() == pytest.approx(expected)


def test_squared_error() -> None:
    log_p, y = log_probs(BATCH, CLASSES), labels()
    expected = mean_over(
        [
            sum((float(c == y[i]) - math.exp(log_p[i, c])) ** 2 for c in range(CLASSES))
            for i in range(BATCH)
        ]
    )
    assert losses.squared_error(log_p, y).item() == pytest.approx(expected)


def test_squared_error_at_its_ends() -> None:
    certain = torch.log(torch.tensor([[1.0, 0.0]]))
    assert losses.squared_error(certain, torch.tensor([0])).item() == 0
    assert losses.squared_error(certain, torch.tensor([1])).item() == 2


def test_dirichlet_variance() -> None:
    log_p, log_total, alpha = dirichlets()
    expected = Dirichlet(alpha).variance.sum(dim=1).mean()
    torch.testing.assert_close(losses.dirichlet_variance(log_p, log_total), expected)


# ---------------------------------------------------------------- evidential risks


def test_risk_of_squared_error_is_its_expectation() -> None:
    """E‖y − p‖² from the moments of the Dirichlet, and by sampling."""
    log_p, log_total, alpha = dirichlets()
    y = labels()
    found = losses.evidential_risk(log_p, log_total, y, "mse").item()
    each = Dirichlet(alpha)
    one_hot = torch.eye(CLASSES, dtype=torch.float64)[y]
    second = each.variance + each.mean**2  # E p²
    exact = (one_hot - 2 * one_hot * each.mean + second).sum(dim=1).mean()
    assert found == pytest.approx(exact.item())
    torch.manual_seed(3)
    drawn = (one_hot - each.sample((20_000,))).square().sum(dim=2).mean()
    assert found == pytest.approx(drawn.item(), rel=0.01)


def weighted_nll(log_p: float, marginal: Any) -> float:
    """−log p times its density, over log p, where the singular ends are tame."""
    return -log_p * marginal.pdf(math.exp(log_p)) * math.exp(log_p)


def test_digamma_risk_is_the_expected_nll() -> None:
    """p_y is Beta(α_y, α0 − α_y), so E[−log p_y] is one integral."""
    log_p, log_total, alpha = dirichlets()
    y = labels()
    found = losses.evidential_risk(log_p, log_total, y, "digamma").item()
    exact = []
    for row, label in zip(alpha.numpy(), y.tolist(), strict=True):
        marginal = beta(row[label], row.sum() - row[label])
        exact.append(quad(weighted_nll, -300, 0, args=(marginal,), limit=500)[0])
    assert found == pytest.approx(mean_over(exact), rel=1e-6)
    torch.manual_seed(3)
    rows = torch.arange(BATCH)
    drawn = -Dirichlet(alpha).sample((50_000,))[:, rows, y].log().mean()
    assert found == pytest.approx(drawn.item(), rel=0.02)


def test_log_risk_is_the_nll_of_the_mean_and_a_lower_bound() -> None:
    log_p, log_total, alpha = dirichlets()
    y = labels()
    found = losses.evidential_risk(log_p, log_total, y, "log").item()
    rows = torch.arange(BATCH)
    expected = (alpha.sum(dim=1).log() - alpha[rows, y].log()).mean().item()
    assert found == pytest.approx(expected)
    assert found < losses.evidential_risk(log_p, log_total, y, "digamma").item()


@pytest.mark.parametrize("risk", ["mse", "log", "digamma"])
def test_risks_agree_where_evidence_is_endless(risk: losses.Risk) -> None:
    log_p = log_probs(BATCH, CLASSES)
    endless = torch.full((BATCH,), math.log(1e9), dtype=torch.float64)
    plain = losses.squared_error if risk == "mse" else losses.nll
    found = losses.evidential_risk(log_p, endless, labels(), risk).item()
    assert found == pytest.approx(plain(log_p, labels()).item(), rel=1e-6)


# ---------------------------------------------------------------- KL


def test_kl_prior() -> None:
    log_alpha = torch.randn(BATCH, HEADS, CLASSES, generator=seeded(), dtype=torch.float64)
    log_weight = log_probs(BATCH, HEADS)
    uniform = Dirichlet(torch.ones(CLASSES, dtype=torch.float64))
    expected = mean_over(
        [
            sum(
                math.exp(log_weight[i, k])
                * kl_divergence(Dirichlet(log_alpha[i, k].exp()), uniform).item()
                for k in range(HEADS)
            )
            for i in range(BATCH)
        ]
    )
    assert losses.kl_prior(log_alpha, log_weight).item() == pytest.approx(expected)


def test_kl_prior_is_zero_at_the_prior() -> None:
    zero = torch.zeros(2, HEADS, CLASSES)
    weight = torch.log_softmax(torch.randn(2, HEADS), dim=1)
    assert losses.kl_prior(zero, weight).item() == pytest.approx(0, abs=1e-6)


def test_kl_prior_holds_alpha_above_a_thousandth() -> None:
    """At 1e−8 it would be 9e8 and drown every other term."""
    low = torch.full((1, 1, 10), -30.0, dtype=torch.float64, requires_grad=True)
    weight = torch.zeros(1, 1, dtype=torch.float64)
    found = losses.kl_prior(low, weight)
    one = Dirichlet(torch.ones(10, dtype=torch.float64))
    expected = kl_divergence(Dirichlet(torch.full((10,), 1e-3, dtype=torch.float64)), one)
    assert found.item() == pytest.approx(expected.item())
    found.backward()
    assert low.grad.abs().max() == 0


def test_kl_misleading() -> None:
    log_alpha = torch.randn(BATCH, CLASSES, generator=seeded(), dtype=torch.float64)
    y = labels()
    uniform = Dirichlet(torch.ones(CLASSES, dtype=torch.float64))
    expected = []
    for row, label in zip(log_alpha.exp(), y.tolist(), strict=True):
        misled = row.clone()
        misled[label] = 1.0
        expected.append(kl_divergence(Dirichlet(misled), uniform).item())
    assert losses.kl_misleading(log_alpha, y).item() == pytest.approx(mean_over(expected))


def test_kl_misleading_does_not_touch_the_true_class() -> None:
    log_alpha = torch.randn(BATCH, CLASSES, generator=seeded(), requires_grad=True)
    losses.kl_misleading(log_alpha, labels()).backward()
    true = log_alpha.grad[torch.arange(BATCH), labels()]
    assert true.abs().max() == 0
    assert (log_alpha.grad != 0).sum() == BATCH * (CLASSES - 1)


# ---------------------------------------------------------------- Fisher


def test_fisher_penalty() -> None:
    log_weight = log_probs(BATCH, HEADS).requires_grad_()
    fisher = torch.rand(BATCH, HEADS, generator=seeded(), dtype=torch.float64).requires_grad_()
    found = losses.fisher_penalty(log_weight, fisher)
    expected = mean_over(
        [
            sum(math.exp(log_weight[i, k].item()) * fisher[i, k].item() for k in range(HEADS))
            for i in range(BATCH)
        ]
    )
    assert found.item() == pytest.approx(expected)
    found.backward()
    torch.testing.assert_close(fisher.grad, log_weight.exp().detach() / BATCH)
    torch.testing.assert_close(log_weight.grad, (log_weight.exp() * fisher).detach() / BATCH)


def modulated_by_hand(pi: np.ndarray, fi: np.ndarray, strength: float, eps: float) -> np.ndarray:
    """The paper's formula, sample by sample: share, factor, normalise, smooth."""
    rows = []
    for weights, values in zip(pi, fi, strict=True):
        even = np.full(len(values), 1 / len(values))
        shares = values / values.sum() if values.sum() > 0 else even
        raw = weights * np.exp(strength * (1 - shares))
        raw = raw / raw.sum()
        rows.append((raw + eps) / (raw + eps).sum())
    return np.stack(rows)


@pytest.mark.parametrize("smoothing", [0.0, 1e-4, 0.05])
@pytest.mark.parametrize("strength", [0.0, 0.1, 0.3, 2.0])
def test_fisher_modulation_is_the_papers_formula(strength: float, smoothing: float) -> None:
    log_weight = log_probs(BATCH, HEADS)
    fisher = 2 * torch.rand(BATCH, HEADS, generator=seeded(), dtype=torch.float64)
    fisher[2] = 0
    fisher[3, 1:] = 0
    found = losses.fisher_modulation(log_weight, fisher, strength, smoothing)
    expected = modulated_by_hand(log_weight.exp().numpy(), fisher.numpy(), strength, smoothing)
    np.testing.assert_allclose(found.exp(), expected, rtol=1e-12)
    np.testing.assert_allclose(found.exp().sum(dim=1), 1.0, rtol=1e-12)


def test_without_fisher_information_the_weights_stay() -> None:
    log_weight = log_probs(BATCH, HEADS)
    found = losses.fisher_modulation(log_weight, torch.zeros(BATCH, HEADS).double(), 0.5, 0.0)
    torch.testing.assert_close(found, log_weight)


def test_smoothing_keeps_a_dead_head_alive() -> None:
    log_weight = torch.tensor([[0.0, -200.0]])
    found = losses.fisher_modulation(log_weight, torch.ones(1, 2), 0.1, 1e-4)
    assert found[0, 1].item() == pytest.approx(math.log(1e-4 / 1.0002), abs=1e-4)


@given(
    st.lists(st.floats(0, 2), min_size=HEADS, max_size=HEADS),
    st.lists(st.floats(-5, 5), min_size=HEADS, max_size=HEADS),
    st.floats(0, 3),
)
def test_odds_change_by_at_most_e_to_the_strength(
    fisher: list[float], scores: list[float], strength: float
) -> None:
    log_weight = torch.log_softmax(torch.tensor([scores], dtype=torch.float64), dim=1)
    values = torch.tensor([fisher], dtype=torch.float64)
    change = (losses.fisher_modulation(log_weight, values, strength, 0.0) - log_weight)[0]
    for one in range(HEADS):
        for other in range(HEADS):
            odds = (change[one] - change[other]).item()
            assert abs(odds) <= strength + 1e-9
            if fisher[one] < fisher[other]:  # the steadier head gains
                assert odds >= -1e-9


def test_the_bound_on_the_odds_is_reached() -> None:
    log_weight = torch.log(torch.tensor([[0.5, 0.5]]))
    change = losses.fisher_modulation(log_weight, torch.tensor([[0.0, 1.9]]), 0.3, 0.0) - log_weight
    assert (change[0, 0] - change[0, 1]).item() == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 1e-4])
def test_modulation_stops_the_gradient_of_fisher_but_not_of_the_router(smoothing: float) -> None:
    scores = torch.randn(BATCH, HEADS, generator=seeded(), dtype=torch.float64, requires_grad=True)
    fisher = torch.rand(BATCH, HEADS, generator=seeded(1), dtype=torch.float64)
    fisher[0] = 0  # 0/0 must not poison the gradient either
    fisher.requires_grad_()
    log_weight = torch.log_softmax(scores, dim=1)
    losses.fisher_modulation(log_weight, fisher, 0.5, smoothing)[:, 0].sum().backward()
    assert fisher.grad is None
    assert torch.isfinite(scores.grad).all()

    pi = scores.detach().clone().requires_grad_()
    weights = torch.softmax(pi, dim=1) * torch.exp(
        0.5 * (1 - torch.nan_to_num(fisher / fisher.sum(dim=1, keepdim=True), 1 / HEADS).detach())
    )
    weights = weights / weights.sum(dim=1, keepdim=True) + smoothing
    (weights / weights.sum(dim=1, keepdim=True)).log()[:, 0].sum().backward()
    torch.testing.assert_close(scores.grad, pi.grad)


# ---------------------------------------------------------------- energy and entropy


def softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


@pytest.mark.parametrize("clip", [None, 10.0, 1.0])
def test_energy_terms(clip: float | None) -> None:
    energy = torch.tensor([-40.0, -3.0, 0.0, 0.4, 7.0, 60.0], dtype=torch.float64)
    clipped = [e if clip is None else min(max(e, -clip), clip) for e in energy.tolist()]
    inside = mean_over([softplus(e) for e in clipped])
    outside = mean_over([softplus(3.0 - e) for e in clipped])
    assert losses.energy_inside(energy, clip).item() == pytest.approx(inside)
    assert losses.energy_outside(energy, 3.0, clip).item() == pytest.approx(outside)


def test_energy_is_pulled_down_inside_and_pushed_up_outside() -> None:
    energy = torch.tensor([-2.0, 0.0, 5.0], dtype=torch.float64, requires_grad=True)
    losses.energy_inside(energy).backward()
    torch.testing.assert_close(energy.grad, torch.sigmoid(energy.detach()) / 3)
    energy.grad = None
    losses.energy_outside(energy, 3.0).backward()
    torch.testing.assert_close(energy.grad, -torch.sigmoid(3.0 - energy.detach()) / 3)


def test_a_clipped_energy_has_no_gradient() -> None:
    energy = torch.tensor([12.0, -12.0, 1.0], requires_grad=True)
    losses.energy_inside(energy, 10.0).backward()
    assert energy.grad[:2].tolist() == [0, 0]
    assert energy.grad[2] > 0


def test_mean_entropy() -> None:
    log_p = log_probs(BATCH, CLASSES)
    expected = Categorical(logits=log_p).entropy().mean()
    torch.testing.assert_close(losses.mean_entropy(log_p), expected)
    even = torch.full((2, CLASSES), -math.log(CLASSES))
    assert losses.mean_entropy(even).item() == pytest.approx(math.log(CLASSES))
    certain = torch.log(torch.tensor([[1.0, 0.0]]))
    assert losses.mean_entropy(certain).item() == 0


@pytest.mark.parametrize("heads", [1, 2, 5])
def test_usage_is_the_entropy_of_the_mean_weights(heads: int) -> None:
    log_weight = log_probs(BATCH, heads)
    expected = Categorical(probs=log_weight.exp().mean(dim=0)).entropy()
    torch.testing.assert_close(losses.usage(log_weight), expected)


def test_usage_at_its_ends() -> None:
    """Even use needs no even weights: every input may have a head of its own."""
    own = torch.eye(HEADS, dtype=torch.float64).log()
    assert losses.usage(own).item() == pytest.approx(math.log(HEADS))
    assert losses.usage(own[:1].expand(BATCH, -1)).item() == 0
    assert losses.usage(torch.tensor([[0.0, -800.0]])).item() == pytest.approx(0)


def test_usage_pulls_towards_the_head_that_is_used_least() -> None:
    scores = torch.tensor([[3.0, 0.0, 1.0], [2.0, -1.0, 1.0]], requires_grad=True)
    losses.usage(torch.log_softmax(scores, dim=1)).backward()
    assert (scores.grad[:, 1] > 0).all()
    assert (scores.grad[:, 0] < 0).all()


@pytest.mark.parametrize("size", [1, 2, 7])
def test_every_term_is_a_mean_over_the_batch(size: int) -> None:
    """Repeating the batch changes nothing."""
    log_p, log_total, alpha = dirichlets()
    y = labels()
    fisher, log_weight = torch.rand(BATCH, HEADS).double(), log_probs(BATCH, HEADS)
    log_alpha = torch.randn(BATCH, HEADS, CLASSES).double()

    def terms(times: int) -> list[Tensor]:
        p, total, label, a = (
            torch.cat([each] * times) for each in (log_p, log_total, y, alpha.log())
        )
        weight, fi, stacked = (
            torch.cat([each] * times) for each in (log_weight, fisher, log_alpha)
        )
        return [
            losses.nll(p, label),
            losses.squared_error(p, label),
            losses.dirichlet_variance(p, total),
            *(losses.evidential_risk(p, total, label, risk) for risk in ("mse", "log", "digamma")),
            losses.kl_prior(stacked, weight),
            losses.kl_misleading(a, label),
            losses.fisher_penalty(weight, fi),
            losses.energy_inside(total),
            losses.energy_outside(total, 3.0),
            losses.mean_entropy(p),
            losses.usage(weight),
        ]

    for once, again in zip(terms(1), terms(size), strict=True):
        assert once.shape == ()
        torch.testing.assert_close(once, again)
