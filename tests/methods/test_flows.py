"""Radial flows against the formula written out, autograd's Jacobian and numerical integrals."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gemfi.methods.postnet import RadialFlows


def flows(classes: int = 3, dimensions: int = 4, length: int = 5) -> RadialFlows:
    """Flows with layers that stretch and layers that squeeze, some of them hard."""
    made = RadialFlows(classes, dimensions, length).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(2 * torch.randn_like(parameter))
    return made


def by_hand(made: RadialFlows, label: int, z: Tensor) -> Tensor:
    """One point (H,) through the flow of one class, in the words of the paper."""
    for layer in range(made.center.shape[0]):
        z0 = made.center[layer, label]
        alpha = torch.log1p(made.radius[layer, label].exp())
        beta = -alpha + torch.log1p(made.slope[layer, label].exp())
        h = 1 / (alpha + (z - z0).square().sum().sqrt())
        z = z + beta * h * (z - z0)
    return z


def test_points_move_as_the_formula_says() -> None:
    made, z = flows(), torch.randn(6, 4, dtype=torch.float64)
    moved, _ = made.transform(z)
    expected = torch.stack(
        [torch.stack([by_hand(made, label, each) for label in range(3)]) for each in z]
    )
    torch.testing.assert_close(moved, expected)


def test_the_determinant_is_that_of_the_jacobian() -> None:
    made, z = flows(), torch.randn(6, 4, dtype=torch.float64)
    _, log_det = made.transform(z)
    for i, each in enumerate(z):
        for label in range(3):
            jacobian = torch.autograd.functional.jacobian(
                lambda point, label=label: by_hand(made, label, point), each
            )
            sign, expected = torch.linalg.slogdet(jacobian)
            assert sign == 1  # invertible, and of one orientation
            torch.testing.assert_close(log_det[i, label], expected)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_densities_integrate_to_one(dimensions: int) -> None:
    made = flows(2, dimensions, 6)
    with torch.no_grad():
        made.radius.abs_()  # no peak that is narrower than the grid
    side, count = 30.0, 20_001 if dimensions == 1 else 601
    line = torch.linspace(-side, side, count, dtype=torch.float64)
    points = line[:, None] if dimensions == 1 else torch.cartesian_prod(line, line)
    cell = (2 * side / (count - 1)) ** dimensions
    with torch.no_grad():
        mass = sum(made(chunk).exp().sum(dim=0) for chunk in points.split(200_000)) * cell
    torch.testing.assert_close(mass, torch.ones(2).double(), rtol=0, atol=2e-3)


def test_without_layers_it_is_the_standard_normal() -> None:
    z = torch.randn(5, 3, dtype=torch.float64)
    normal = torch.distributions.Normal(torch.zeros(3).double(), 1).log_prob(z).sum(dim=1)
    found = RadialFlows(2, 3, 0).double()(z)
    torch.testing.assert_close(found, normal[:, None].expand(-1, 2))


def test_far_points_and_centres_have_finite_densities_and_gradients() -> None:
    made = flows(2, 3, 4).float()
    with torch.no_grad():
        made.slope[0] = -30.0  # α̂ + β̂ is 1e-13: all of a ball into nearly one point
    z = torch.cat([1e6 * torch.randn(3, 3), made.center[0].detach()]).requires_grad_()
    log_q = made(z)
    assert torch.isfinite(log_q).all()
    log_q.logsumexp(dim=1).sum().backward()
    assert torch.isfinite(z.grad).all()
    for parameter in made.parameters():
        assert torch.isfinite(parameter.grad).all()


def test_learns_a_density() -> None:
    """Maximum likelihood brings the flow of a class near the entropy of its data."""
    x = 0.2 * torch.randn(500, 2) + torch.tensor([1.0, -0.5])
    made = RadialFlows(1, 2, 6)
    optimizer = torch.optim.Adam(made.parameters(), lr=0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss = -made(x).mean()
        loss.backward()
        optimizer.step()
    entropy = 1 + math.log(2 * math.pi) + 2 * math.log(0.2)
    assert loss.item() == pytest.approx(entropy, abs=0.15)
