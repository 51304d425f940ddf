"""Monte Carlo dropout against one pass after the other."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi import scores
from gemfi.errors import InputError
from gemfi.methods import Batch, MCDropout, MCDropoutConfig, Progress, monte_carlo
from gemfi.model import Model, build_model

D, B = 12, 10
START = Progress(0, 10)


class Dropped(nn.Module):
    """Batch normalisation, then dropout: what `monte_carlo` must tell apart."""

    num_features = D

    def __init__(self, rate: float = 0.4) -> None:
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(D), nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(self.norm(x))
        return dropped


def inputs(rows: int = B) -> Tensor:
    return torch.randn(rows, D)


# -- the head -----------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_the_mean_is_that_of_the_passes(classes: int) -> None:
    head, z = MCDropout(D, classes, MCDropoutConfig(rate=0.3)).double(), inputs().double()
    each = [
        torch.softmax((z * mask) @ head.linear.weight.T + head.linear.bias, dim=1)
        for mask in head.masks
    ]
    belief = head(z)
    assert belief.log_p.shape == (B, 20, classes)
    torch.testing.assert_close(belief.log_p.exp(), torch.stack(each, dim=1))
    mean = torch.stack(each).mean(dim=0)
    torch.testing.assert_close(belief.probs(), mean)
    entropies = torch.stack([-(p * p.log()).sum(dim=1) for p in each]).mean(dim=0)
    information = -(mean * mean.log()).sum(dim=1) - entropies
    torch.testing.assert_close(scores.mutual_information(belief), information)
    assert (information > 0).all()
    assert belief.log_evidence is None


def test_masks_leave_out_their_share_and_keep_the_mean() -> None:
    head = MCDropout(400, 2, MCDropoutConfig(rate=0.3, passes=50))
    assert set(head.masks.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    assert (head.masks == 0).float().mean() == pytest.approx(0.3, abs=0.01)
    assert head.masks.mean() == pytest.approx(1.0, abs=0.02)
    assert len(head.masks.unique(dim=0)) == 50


def test_masks_follow_the_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = MCDropout(D, 3)
    torch.manual_seed(2)
    assert torch.equal(one.masks, MCDropout(D, 3).masks)
    assert not torch.equal(one.masks, MCDropout(D, 3, MCDropoutConfig(seed=1)).masks)
    torch.set_rng_state(before)
    other = MCDropout(D, 3, MCDropoutConfig(seed=1))
    assert torch.equal(one.linear.weight, other.linear.weight)


def test_objective_is_cross_entropy_with_fresh_masks() -> None:
    head = MCDropout(D, 3, MCDropoutConfig(rate=0.25)).double()
    data = Batch(inputs().double(), torch.arange(B) % 3)
    torch.manual_seed(7)
    mask = functional.dropout(torch.ones(B, D).double(), 0.25)
    logits = (data.z * mask) @ head.linear.weight.T + head.linear.bias
    expected = -torch.log_softmax(logits, dim=1)[torch.arange(B), data.y].mean()
    torch.manual_seed(7)
    terms = head.objective(data, START)
    torch.testing.assert_close(terms["nll"], expected)
    assert not torch.equal(head.objective(data, START)["nll"], terms["nll"])
    terms["nll"].backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in head.parameters())


def test_beliefs_do_not_depend_on_chance_mode_or_batch() -> None:
    head, z = MCDropout(D, 3).double(), inputs().double()
    whole = head(z).log_probs()
    assert torch.equal(whole, head(z).log_probs())
    assert torch.equal(whole, head.eval()(z).log_probs())
    torch.testing.assert_close(torch.cat([head(row[None]).log_probs() for row in z]), whole)


def test_saving_and_export() -> None:
    head, other = MCDropout(D, 3, MCDropoutConfig(seed=5)), MCDropout(D, 3)
    other.load_state_dict(head.state_dict())
    z = inputs()
    assert torch.equal(head(z).log_p, other(z).log_p)
    size = torch.export.Dim("batch", min=2, max=512)
    program = torch.export.export(head.eval(), (z,), dynamic_shapes=({0: size},)).module()
    more = inputs(33)
    torch.testing.assert_close(head(more).log_p, program(more).log_p)
    mine, theirs = (scores.mutual_information(each(more)) for each in (head, program))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 0.0}, "rate must be above 0 and below 1, got 0.0"),
        ({"rate": 1.0}, "rate must be above 0 and below 1, got 1.0"),
        ({"passes": 0}, "passes must be an integer of at least 1, got 0"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
    ],
)
def test_bad_configurations_say_what_was_expected(changes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MCDropoutConfig(**changes)


# -- dropout inside the network -----------------------------------------------------------------


def settled(method: str = "softmax", **options: float) -> Model:
    model = build_model(method, Dropped(**options), 3)
    model.train()(3 + 2 * inputs(200))  # batch normalisation has seen something
    return model


def test_monte_carlo_is_one_pass_after_the_other() -> None:
    model, x = settled().eval(), inputs()
    torch.manual_seed(4)
    each = []
    for _ in range(6):
        z = functional.dropout(model.backbone.norm(x), 0.4)
        each.append(torch.softmax(model.head.linear(z), dim=1).detach().double())
    belief = monte_carlo(model, x, passes=6, seed=4)
    assert belief.log_p.dtype == torch.float64
    torch.testing.assert_close(belief.log_p.exp(), torch.stack(each, 1), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(belief.probs(), sum(each) / 6, rtol=1e-5, atol=1e-7)
    assert (scores.mutual_information(belief) > 0).all()


def test_monte_carlo_leaves_no_trace() -> None:
    model, x = settled(), inputs()
    model.train()
    model.backbone.norm.eval()  # a frozen layer inside a model in training
    modes = [module.training for module in model.modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before = torch.get_rng_state()
    first = monte_carlo(model, x, passes=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(monte_carlo(model, x, passes=3).log_p, first.log_p)
    assert not torch.equal(monte_carlo(model, x, passes=3, seed=1).log_p, first.log_p)
    assert len(model.predict(x).log_p.unique(dim=1)[0]) == 1  # dropout is off again
    assert torch.equal(model.predict(x).log_p, model.predict(x).log_p)


def test_monte_carlo_restores_after_an_error() -> None:
    model = settled()
    before = torch.get_rng_state()
    with pytest.raises(InputError, match="not finite"):
        monte_carlo(model, torch.full((2, D), math.nan))
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.backbone.dropout._forward_pre_hooks


@pytest.mark.parametrize("method", ["mc-dropout", "edl", "gem-fi"])
def test_monte_carlo_joins_the_components_of_any_method(method: str) -> None:
    model, x = settled(method).eval(), inputs()
    one, all_ = monte_carlo(model, x, passes=1, seed=3), monte_carlo(model, x, passes=5, seed=3)
    assert all_.log_p.shape == (B, 5 * one.log_p.shape[1], 3)
    torch.testing.assert_close(all_.log_weight.exp().sum(dim=1), torch.ones(B).double())
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model.eval()
        for layer in model.modules():
            layer.training = isinstance(layer, nn.Dropout)
        with torch.no_grad():
            passes = [model(x).to(torch.float64) for _ in range(5)]
    mean = sum(each.probs() for each in passes) / 5
    torch.testing.assert_close(all_.probs(), mean, rtol=1e-5, atol=1e-7)
    if passes[0].energy is not None:
        energy = sum(each.energy for each in passes) / 5
        torch.testing.assert_close(all_.energy, energy, rtol=1e-5, atol=1e-6)
    for name in scores.available(all_):
        assert torch.isfinite(scores.SCORES[name](all_)).all(), name


def test_densities_are_averaged_over_the_passes() -> None:
    model, x = settled("postnet").eval(), inputs()
    found = monte_carlo(model, x, passes=4, seed=1)
    torch.manual_seed(1)
    densities = []
    for _ in range(4):
        z = functional.dropout(model.backbone.norm(x), 0.4)
        densities.append(model.head(z).log_density.detach().double().exp())
    expected = torch.stack(densities).mean(dim=0)
    torch.testing.assert_close(found.log_density.exp(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("method", ["softmax", "mc-dropout"])
def test_a_model_without_dropout_is_refused(method: str) -> None:
    for model in (settled(method, rate=0.0), build_model(method, "mlp", 3, in_features=D)):
        with pytest.raises(InputError, match="no dropout layer of a rate above 0"):
            monte_carlo(model, inputs())
    with pytest.raises(InputError, match="passes must be an integer of at least 1, got 0"):
        monte_carlo(settled(), inputs(), passes=0)
