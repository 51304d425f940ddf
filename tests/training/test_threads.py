"""Runs in several threads, and under modes of torch in which nothing could learn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gemfi.data import two_moons
from gemfi.errors import InputError
from gemfi.model import Model, build_model
from gemfi.randomness import OwnGenerators, forked_generator
from gemfi.training import TrainConfig, fit
from support.runs import assert_same

TASK = two_moons(n=120)
CONFIG = TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3)


def trained(_index: int = 0) -> Model:
    """A model with dropout, which draws from torch's global generator."""
    with forked_generator(0):
        model = build_model("gem-fi", "mlp", 2, in_features=2, width=8, depth=1, dropout=0.3)
    fit(model, TASK.train, TASK.validation, CONFIG, progress=False)
    return model


def test_four_threads_give_what_one_gives() -> None:
    alone = trained()
    torch.manual_seed(11)
    before = torch.get_rng_state()
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(trained, range(4)))
    for model in models:
        assert_same(alone, model)
    assert torch.equal(before, torch.get_rng_state())


def test_an_own_generator_draws_what_torch_would() -> None:
    own = OwnGenerators(5)
    torch.manual_seed(5)
    expected = torch.rand(3), torch.rand(3)
    torch.manual_seed(6)
    before = torch.get_rng_state()
    for each in expected:
        with own.in_place():
            assert torch.equal(torch.rand(3), each)
        assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_fit_learns_under_no_grad(mode: type) -> None:
    alone = trained()
    with forked_generator(0):
        model = build_model("gem-fi", "mlp", 2, in_features=2, width=8, depth=1, dropout=0.3)
    with mode():
        task = two_moons(n=120)  # tensors of inference mode among them
        fit(model, task.train, task.validation, CONFIG, progress=False)
        assert not torch.is_grad_enabled()
    assert_same(alone, model)


def test_a_model_that_cannot_learn_is_refused() -> None:
    with torch.inference_mode():
        model = build_model("softmax", "mlp", 2, in_features=2, width=8, depth=1)
    with pytest.raises(InputError, match=r"built under torch.inference_mode\(\)"):
        fit(model, TASK.train, TASK.validation, CONFIG, progress=False)
