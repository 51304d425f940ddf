"""Familiarity against its formula in numpy, at its quantiles, and through a state dict."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gemfi.methods.gem_modules import Familiarity

SCALES = [(6.0, 0.4), (-2.0, 5.0), (1700.0, 30.0)]  # as of log α0, −E and log p(z)


def draw(count: int = 801, seed: int = 0) -> list[Tensor]:
    """Three signs, skewed, each in units of its own."""
    rng = np.random.default_rng(seed)
    return [torch.tensor(mean - spread * rng.gamma(2, size=count)) for mean, spread in SCALES]


def fitted(values: list[Tensor], signs: int = 3) -> Familiarity:
    found = Familiarity(signs).double()
    found.fit(values)
    return found


def by_hand(values: list[Tensor], at: list[Tensor]) -> np.ndarray:
    """Log of the product of σ((x − a)/b), with a and b from numpy's quantiles."""
    product = np.ones(len(at[0]))
    for known, here in zip(values, at, strict=True):
        low, middle = np.quantile(known.numpy(), [0.05, 0.5])
        product *= 1 / (1 + np.exp(-np.log(9) * (here.numpy() - low) / (middle - low)))
    return np.log(product)


class TestFamiliarity:
    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_is_its_formula(self, count: int) -> None:
        """Also with fewer signs than there is room for."""
        values, at = draw()[:count], draw(50, seed=1)[:count]
        found = fitted(values)(at)
        assert found.shape == (50,)
        np.testing.assert_allclose(found, by_hand(values, at), rtol=1e-9)

    @pytest.mark.parametrize("sign", [0, 1, 2])
    def test_a_half_at_the_twentieth_and_nine_tenths_at_the_median(self, sign: int) -> None:
        values = draw()[sign]
        at = torch.tensor(np.quantile(values.numpy(), [0.05, 0.5]))
        found = fitted([values], 1)([at])
        assert found.exp().tolist() == pytest.approx([0.5, 0.9], rel=1e-9)

    def test_one_sign_far_out_is_enough(self) -> None:
        values = draw()
        found = fitted(values)
        usual = [each.median().expand(4).clone() for each in values]
        for sign, (_, spread) in enumerate(SCALES):
            usual[sign][sign + 1] -= 100 * spread
        log_familiarity = found(usual)
        assert log_familiarity[0].item() == pytest.approx(3 * math.log(0.9), rel=1e-6)
        assert (log_familiarity[1:] < -50).all()  # and still finite
        assert torch.isfinite(log_familiarity).all()

    def test_rises_with_every_sign_up_to_zero(self) -> None:
        values = draw()
        found = fitted(values)
        steps = torch.linspace(-5, 40, 91).double()
        for sign in range(3):
            at = [each.median().expand(91).clone() for each in values]
            at[sign] += SCALES[sign][1] * steps
            log_familiarity = found(at)
            assert (log_familiarity.diff() >= 0).all()
            assert (log_familiarity[:20].diff() > 0).all()
            assert log_familiarity.max() <= 0
        far = found([each.max()[None] + 1e3 for each in values])
        assert far.item() == pytest.approx(0, abs=1e-9)

    def test_none_before_it_is_fitted(self) -> None:
        found = Familiarity(3).double()
        assert found(draw()) is None
        found.fit(draw())
        assert found(draw()) is not None

    def test_a_sign_that_never_differs(self) -> None:
        values = [draw()[0], torch.full((801,), 2.0).double()]
        found = fitted(values)([values[0][:3], torch.tensor([2.0, -9.0, 9.0]).double()])
        assert torch.isfinite(found).all()
        assert found[1] < found[0] < found[2]

    def test_a_refit_replaces_the_fit(self) -> None:
        found = fitted(draw(seed=3))
        found.fit(draw())
        at = draw(20, seed=1)
        assert torch.equal(found(at), fitted(draw())(at))

    def test_fitting_does_not_keep_the_graph(self) -> None:
        found = fitted([each.requires_grad_() for each in draw()])
        assert not found.location.requires_grad
        assert not found.scale.requires_grad

    def test_state_dict_keeps_it_fitted(self) -> None:
        found, at = fitted(draw()), draw(20, seed=1)
        other = nn.ModuleDict({"inner": Familiarity(3)}).double()
        assert not other["inner"].fitted
        other.load_state_dict({f"inner.{key}": value for key, value in found.state_dict().items()})
        assert other["inner"].fitted
        assert torch.equal(other["inner"](at), found(at))
        found.load_state_dict(Familiarity(3).state_dict())
        assert not found.fitted
        assert found(at) is None
