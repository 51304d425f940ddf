"""Special functions from elementary operators, against mpmath, in torch and in onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gemfi import dirichlet
from gemfi.export import special
from gemfi.export.graphs import convert

POSITIVE = torch.logspace(-8, 8, 161, dtype=torch.float64)
SIGNED = torch.cat([-POSITIVE.flip(0), torch.zeros(1, dtype=torch.float64), POSITIVE])
EPSILON = {torch.float32: 1.2e-7, torch.float64: 2.3e-16}
DTYPES = [torch.float32, torch.float64]


def oracle(function: Callable[[Any], Any], x: Tensor) -> Tensor:
    """With 50 digits, of the very numbers that were given."""
    with mpmath.workdps(50):
        values = [float(function(mpmath.mpf(each))) for each in x.double().tolist()]
    return torch.tensor(values, dtype=torch.float64)


def error(found: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """The largest, in proportion to the result, or to `floor` if that is larger."""
    size = expected.abs().clamp_min(max(floor, 1e-300))
    return float(((found.double() - expected).abs() / size).max())


def log_sigmoid(x: Any) -> Any:
    return -mpmath.log1p(mpmath.exp(-x))


@pytest.mark.parametrize("dtype", DTYPES)
class TestAgainstManyDigits:
    def test_digamma(self, dtype: torch.dtype) -> None:
        x = POSITIVE.to(dtype)
        assert error(special.digamma(x), oracle(mpmath.digamma, x), floor=1) < 8 * EPSILON[dtype]

    def test_digamma_after_one_is_what_expected_entropy_needs(self, dtype: torch.dtype) -> None:
        x = POSITIVE.to(dtype) + 1
        found, torch_has = special.digamma(x), torch.digamma(x)
        expected = oracle(mpmath.digamma, x)
        assert error(found, expected, floor=1) < 8 * EPSILON[dtype]
        assert error(found, torch_has.double(), floor=1) < 12 * EPSILON[dtype]

    def test_lgamma(self, dtype: torch.dtype) -> None:
        x = POSITIVE.to(dtype)
        assert error(special.lgamma(x), oracle(mpmath.loggamma, x), floor=1) < 80 * EPSILON[dtype]

    def test_log1p(self, dtype: torch.dtype) -> None:
        x = SIGNED[SIGNED > -0.99].to(dtype)
        assert error(special.log1p(x), oracle(mpmath.log1p, x)) < 4 * EPSILON[dtype]

    def test_expm1(self, dtype: torch.dtype) -> None:
        x = SIGNED[SIGNED < 80].to(dtype)
        # where eˣ is large, the last digit of x is many of those of eˣ
        assert error(special.expm1(x), oracle(mpmath.expm1, x)) < 100 * EPSILON[dtype]
        near = x[x.abs() < 1]
        assert error(special.expm1(near), oracle(mpmath.expm1, near)) < 5 * EPSILON[dtype]

    def test_log_sigmoid(self, dtype: torch.dtype) -> None:
        x = SIGNED[SIGNED < 80].to(dtype)
        assert error(special.log_sigmoid(x), oracle(log_sigmoid, x)) < 4 * EPSILON[dtype]

    def test_softplus(self, dtype: torch.dtype) -> None:
        x = SIGNED[(SIGNED > -80) & (SIGNED < 19)].to(dtype)
        expected = oracle(lambda each: mpmath.log1p(mpmath.exp(each)), x)
        assert error(special.softplus(x), expected) < 8 * EPSILON[dtype]

    def test_logaddexp(self, dtype: torch.dtype) -> None:
        a, b = torch.meshgrid(SIGNED[::7].to(dtype), SIGNED[::9].to(dtype), indexing="ij")
        expected = torch.logaddexp(a.double(), b.double())
        assert error(special.logaddexp(a, b), expected, floor=1) < 4 * EPSILON[dtype]

    def test_the_ends_are_those_of_torch(self, dtype: torch.dtype) -> None:
        ends = torch.tensor([-math.inf, -1e30, -200, 0, 200, 1e30, math.inf], dtype=dtype)
        pairs = [
            (special.expm1, torch.expm1),
            (special.log_sigmoid, nn.functional.logsigmoid),
            (special.softplus, nn.functional.softplus),
        ]
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours(ends), theirs(ends), rtol=1e-6)
        np.testing.assert_allclose(special.log1p(ends[3:]), torch.log1p(ends[3:]), rtol=1e-6)
        a, b = torch.meshgrid(ends, ends, indexing="ij")
        np.testing.assert_allclose(special.logaddexp(a, b), torch.logaddexp(a, b), rtol=1e-6)


class Everything(nn.Module):
    """What methods and scores use, in float32 and in float64 at once."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found = {}
        for dtype in DTYPES:
            each, name = x.to(dtype), str(dtype)
            found[f"gap {name}"] = dirichlet.digamma_gap(each)
            found[f"digamma {name}"] = torch.digamma(each.exp() + 1)
            found[f"log_sigmoid {name}"] = nn.functional.logsigmoid(each)
            found[f"expm1 {name}"] = torch.expm1(each.clamp(-1, 1))
        return found


def gap(log_x: Any) -> Any:
    return mpmath.digamma(mpmath.exp(log_x) + 1) - log_x


def test_they_stand_in_the_graph_that_onnxruntime_runs() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    module, x = Everything().eval(), torch.linspace(-40, 40, 401, dtype=torch.float64)
    x = x.float().double()  # the same numbers in both
    program = torch.export.export(module, (x,), strict=False)
    names = list(module(x))
    session = onnxruntime.InferenceSession(convert(program, names).SerializeToString())
    (given,) = session.get_inputs()
    found = dict(zip(names, session.run(None, {given.name: x.numpy()}), strict=True))
    expected = {
        "gap": oracle(gap, x),
        "digamma": oracle(lambda each: mpmath.digamma(mpmath.exp(each) + 1), x),
        "log_sigmoid": oracle(log_sigmoid, x),
        "expm1": oracle(mpmath.expm1, x.clamp(-1, 1)),
    }
    for name, values in found.items():
        what, dtype = name.split()
        epsilon = EPSILON[torch.float32 if dtype == "torch.float32" else torch.float64]
        limit = 120 if what == "gap" else 12  # at x = 20 the gap is the 120th part of ψ
        floor = 1.0 if what == "digamma" else 0.0
        ours = torch.from_numpy(values)
        assert error(ours, module(x)[name].double(), floor) < limit * epsilon, name
        least = 1e-11 if what == "gap" else 0.0  # where the series of `digamma_gap` ends
        assert error(ours, expected[what], floor) < max(least, limit * epsilon), name
