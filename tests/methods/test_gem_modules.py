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


def draw(count: int = 801, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Log evidences, energies and log densities, skewed, each in units of its own."""
    rng = np.random.default_rng(seed)
    log_evidence = 6 - 0.4 * rng.gamma(2, size=count)
    energy = -2 + 5 * rng.gamma(2, size=count)
    log_density = 1700 - 30 * rng.gamma(2, size=count)
    return torch.tensor(log_evidence), torch.tensor(energy), torch.tensor(log_density)


def fitted(log_evidence: Tensor, energy: Tensor, log_density: Tensor) -> Familiarity:
    found = Familiarity().double()
    found.fit(log_evidence, energy, log_density)
    return found


def by_hand(known: Tensor, at: Tensor) -> np.ndarray:
    """Log σ((x − a)/b), with a and b from numpy's quantiles."""
    low, middle = np.quantile(known.numpy(), [0.05, 0.5])
    return -np.log1p(np.exp(-np.log(9) * (at.numpy() - low) / (middle - low)))


class TestFamiliarity:
    def test_is_a_product_of_memberships(self) -> None:
        known, at = draw(), draw(50, seed=1)
        found = fitted(*known)(*at)
        expected = by_hand(known[0], at[0]) + by_hand(-known[1], -at[1]) + by_hand(known[2], at[2])
        np.testing.assert_allclose(found, expected, rtol=1e-9)

    def test_energy_and_density_may_be_absent(self) -> None:
        (evidence, energy, log_density), at = draw(), draw(50, seed=1)
        first = by_hand(evidence, at[0])
        alone = fitted(evidence, NONE, NONE)(at[0], None, None)
        by_energy = fitted(evidence, energy, NONE)(at[0], at[1], None)
        by_density = fitted(evidence, NONE, log_density)(at[0], None, at[2])
        np.testing.assert_allclose(alone, first, rtol=1e-9)
        np.testing.assert_allclose(by_energy, first + by_hand(-energy, -at[1]), rtol=1e-9)
        np.testing.assert_allclose(by_density, first + by_hand(log_density, at[2]), rtol=1e-9)

    def test_a_half_at_the_worst_twentieth_and_nine_tenths_at_the_median(self) -> None:
        known = draw()
        at = torch.tensor(np.quantile(known[1].numpy(), [0.95, 0.5]))
        assert fitted(*known).of_energy(at).exp().tolist() == pytest.approx([0.5, 0.9], rel=1e-9)

    def test_before_the_fit_the_energy_is_a_logit(self) -> None:
        energy = torch.linspace(-5, 5, 11).double()
        found = Familiarity().double()
        expected = 1 / (1 + np.exp(energy.numpy()))
        np.testing.assert_allclose(found.of_energy(energy).exp().numpy(), expected)
        assert found(energy, energy, energy) is None

    def test_one_of_them_far_out_is_enough(self) -> None:
        known = draw()
        usual = [each.median().repeat(4) for each in known]
        usual[0][1] -= 100
        usual[1][2] += 500
        usual[2][3] -= 3000
        found = fitted(*known)(*usual)
        assert found is not None
        assert found[0].item() == pytest.approx(3 * math.log(0.9), rel=1e-6)
        assert (found[1:] < -50).all()
        assert torch.isfinite(found).all()

    def test_rises_with_evidence_and_density_and_falls_with_energy_up_to_zero(self) -> None:
        known = draw()
        found = fitted(*known)
        middle = [each.median().repeat(91) for each in known]
        steps = torch.linspace(-200, 200, 91).double()
        for place, sign in ((0, 1), (1, -1), (2, 1)):
            at = [each + steps * (place == index) for index, each in enumerate(middle)]
            assert (sign * found(*at).diff() >= 0).all()
            assert found(*at).diff().abs().max() > 0
        far = found(torch.tensor([1e4]), torch.tensor([-1e4]), torch.tensor([1e6]))
        assert far.item() == pytest.approx(0, abs=1e-9)

    def test_values_that_never_differ(self) -> None:
        same = torch.full((50,), 2.0).double()
        found = fitted(same, NONE, NONE)(torch.tensor([2.0, -9.0, 9.0]).double(), None, None)
        assert torch.isfinite(found).all()
        assert found[1] < found[0] < found[2]

    def test_refuses_what_is_not_finite(self) -> None:
        known = draw()
        known[1][3] = math.nan
        with pytest.raises(InputError, match="all of them finite"):
            fitted(*known)

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
