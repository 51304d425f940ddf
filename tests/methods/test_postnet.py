"""The posterior network against its formulas written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gemfi import metrics, scores
from gemfi.data import Role, Split
from gemfi.errors import InputError
from gemfi.methods import Batch, DataFacts, PostNet, PostNetConfig, Progress
from gemfi.model import build_model
from gemfi.outliers import VOS
from gemfi.training import TrainConfig, fit

D, B = 9, 24
START = Progress(0, 10)


def build(classes: int = 4, **changes: object) -> PostNet:
    head = PostNet(D, classes, PostNetConfig(**changes)).double()
    head.prepare(DataFacts(torch.arange(1, classes + 1) * 100, 10))
    return head


def batch(classes: int = 4, **more: Tensor) -> Batch:
    z = torch.randn(B, D, dtype=torch.float64)
    return Batch(z, torch.randint(classes, (B,)), **more)


def alpha_by_hand(head: PostNet, latent: Tensor) -> Tensor:
    """α of each class of each point, one number after the other."""
    rows = []
    for point in latent:
        row = []
        for label, count in enumerate(head.class_counts.tolist()):
            x, jacobian = point, point.new_ones(())
            for layer in range(head.flows.center.shape[0]):
                z0 = head.flows.center[layer, label]
                a = torch.log1p(head.flows.radius[layer, label].exp())
                b = torch.log1p(head.flows.slope[layer, label].exp()) - a
                r = (x - z0).norm()
                h = 1 / (a + r)
                sides = (1 + b * h) ** (len(x) - 1)
                jacobian = jacobian * sides * (1 + b * h - b * r * h**2)
                x = x + b * h * (x - z0)
            normal = torch.exp(-x.square().sum() / 2) / (2 * math.pi) ** (len(x) / 2)
            row.append(1 + count * normal * jacobian)
        rows.append(torch.stack(row))
    return torch.stack(rows)


def normalised(head: PostNet, z: Tensor) -> Tensor:
    """The latent points of a batch in training."""
    x = z @ head.linear.weight.T + head.linear.bias
    return (x - x.mean(dim=0)) / (x.var(dim=0, unbiased=False) + 1e-5).sqrt()


def test_objective_is_the_uncertain_cross_entropy_less_entropy() -> None:
    head, data = build(entropy_weight=0.01), batch()
    alpha = alpha_by_hand(head, normalised(head, data.z))
    true = alpha[torch.arange(B), data.y]
    terms = head.objective(data, START)
    risk = (torch.digamma(alpha.sum(dim=1)) - torch.digamma(true)).mean()
    torch.testing.assert_close(terms["risk"], risk)
    entropy = torch.distributions.Dirichlet(alpha).entropy().mean()
    torch.testing.assert_close(terms["entropy"], -0.01 * entropy)
    assert terms.keys() == {"risk", "entropy"}


def test_belief_is_the_dirichlet_of_the_pseudo_counts() -> None:
    head, data = build(), batch()
    head.objective(data, START)  # moves the running statistics
    head.eval()
    x = data.z @ head.linear.weight.T + head.linear.bias
    x = (x - head.norm.running_mean) / (head.norm.running_var + 1e-5).sqrt()
    alpha = alpha_by_hand(head, x)
    belief = head(data.z)
    total = alpha.sum(dim=1, keepdim=True)
    torch.testing.assert_close(belief.probs(), alpha / total)
    torch.testing.assert_close(belief.log_evidence.exp(), total)
    torch.testing.assert_close(belief.log_density, torch.log((alpha - 1).sum(dim=1) / 1000))
    vacuity = scores.vacuity(belief)
    assert ((vacuity > 0) & (vacuity < 1)).all()


def test_far_from_the_data_there_is_no_evidence() -> None:
    head, data = build(), batch()
    head.objective(data, START)
    belief = head.eval()(1e3 * data.z)
    torch.testing.assert_close(belief.log_evidence.exp(), torch.full((B, 1), 4.0).double())
    torch.testing.assert_close(belief.probs(), torch.full((B, 4), 0.25).double())
    assert torch.isfinite(belief.log_density).all()


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_gradients_reach_every_parameter_and_beliefs_are_valid(classes: int) -> None:
    head = build(classes)
    sum(head.objective(batch(classes), START).values()).backward()
    for name, parameter in head.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name
        if name != "linear.bias":  # batch normalisation takes it out
            assert parameter.grad.abs().sum() > 0, name
    belief = head.eval()(batch().z)
    torch.testing.assert_close(belief.probs().sum(dim=1), torch.ones(B).double())
    assert (belief.log_total_evidence() >= math.log(classes)).all()
    for name in scores.available(belief):
        assert torch.isfinite(scores.SCORES[name](belief)).all(), name


def test_counts_are_ones_before_training_and_zero_for_a_class_without_samples() -> None:
    head = PostNet(D, 4).double().eval()
    assert head.class_counts.tolist() == [1, 1, 1, 1]
    head.prepare(DataFacts(torch.tensor([5, 0, 7]), 10))
    assert head.class_counts.tolist() == [5, 0, 7, 0]
    data = batch()
    alpha = head(data.z).log_p[:, 0].exp() * head(data.z).log_evidence.exp()
    torch.testing.assert_close(alpha[:, [1, 3]], torch.ones(B, 2).double())
    head.train()
    terms = head.objective(Batch(data.z, 2 * (data.y % 2)), START)
    sum(terms.values()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in head.parameters())


def test_a_state_dict_brings_everything_back() -> None:
    head, other, data = build(), PostNet(D, 4).double(), batch()
    head.objective(data, START)
    other.load_state_dict(head.state_dict())
    one, two = head.eval()(data.z), other.eval()(data.z)
    for name in ("log_p", "log_evidence", "log_density", "logits"):
        assert torch.equal(getattr(one, name), getattr(two, name))


def test_forward_exports_with_a_dynamic_batch() -> None:
    head = build().eval()
    size = torch.export.Dim("batch", min=2, max=512)
    program = torch.export.export(head, (batch().z,), dynamic_shapes=({0: size},)).module()
    more = torch.randn(40, D, dtype=torch.float64)
    mine, theirs = head(more), program(more)
    torch.testing.assert_close(mine.log_probs(), theirs.log_probs())
    torch.testing.assert_close(scores.evidence(mine), scores.evidence(theirs))


def test_outliers_are_seen_on_the_scale_of_id_data_and_leave_its_statistics() -> None:
    outside = 5 + torch.randn(7, D, dtype=torch.float64)
    head = build(outliers=VOS, outlier_weight=0.5)
    alone = build()
    alone.load_state_dict(head.state_dict())
    data = batch(outliers=outside)
    terms = head.objective(Batch(data.z, data.y, outside, 0.25), START)
    alone.objective(Batch(data.z, data.y), START)
    assert torch.equal(head.norm.running_mean, alone.norm.running_mean)
    assert torch.equal(head.norm.running_var, alone.norm.running_var)
    belief = head.eval()(outside)
    alpha = (belief.log_p[:, 0] + belief.log_evidence).exp()
    dirichlet = torch.distributions.Dirichlet
    flat = dirichlet(torch.ones_like(alpha))
    kl = torch.distributions.kl_divergence(dirichlet(alpha), flat).mean()
    torch.testing.assert_close(terms["outliers"], 0.125 * kl)


def test_a_batch_of_one_cannot_be_normalised() -> None:
    data = batch()
    with pytest.raises(InputError, match="at least two samples a batch to train, got 1"):
        build().objective(Batch(data.z[:1], data.y[:1]), START)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latent": 0}, "latent must be an integer of at least 1, got 0"),
        ({"flow_length": -1}, "flow_length must be an integer of at least 0, got -1"),
        ({"entropy_weight": -1.0}, "entropy_weight must be at least 0, got -1.0"),
    ],
)
def test_bad_configurations_say_what_was_expected(changes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PostNetConfig(**changes)


def test_it_learns_clusters_and_knows_what_lies_between() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = 4 * torch.nn.functional.one_hot(torch.arange(5)).float()
    y = torch.arange(400) % 5
    x = centers[y] + 0.5 * torch.randn(400, 5, generator=generator)
    model = build_model("postnet", torch.nn.Identity(), 5, num_features=5)
    config = TrainConfig(epochs=15, batch_size=40, learning_rate=2e-2)
    fit(model, Split(x, y, Role.TRAIN, "clusters", 5), config=config, progress=False)
    inside = model.predict(x)
    outside = model.predict(-4 * torch.ones(100, 5) + torch.randn(100, 5, generator=generator))
    assert metrics.accuracy(inside.probs(), y) > 97
    found = metrics.ood_metrics(scores.evidence(inside), scores.evidence(outside))
    assert found["auroc"] > 95
