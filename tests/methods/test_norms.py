"""LogitNorm, T2FNorm and label smoothing against loops in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from gemfi import scores
from gemfi.errors import InputError
from gemfi.methods import METHODS, Batch, NormConfig, Progress, SoftmaxConfig

D, C, B = 5, 3, 7


def made(name: str, config: object = None) -> tuple[torch.nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return METHODS[name](D, C, config).double(), torch.randn(B, D).double() * 3, torch.arange(B) % C


def arrays(head: torch.nn.Module, z: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    weight, bias = head.linear.weight, head.linear.bias
    return z.numpy(), weight.detach().numpy(), bias.detach().numpy()


def softmax(u: np.ndarray) -> np.ndarray:
    e = np.exp(u - u.max())
    return e / e.sum()


def by_hand(name: str, head: torch.nn.Module, z: Tensor) -> np.ndarray:
    """Probabilities, sample by sample."""
    rows, weight, bias = arrays(head, z)
    found = []
    for row in rows:
        if name == "t2f-norm":
            u = weight @ (row / np.sqrt((row**2).sum()) / 0.1) + bias
        else:
            u = weight @ row + bias
            u = u / np.sqrt((u**2).sum()) / 0.04
        found.append(softmax(u))
    return np.array(found)


@pytest.mark.parametrize("name", ["logit-norm", "t2f-norm"])
def test_probabilities_and_loss(name: str) -> None:
    head, z, y = made(name)
    expected = by_hand(name, head, z)
    belief = head(z)
    np.testing.assert_allclose(belief.probs().detach().numpy(), expected, rtol=1e-6, atol=1e-12)
    loss = head.objective(Batch(z, y), Progress(0, 1))["nll"]
    assert float(loss.detach()) == pytest.approx(
        -np.log(expected[np.arange(B), y]).mean(), rel=1e-6
    )


def test_logit_norm_forgets_the_size_of_logits() -> None:
    head, z, _ = made("logit-norm")
    torch.nn.init.zeros_(head.linear.bias)
    torch.testing.assert_close(head(z).probs(), head(7 * z).probs())


def test_t2f_norm_keeps_the_norm_for_its_score_alone() -> None:
    """Twice the features: the same probabilities, and a score of logits twice as large."""
    head, z, _ = made("t2f-norm")
    torch.nn.init.zeros_(head.linear.bias)
    torch.testing.assert_close(head(z).probs(), head(2 * z).probs())
    rows, weight, _ = arrays(head, z)
    energy = [-np.log(np.exp(weight @ (2 * row)).sum()) for row in rows]
    np.testing.assert_allclose(scores.logit_energy(head(2 * z)).detach().numpy(), energy, rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_label_smoothing(share: float) -> None:
    head, z, y = made("softmax", SoftmaxConfig(label_smoothing=share))
    rows, weight, bias = arrays(head, z)
    total = 0.0
    for row, label in zip(rows, y.tolist(), strict=True):
        log_p = np.log(softmax(weight @ row + bias))
        total -= (1 - share) * log_p[label] + share * log_p.mean()
    loss = head.objective(Batch(z, y), Progress(0, 1))["nll"]
    assert float(loss.detach()) == pytest.approx(total / B, rel=1e-6)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="label_smoothing"):
        SoftmaxConfig(label_smoothing=1.0)
    with pytest.raises(InputError, match="temperature"):
        NormConfig(temperature=0.0)
