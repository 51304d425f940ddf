"""Familiarity against its formula in numpy, at its quantiles, and through a state dict."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gemfi.errors import InputError
from gemfi.methods.gem_modules import Familiarity

NONE = torch.empty(0)


def draw(count: int = 801, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Energies and log densities, skewed, each in units of its own."""
    rng = np.random.default_rng(seed)
    energy = -2 + 5 * rng.gamma(2, size=count)
    log_density = 1700 - 30 * rng.gamma(2, size=count)
    return torch.tensor(energy), torch.tensor(log_density)


def fitted(energy: Tensor, log_density: Tensor) -> Familiarity:
    found = Familiarity().double()
    found.fit(energy, log_density)
    return found


def by_hand(known: Tensor, at: Tensor) -> np.ndarray:
    """Log σ((x − a)/b), with a and b from numpy's quantiles."""
    low, middle = np.quantile(known.numpy(), [0.05, 0.5])
    return -np.log1p(np.exp(-np.log(9) * (at.numpy() - low) / (middle - low)))


class TestFamiliarity:
    def test_is_a_product_of_memberships(self) -> None:
        (energy, log_density), at = draw(), draw(50, seed=1)
        found = fitted(energy, log_density)(*at)
        assert found is not None
        expected = by_hand(-energy, -at[0]) + by_hand(log_density, at[1])
        np.testing.assert_allclose(found, expected, rtol=1e-9)

    def test_either_may_be_absent(self) -> None:
        (energy, log_density), at = draw(), draw(50, seed=1)
        by_energy = fitted(energy, NONE)(at[0], None)
        by_density = fitted(NONE, log_density)(None, at[1])
        np.testing.assert_allclose(by_energy, by_hand(-energy, -at[0]), rtol=1e-9)
        np.testing.assert_allclose(by_density, by_hand(log_density, at[1]), rtol=1e-9)
        assert fitted(NONE, NONE)(None, None) is None

    def test_a_half_at_the_worst_twentieth_and_nine_tenths_at_the_median(self) -> None:
        energy, log_density = draw()
        found = fitted(energy, log_density)
        at = torch.tensor(np.quantile(energy.numpy(), [0.95, 0.5]))
        assert found.of_energy(at).exp().tolist() == pytest.approx([0.5, 0.9], rel=1e-9)

    def test_before_the_fit_the_energy_is_a_logit(self) -> None:
        energy = torch.linspace(-5, 5, 11).double()
        found = Familiarity().double()
        expected = 1 / (1 + np.exp(energy.numpy()))
        np.testing.assert_allclose(found.of_energy(energy).exp().numpy(), expected)
        assert found(energy, energy) is None

    def test_one_of_them_far_out_is_enough(self) -> None:
        energy, log_density = draw()
        usual = energy.median().repeat(3), log_density.median().repeat(3)
        usual[0][1] += 500
        usual[1][2] -= 3000
        found = fitted(energy, log_density)(*usual)
        assert found is not None
        assert found[0].item() == pytest.approx(2 * math.log(0.9), rel=1e-6)
        assert (found[1:] < -50).all()
        assert torch.isfinite(found).all()

    def test_falls_with_energy_and_rises_with_density_up_to_zero(self) -> None:
        energy, log_density = draw()
        found = fitted(energy, log_density)
        steps = torch.linspace(-200, 200, 91).double()
        still = log_density.median().repeat(91)
        assert (found(energy.median() + steps, still).diff() <= 0).all()
        assert (found(energy.median().repeat(91), still + steps).diff() >= 0).all()
        far = found(energy.min()[None] - 1e4, log_density.max()[None] + 1e6)
        assert far.item() == pytest.approx(0, abs=1e-9)

    def test_values_that_never_differ(self) -> None:
        found = fitted(torch.full((50,), 2.0).double(), NONE)
        at = found(torch.tensor([2.0, 9.0, -9.0]).double(), None)
        assert torch.isfinite(at).all()
        assert at[1] < at[0] < at[2]

    def test_refuses_what_is_not_finite(self) -> None:
        energy, log_density = draw()
        energy[3] = math.nan
        with pytest.raises(InputError, match="all of them finite"):
            fitted(energy, log_density)

    def test_a_refit_replaces_the_fit(self) -> None:
        found = fitted(*draw(seed=3))
        found.fit(*draw())
        at = draw(20, seed=1)
        assert torch.equal(found(*at), fitted(*draw())(*at))

    def test_state_dict_keeps_it_fitted(self) -> None:
        found, at = fitted(*draw()), draw(20, seed=1)
        other = nn.ModuleDict({"inner": Familiarity()}).double()
        assert not other["inner"].fitted
        other.load_state_dict({f"inner.{key}": value for key, value in found.state_dict().items()})
        assert other["inner"].fitted
        assert torch.equal(other["inner"](*at), found(*at))
        found.load_state_dict(Familiarity().state_dict())
        assert not found.fitted
        assert found(*at) is None
