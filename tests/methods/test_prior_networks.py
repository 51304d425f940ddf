"""Prior networks against torch's own Dirichlet divergences."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch.distributions import Dirichlet, kl_divergence

from gemfi import metrics, scores
from gemfi.data import Role, Split
from gemfi.errors import InputError
from gemfi.methods import (
    METHODS,
    Batch,
    ForwardPriorNetwork,
    ForwardPriorNetworkConfig,
    Head,
    PriorNetworkConfig,
    Progress,
    ReversePriorNetwork,
)
from gemfi.model import build_model
from gemfi.outliers import NONE, OutlierConfig
from gemfi.training import TrainConfig, fit

D, B, M = 7, 16, 5
START = Progress(0, 10)
NAMES = ["kl-pn", "rkl-pn"]


def build(name: str, features: int, classes: int, **changes: object) -> Head:
    method = METHODS[name]
    return method(features, classes, replace(method.default_config(), **changes))


def batch(classes: int = 4) -> Batch:
    z, outside = torch.randn(B, D).double(), torch.randn(M, D).double()
    return Batch(z, torch.randint(classes, (B,)), outside, 0.25)


def test_the_default_outliers_are_virtual_and_of_full_weight() -> None:
    forward, reverse = ForwardPriorNetworkConfig(), PriorNetworkConfig()
    for config in (forward, reverse):
        assert config.outliers == OutlierConfig()
        assert (config.outlier_weight, config.precision) == (1.0, 100.0)
    assert (forward.nll_weight, reverse.nll_weight) == (1.0, 0.0)
    for name in NAMES:
        assert METHODS[name](D, 3).outliers == OutlierConfig()
        assert METHODS[name](D, 3).takes_outliers


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", [100.0, 20.0])
def test_objective_is_the_kl_in_its_direction(name: str, precision: float) -> None:
    head = build(name, D, 4, precision=precision, outlier_weight=0.8, nll_weight=0.3).double()
    data = batch()

    def model(z: torch.Tensor) -> Dirichlet:
        return Dirichlet(torch.exp(z @ head.linear.weight.T + head.linear.bias))

    def divergence(one: Dirichlet, target: Dirichlet) -> torch.Tensor:
        pair = (target, one) if name == "kl-pn" else (one, target)
        return kl_divergence(*pair).mean() / precision

    sharp = torch.ones(B, 4).double()
    sharp[torch.arange(B), data.y] += precision
    inside, outside = model(data.z), model(data.outliers)
    terms = head.objective(data, START)
    torch.testing.assert_close(terms["kl"], divergence(inside, Dirichlet(sharp)))
    flat = Dirichlet(torch.ones(M, 4).double())
    torch.testing.assert_close(terms["outliers"], 0.25 * 0.8 * divergence(outside, flat))
    nll = -inside.mean[torch.arange(B), data.y].log().mean()
    torch.testing.assert_close(terms["nll"], 0.3 * nll)


@pytest.mark.parametrize("name", NAMES)
def test_the_targets_are_the_minima(name: str) -> None:
    """A head that outputs the targets themselves has no loss left."""
    head = build(name, 2, 2, nll_weight=0.0).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(2) * torch.tensor(101.0).log())
        head.linear.bias.zero_()
    corners = torch.eye(2).double()
    terms = head.objective(Batch(corners, torch.arange(2), torch.zeros(3, 2).double()), START)
    for term in terms.values():
        torch.testing.assert_close(term, torch.zeros(()).double(), rtol=0, atol=1e-12)
    worse = head.objective(Batch(corners, 1 - torch.arange(2), corners), START)
    assert min(worse.values()) > 0.01


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_gradients_flow_and_beliefs_are_valid(name: str, classes: int) -> None:
    head, data = METHODS[name](D, classes).double(), batch(classes)
    sum(head.objective(data, START).values()).backward()
    for parameter in head.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().sum() > 0
    belief = head(data.z)
    alpha = torch.exp(data.z @ head.linear.weight.T + head.linear.bias)
    torch.testing.assert_close(belief.log_evidence[:, 0].exp(), alpha.sum(dim=1))
    torch.testing.assert_close(belief.probs(), alpha / alpha.sum(dim=1, keepdim=True))
    assert belief.log_prior is None  # α = exp u: no mass is there beforehand
    expected = Dirichlet(alpha).entropy()
    torch.testing.assert_close(scores.differential_entropy(belief), expected)
    assert (scores.mutual_information(belief) >= 0).all()


def test_logits_are_clipped() -> None:
    head = METHODS["rkl-pn"](1, 2).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        head.linear.bias.zero_()
    belief = head(torch.tensor([[50.0]]).double())
    alpha = (belief.log_p[0, 0] + belief.log_evidence[0]).tolist()
    assert alpha == pytest.approx([10.0, -10.0])


@pytest.mark.parametrize("name", NAMES)
def test_saving_and_export(name: str) -> None:
    head, other, z = METHODS[name](D, 4), METHODS[name](D, 4), torch.randn(9, D)
    other.load_state_dict(head.state_dict())
    assert torch.equal(head(z).log_p, other(z).log_p)
    assert torch.equal(head(z).log_evidence, other(z).log_evidence)
    size = torch.export.Dim("batch", min=2, max=512)
    program = torch.export.export(head.eval(), (z,), dynamic_shapes=({0: size},)).module()
    more = torch.randn(33, D)
    mine, theirs = (scores.mutual_information(each(more)) for each in (head, program))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    ("outliers", "note"),
    [
        (OutlierConfig(), r"virtual outliers \(halo\); the paper used a real set"),
        (OutlierConfig(kind="auxiliary"), r"real outliers \(an auxiliary split\), as the paper"),
        (NONE, "no outliers, so nothing makes α flat"),
    ],
)
def test_the_notes_say_where_outliers_come_from(outliers: OutlierConfig, note: str) -> None:
    (found,) = build("kl-pn", D, 3, outliers=outliers).notes()
    assert re.search(note, found)


def test_bad_configurations_say_what_was_expected() -> None:
    with pytest.raises(InputError, match="precision must be above 0, got 0"):
        PriorNetworkConfig(precision=0)
    with pytest.raises(InputError, match="nll_weight must be at least 0, got -1"):
        PriorNetworkConfig(nll_weight=-1)
    with pytest.raises(InputError, match="outliers must be an OutlierConfig, got 'halo'"):
        PriorNetworkConfig(outliers="halo")


@pytest.mark.parametrize("method", [ForwardPriorNetwork, ReversePriorNetwork])
def test_the_kl_alone_learns_from_a_real_set_of_outliers(method: type[Head]) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 3
    corners = torch.tensor([[2.0, 0.0], [-1.0, 1.8], [-1.0, -1.8]])
    x = corners[y] + 0.3 * torch.randn(240, 2, generator=generator)
    middle = 0.3 * torch.randn(240, 2, generator=generator)
    real = OutlierConfig(kind="auxiliary", scrambled=0.0)
    config = replace(method.default_config(), outliers=real, nll_weight=0.0)
    model = build_model(method.info.name, "mlp", 3, config=config, in_features=2, width=32)
    fit(
        model,
        Split(x, y, Role.TRAIN, "corners", 3),
        config=TrainConfig(epochs=12, batch_size=24, learning_rate=1e-2),
        auxiliary=Split(middle, None, Role.AUXILIARY, "middle"),
        progress=False,
    )
    inside, outside = model.predict(x), model.predict(middle)
    assert metrics.accuracy(inside.probs(), y) > 97
    score = scores.SCORES[method.info.epistemic]
    assert metrics.ood_metrics(score(inside), score(outside))["auroc"] > 95
