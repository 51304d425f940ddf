"""I-EDL, R-EDL, Re-EDL, DAEDL and CEDL+ against formulas written out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import polygamma
from scipy.stats import multivariate_normal
from torch import Tensor
from torch.distributions import Dirichlet, kl_divergence

from gemfi import losses
from gemfi.belief import Belief
from gemfi.errors import InputError
from gemfi.methods import (
    DAEDL,
    IEDL,
    METHODS,
    REDL,
    Batch,
    CEDLPlus,
    CEDLPlusConfig,
    DAEDLConfig,
    DataFacts,
    Head,
    IEDLConfig,
    Progress,
    REDLConfig,
    ReEDL,
    ReEDLConfig,
)
from gemfi.outliers import VOS
from gemfi.scores import SCORES

D, C, B = 6, 4, 12
FAMILY = ("i-edl", "r-edl", "re-edl", "daedl", "cedl-plus")
MIDDLE = Progress(50, 100)
TRAINED_AS_SOFTMAX = ("mc-dropout", "ensemble")


def data(seed: int = 0, count: int = B) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, D, generator=generator, dtype=torch.float64)
    return Batch(z, torch.arange(count) % C)


def evidence(head: Head, z: Tensor) -> Tensor:
    return z @ head.linear.weight.T + head.linear.bias


def softplus(u: Tensor) -> Tensor:
    return torch.log1p(u.exp())


def without_true_class(alpha: Tensor, y: Tensor, prior: float) -> Tensor:
    alpha = alpha.clone()
    for row, label in enumerate(y):
        alpha[row, label] = prior
    return alpha


def kl_to(alpha: Tensor, prior: float) -> Tensor:
    return kl_divergence(Dirichlet(alpha), Dirichlet(torch.full_like(alpha, prior))).mean()


def looped(alpha: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error and variance, a class at a time, each with a weight."""
    error = variance = torch.zeros(())
    for row, label in enumerate(y):
        total = alpha[row].sum()
        for c in range(C):
            p = alpha[row, c] / total
            error = error + weight[row, c] * (float(c == label) - p) ** 2
            variance = variance + weight[row, c] * p * (1 - p) / (total + 1)
    return error / len(y), variance / len(y)


# -- objectives ---------------------------------------------------------------------------------


def test_i_edl_objective() -> None:
    config = IEDLConfig(fisher_weight=0.3, kl_weight=0.5, kl_ramp=0.4)
    head, batch = IEDL(D, C, config).double(), data()
    alpha = softplus(evidence(head, batch.z)) + 1
    weight = torch.polygamma(1, alpha)
    error, variance = looped(alpha, batch.y, weight)
    matrix = torch.diag_embed(weight) - torch.polygamma(1, alpha.sum(1))[:, None, None]
    kl = kl_to(without_true_class(alpha, batch.y, 1.0), 1.0)
    terms = head.objective(batch, Progress(10, 100))
    torch.testing.assert_close(terms["squared_error"], error)
    torch.testing.assert_close(terms["variance"], variance)
    torch.testing.assert_close(terms["fisher"], -0.3 * torch.linalg.slogdet(matrix)[1].mean())
    torch.testing.assert_close(terms["kl"], 0.5 * 0.25 * kl)  # a quarter of the ramp


def test_r_edl_objective() -> None:
    config = REDLConfig(prior=0.3, kl_weight=0.5, kl_ramp=0.4)
    head, batch = REDL(D, C, config).double(), data()
    alpha = softplus(evidence(head, batch.z)) + 0.3
    terms = head.objective(batch, Progress(10, 100))
    error, _ = looped(alpha, batch.y, torch.ones_like(alpha))
    kl = kl_to(without_true_class(alpha, batch.y, 0.3), 0.3)
    assert set(terms) == {"squared_error", "kl"}
    torch.testing.assert_close(terms["squared_error"], error)
    torch.testing.assert_close(terms["kl"], 0.5 * 0.25 * kl)


def test_r_edl_punishes_misleading_evidence_alone() -> None:
    y = torch.tensor([2])
    only_true = torch.log(torch.tensor([[0.1, 0.1, 50.0, 0.1]], dtype=torch.float64))
    assert float(losses.kl_misleading_to(only_true, y, 0.1)) == pytest.approx(0, abs=1e-12)
    assert float(losses.kl_misleading_to(only_true, torch.tensor([1]), 0.1)) > 1


def test_re_edl_objective() -> None:
    head, batch = ReEDL(D, C).double(), data()
    alpha = softplus(evidence(head, batch.z)) + 0.8
    terms = head.objective(batch, MIDDLE)
    assert set(terms) == {"squared_error"}
    error, _ = looped(alpha, batch.y, torch.ones_like(alpha))
    torch.testing.assert_close(terms["squared_error"], error)


@pytest.mark.parametrize("at", [Progress(0, 100), Progress(99, 100)])
def test_daedl_objective_is_neither_annealed_nor_scaled(at: Progress) -> None:
    head, batch = DAEDL(D, C).double(), data()
    with torch.no_grad():
        head.linear.bias[0] = -16.0  # where 1e-6 counts
    alpha = 1e-6 + evidence(head, batch.z).exp()
    error, variance = looped(alpha, batch.y, torch.ones_like(alpha))
    kl = kl_to(without_true_class(alpha, batch.y, 1.0), 1.0)
    before = head.objective(batch, at)
    torch.testing.assert_close(before["risk"], error + variance)
    torch.testing.assert_close(before["kl"], 0.05 * kl)
    head.fit_statistics([(batch.z, batch.y)], None)
    after = head.objective(batch, at)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("step", "growth"), [(0, 0.01), (50, 0.1), (99, 0.01**0.01), (75, 0.01**0.25)]
)
def test_cedl_plus_objective(step: int, growth: float) -> None:
    head, batch = CEDLPlus(D, C).double(), data()
    with torch.no_grad():
        head.linear.bias[1] = 14.0  # beyond the clip
    alpha = evidence(head, batch.z).clamp(-10, 10).exp() + 1
    risk = torch.stack(
        [alpha[row].sum().log() - alpha[row, label].log() for row, label in enumerate(batch.y)]
    ).mean()
    kl = kl_to(without_true_class(alpha, batch.y, 1.0), 1.0)
    terms = head.objective(batch, Progress(step, 100))
    torch.testing.assert_close(terms["risk"], 0.9 * risk)
    torch.testing.assert_close(terms["kl"], 0.1 * growth * kl)


def test_cedl_plus_says_what_one_task_leaves_out() -> None:
    (note,) = CEDLPlus(D, C).notes()
    for word in ("replay", "distillation", "order of tasks", "public code of CEDL"):
        assert word in note


@pytest.mark.parametrize("name", FAMILY)
def test_outliers_are_asked_for_no_evidence(name: str) -> None:
    config = replace(METHODS[name].default_config(), outliers=VOS, outlier_weight=0.2)
    head = METHODS[name](D, C, config).double()
    assert head.outliers == VOS
    batch, outside = data(), data(1, 5).z
    terms = head.objective(Batch(batch.z, batch.y, outside, 0.5), MIDDLE)
    alpha = head.log_alpha(evidence(head, outside)).exp()
    prior = {"r-edl": 0.1, "re-edl": 0.8}.get(name, 1.0)
    torch.testing.assert_close(terms["outliers"], 0.5 * 0.2 * kl_to(alpha, prior))


def test_no_two_methods_have_the_same_objective() -> None:
    totals: dict[str, float] = {}
    own = [name for name in METHODS if name not in TRAINED_AS_SOFTMAX]
    for name in own:
        torch.manual_seed(3)
        head = METHODS[name](D, C).double()
        head.prepare(DataFacts(torch.full((C,), 25), 100))
        batch = data()
        terms = head.objective(Batch(batch.z, batch.y, data(1, 5).z), MIDDLE)
        totals[name] = float(torch.stack(list(terms.values())).sum().detach())
    assert all(math.isfinite(total) for total in totals.values())
    assert len({round(total, 9) for total in totals.values()}) == len(own), totals


# -- the log determinant ------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_fisher_log_det_is_that_of_the_matrix(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    log_alpha = 4 * torch.rand(20, classes, generator=generator, dtype=torch.float64)
    alpha = log_alpha.exp()
    matrix = torch.diag_embed(torch.polygamma(1, alpha))
    matrix = matrix - torch.polygamma(1, alpha.sum(1))[:, None, None]
    sign, expected = torch.linalg.slogdet(matrix)
    assert bool((sign == 1).all())
    torch.testing.assert_close(losses.fisher_log_det(log_alpha), expected.mean())


@pytest.mark.parametrize("size", [1.0, 15.0, 25.0, 1e4, 1e6, 1e8])
def test_fisher_log_det_keeps_its_digits_in_float32(size: float) -> None:
    shares = torch.tensor([[1.0, 2.0, 0.5, 40.0, 1.0, 3.0]], dtype=torch.float64)
    log_alpha = (1 + size * shares).log()
    exact = losses.fisher_log_det(log_alpha)
    single = log_alpha.float().requires_grad_()
    value = losses.fisher_log_det(single)
    value.backward()
    assert float(value.detach()) == pytest.approx(float(exact), rel=2e-6, abs=2e-6)
    double = log_alpha.clone().requires_grad_()
    losses.fisher_log_det(double).backward()
    torch.testing.assert_close(single.grad.double(), double.grad, rtol=1e-4, atol=1e-4)


def test_fisher_log_det_of_large_alpha_follows_its_limit() -> None:
    log_alpha = torch.full((1, 10), math.log(1e7), dtype=torch.float64)
    # ψ1(x) → 1/x, and the last factor is (C − 1)/2α0
    limit = -10 * math.log(1e7) + math.log(9 / 2e8)
    assert float(losses.fisher_log_det(log_alpha)) == pytest.approx(limit, abs=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-5)])
def test_errors_are_weighted_by_trigamma(dtype: torch.dtype, tolerance: float) -> None:
    alpha = torch.logspace(-3, 8, 60, dtype=torch.float64)
    for row in torch.stack([alpha, alpha.flip(0)], dim=1):
        error, _ = losses.trigamma_risk(row.log()[None].to(dtype), torch.tensor([1]))
        other = row[0] / row.sum()  # of two classes, both are off by the wrong one's share
        expected = polygamma(1, row.numpy()).sum() * float(other) ** 2
        assert float(error) == pytest.approx(expected, rel=tolerance, abs=0)


def test_log_det_gradient() -> None:
    log_alpha = torch.tensor([[0.1, 2.9, 3.1, 6.0], [0.0, 1.0, 0.5, 2.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(losses.fisher_log_det, log_alpha.requires_grad_())


# -- DAEDL's density ----------------------------------------------------------------------------


def slow_log_density(z: Tensor, y: Tensor, at: Tensor, ridge: float) -> np.ndarray:
    """Log Σ_c N(z; μ_c, Σ_c) by scipy, without priors."""
    within = sum(np.cov(z[y == c].T.numpy(), bias=True) * int((y == c).sum()) for c in range(C))
    extra = ridge * np.trace(within / len(z)) / D * np.eye(D)
    each = []
    for c in range(C):
        rows = z[y == c].numpy()
        covariance = np.cov(rows.T, bias=True) + extra
        each.append(multivariate_normal(rows.mean(0), covariance).logpdf(at.numpy()))
    return np.logaddexp.reduce(np.stack(each), axis=0)


def uneven() -> Batch:
    """Clusters of different size and spread: priors would be seen."""
    generator = torch.Generator().manual_seed(5)
    y = torch.repeat_interleave(torch.arange(C), torch.tensor([15, 30, 60, 120]))
    z = torch.randn(len(y), D, generator=generator, dtype=torch.float64)
    return Batch(z * (1 + y[:, None]) + 3 * y[:, None], y)


def test_daedl_scales_logits_by_the_density() -> None:
    train, new = uneven(), 6 * data(7, 40).z
    head = DAEDL(D, C, DAEDLConfig(shrinkage=0.0, ridge=1e-3)).double().eval()
    bare = head(new)
    torch.testing.assert_close(bare.log_evidence[:, 0], evidence(head, new).logsumexp(1))
    assert bare.log_density is None
    halves = [(train.z[:100], train.y[:100]), (train.z[100:], train.y[100:])]
    assert head.fit_statistics(halves, None) == []
    seen = slow_log_density(train.z, train.y, train.z, 1e-3)
    log_q = slow_log_density(train.z, train.y, new, 1e-3)
    scale = np.clip((log_q - seen.min()) / (seen.max() - seen.min()), 0, 1)
    assert 0 < (scale == 0).mean() < 1
    belief = head(new)
    torch.testing.assert_close(belief.log_density, torch.from_numpy(log_q))
    alpha = torch.exp(torch.from_numpy(scale)[:, None] * evidence(head, new))
    torch.testing.assert_close(belief.probs(), alpha / alpha.sum(1, keepdim=True))
    torch.testing.assert_close(belief.log_evidence[:, 0], alpha.sum(1).log())
    torch.testing.assert_close(belief.logits[:, 0], evidence(head, new))
    ends = head.density(torch.from_numpy(np.array([seen.min(), seen.max()])))
    torch.testing.assert_close(ends, torch.tensor([0.0, 1.0]).double())


def test_daedl_is_flat_far_away_and_forgets_before_a_second_training() -> None:
    train = uneven()
    head = DAEDL(D, C).double().eval()
    head.fit_statistics([(train.z, train.y)], None)
    far = head(train.z[:3] + 1e4)
    torch.testing.assert_close(far.probs(), torch.full((3, C), 1 / C).double())
    torch.testing.assert_close(SCORES["evidence"](far), torch.full((3,), -math.log(C)).double())
    head.prepare(DataFacts(torch.full((C,), 25), 100))
    assert head(train.z).log_density is None


def test_daedl_keeps_its_density_in_float64() -> None:
    train = uneven()
    thin = train.z * torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1e-4]).double()
    thin = thin @ torch.linalg.qr(data(2, D).z)[0]  # no axis is the thin one: products cancel
    heads = [DAEDL(D, C, DAEDLConfig(ridge=1e-9)).eval() for _ in range(2)]
    heads[1].load_state_dict(heads[0].state_dict())
    heads[1].double()
    single, double = thin.float(), thin.float().double()
    for head, z in zip(heads, (single, double), strict=True):
        head.fit_statistics([(z, train.y)], None)
    one, other = heads[0](single), heads[1](double)
    torch.testing.assert_close(one.log_density.double(), other.log_density, rtol=1e-6, atol=1e-5)


def test_daedl_takes_one_covariance_where_a_class_has_none_of_its_own() -> None:
    few = data(count=C * 5 * D - C)  # one less a class than five for each feature
    more = data(count=C * 5 * D)
    kinds = []
    for batch in (few, more):
        head = DAEDL(D, C).double()
        head.fit_statistics([(batch.z, batch.y)], None)
        kinds.append(head.density.gaussians.shrinkage)
    assert kinds == [1.0, 0.0]


def test_daedl_counts_validation_inputs_below_the_range() -> None:
    train, far = uneven(), Batch(uneven().z + 1e3, uneven().y)
    head = DAEDL(D, C, DAEDLConfig(shrinkage=0.0)).double()
    (note,) = head.fit_statistics([(train.z, train.y)], [(far.z, far.y)])
    assert note.startswith("λ = 0 for 100 % of the validation inputs")
    assert head.fit_statistics([(train.z, train.y)], [(train.z, train.y)]) == []
    assert note.endswith("set shrinkage=1, for one covariance of all classes")
    tied = DAEDL(D, C, DAEDLConfig(shrinkage=1.0)).double()
    (note,) = tied.fit_statistics([(train.z, train.y)], [(far.z, far.y)])
    assert "shrinkage" not in note


def test_daedl_refuses_features_that_can_be_walked_once() -> None:
    train = uneven()
    with pytest.raises(InputError, match="two walks"):
        DAEDL(D, C).double().fit_statistics(iter([(train.z, train.y)]), None)


def test_daedl_leaves_out_a_class_without_samples() -> None:
    train = uneven()
    kept = train.y != 1
    head = DAEDL(D, C).double().eval()
    head.fit_statistics([(train.z[kept], train.y[kept])], None)
    assert bool(torch.isfinite(head(train.z).log_density).all())


# -- what all of them share ---------------------------------------------------------------------


def fitted(name: str) -> Head:
    torch.manual_seed(0)
    head, train = METHODS[name](D, C).eval(), uneven()
    head.fit_statistics([(train.z.float(), train.y)], None)
    return head


@pytest.mark.parametrize("name", FAMILY)
def test_beliefs_are_valid(name: str) -> None:
    head = fitted(name).double()
    z = torch.cat([data().z, 100 * data(1).z])
    belief = head(z)
    torch.testing.assert_close(belief.probs().sum(1), torch.ones(2 * B).double())
    assert bool(torch.isfinite(belief.log_evidence).all())
    prior = {"r-edl": 0.1, "re-edl": 0.8, "daedl": None}.get(name, 1.0)
    if prior is None:
        assert belief.log_prior is None
    else:
        assert float(belief.log_prior.exp()) == pytest.approx(prior)
        assert bool((belief.log_evidence.exp() >= C * prior * (1 - 1e-9)).all())
        mass = C * prior / belief.log_evidence[:, 0].exp()
        torch.testing.assert_close(SCORES["vacuity"](belief), mass)
    for score in head.named_scores.values():
        assert bool(torch.isfinite(SCORES[score](belief)).all())


@pytest.mark.parametrize("name", FAMILY)
def test_gradient_of_the_objective(name: str) -> None:
    head, y = METHODS[name](D, C).double(), data().y

    def total(logits: Tensor) -> Tensor:
        return torch.stack(list(head.terms(head.log_alpha(logits), y, MIDDLE).values())).sum()

    logits = 3 * torch.randn(B, C, dtype=torch.float64)
    assert torch.autograd.gradcheck(total, logits.requires_grad_())


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("size", [1.0, 12.0, 20.0])
def test_the_gradient_is_finite_in_float32(name: str, size: float) -> None:
    head, y = METHODS[name](D, C), data().y
    logits = (size * torch.randn(B, C)).requires_grad_()
    terms = head.terms(head.log_alpha(logits), y, MIDDLE)
    torch.stack(list(terms.values())).sum().backward()
    assert bool(torch.isfinite(logits.grad).all())


@pytest.mark.parametrize("name", FAMILY)
def test_a_state_dict_gives_the_same_belief_to_the_bit(name: str) -> None:
    head, z = fitted(name), data().z.float()
    other = METHODS[name](D, C).eval()
    other.load_state_dict(head.state_dict())
    one, two = head(z), other(z)
    for field in ("log_p", "log_evidence", "logits", "log_density"):
        mine, theirs = getattr(one, field), getattr(two, field)
        assert (mine is None) == (theirs is None) == (field == "log_density" and name != "daedl")
        assert mine is None or torch.equal(mine, theirs)


@pytest.mark.parametrize("name", FAMILY)
def test_one_sample_is_believed_as_in_a_batch(name: str) -> None:
    head, z = fitted(name).double(), data().z
    single = Belief.cat([head(row[None]) for row in z])
    torch.testing.assert_close(single.log_probs(), head(z).log_probs())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IEDLConfig(fisher_weight=-1), "fisher_weight must be at least 0, got -1"),
        (lambda: IEDLConfig(kl_ramp=-1), "kl_ramp must be at least 0"),
        (lambda: REDLConfig(prior=0), "prior must be above 0, got 0"),
        (lambda: REDLConfig(kl_weight=-1), "kl_weight must be at least 0"),
        (lambda: ReEDLConfig(prior=-0.1), "prior must be above 0"),
        (lambda: DAEDLConfig(ridge=0), "ridge must be at least 1e-09, got 0"),
        (lambda: DAEDLConfig(shrinkage=2), "shrinkage must be at least 0 and at most 1, got 2"),
        (lambda: DAEDLConfig(kl_weight=-1), "kl_weight must be at least 0"),
        (lambda: CEDLPlusConfig(kl_weight=2), "kl_weight must be at most 1"),
        (lambda: CEDLPlusConfig(kl_start=0), "kl_start must be above 0, got 0"),
        (lambda: ReEDLConfig(outliers="vos"), "outliers must be an OutlierConfig"),
    ],
)
def test_settings_are_checked(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_daedl_says_when_the_classes_share_a_covariance() -> None:
    batch = data(count=C * D)
    notes = DAEDL(D, C).double().fit_statistics([(batch.z, batch.y)], None)
    assert notes[0].startswith("one covariance for all classes")


def test_daedl_stays_finite_on_large_features() -> None:
    head = DAEDL(D, C)
    batch = Batch(1e4 * data().z.float(), data().y)
    terms = head.objective(batch, Progress(0, 10))
    torch.stack(list(terms.values())).sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in head.parameters())
    belief = head.double().eval()(batch.z.double())
    assert bool(torch.isfinite(SCORES["expected_entropy"](belief)).all())
