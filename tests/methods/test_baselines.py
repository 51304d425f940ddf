"""Softmax and EDL against formulas written out by hand."""

from __future__ import annotations

import pytest
import torch

from gemfi.errors import InputError
from gemfi.methods import EDL, METHODS, Batch, EDLConfig, Progress, Softmax, method
from gemfi.scores import SCORES

D, C, B = 10, 3, 20


def batch() -> Batch:
    return Batch(torch.randn(B, D, dtype=torch.float64), torch.randint(C, (B,)))


def test_softmax_is_cross_entropy() -> None:
    head = Softmax(D, C).double()
    data = batch()
    belief = head(data.z)
    p = torch.softmax(data.z @ head.linear.weight.T + head.linear.bias, dim=1)
    torch.testing.assert_close(belief.probs(), p)
    terms = head.objective(data, Progress(0, 10))
    expected = -torch.stack([p[i, y].log() for i, y in enumerate(data.y)]).mean()
    torch.testing.assert_close(terms["nll"], expected)
    assert belief.log_evidence is None


@pytest.mark.parametrize("evidence", ["relu", "softplus", "exp"])
@pytest.mark.parametrize("risk", ["mse", "log", "digamma"])
def test_edl_objective(evidence: str, risk: str) -> None:
    head = EDL(D, C, EDLConfig(evidence=evidence, risk=risk, kl_weight=0.5, kl_ramp=0.4)).double()
    data = batch()
    u = data.z @ head.linear.weight.T + head.linear.bias
    e = {"relu": u.clamp_min(0), "softplus": torch.log1p(u.exp()), "exp": u.exp()}[evidence]
    alpha = e + 1
    total = alpha.sum(1, keepdim=True)
    p = alpha / total
    y = torch.nn.functional.one_hot(data.y, C)
    risks = {
        "mse": ((y - p) ** 2 + p * (1 - p) / (total + 1)).sum(1),
        "log": (y * (total.log() - alpha.log())).sum(1),
        "digamma": (y * (torch.digamma(total) - torch.digamma(alpha))).sum(1),
    }
    terms = head.objective(data, Progress(10, 100))
    torch.testing.assert_close(terms["risk"], risks[risk].mean())
    dirichlet = torch.distributions.Dirichlet
    misleading = torch.where(y == 1, torch.ones_like(alpha), alpha)
    kl = torch.distributions.kl_divergence(dirichlet(misleading), dirichlet(torch.ones_like(alpha)))
    torch.testing.assert_close(terms["kl"], 0.5 * 0.25 * kl.mean())  # a quarter of the ramp
    belief = head(data.z)
    torch.testing.assert_close(belief.probs(), p)
    torch.testing.assert_close(belief.log_evidence.exp(), total)
    torch.testing.assert_close(SCORES["vacuity"](belief), C / total[:, 0])


def test_edl_refuses_unknown_choices() -> None:
    with pytest.raises(InputError, match="evidence must be one of relu, softplus, exp, got 'tanh'"):
        EDLConfig(evidence="tanh")
    with pytest.raises(InputError, match="risk must be one of mse, log, digamma, got 'mae'"):
        EDLConfig(risk="mae")


def test_unknown_method_lists_the_known_ones() -> None:
    with pytest.raises(
        InputError, match="unknown method 'gem'; known: softmax, logit-norm, t2f-norm, mc-dropout"
    ):
        method("gem")


@pytest.mark.parametrize("name", list(METHODS))
def test_info_is_complete_and_its_scores_work(name: str) -> None:
    info = METHODS[name].info
    assert info.name == name
    assert info.summary
    assert info.paper
    assert 2000 < info.year < 2100
    head = METHODS[name](D, C).double().eval()
    head.fit_statistics([(batch().z, batch().y)], None)
    belief = head(batch().z)
    for score in (info.aleatoric, info.epistemic):
        assert SCORES[score](belief).shape == (B,)


def test_progress_ramps_by_fraction() -> None:
    assert Progress(10, 100).ramp(0.2, 0.1) == 0
    assert Progress(25, 100).ramp(0.2, 0.1) == pytest.approx(0.5)
    assert Progress(90, 100).ramp(0.2, 0.1) == 1
    assert Progress(20, 100).ramp(0.2, 0.0) == 1
