"""Evaluation mode by a twin: the module itself is never switched."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gemfi import attach, build_model, diagnose
from gemfi.backbones import Frozen
from gemfi.data import Role, Split
from gemfi.detectors import ODIN, observe
from gemfi.errors import InputError
from gemfi.interop import OutlierDetector
from gemfi.methods import monte_carlo
from gemfi.model import Model
from gemfi.modes import evaluating

X = torch.linspace(-2, 2, 80).view(20, 4)


class Block(nn.Module):
    """Batch normalisation and dropout: what training mode changes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.dropout(self.norm(self.linear(x)))
        return found


def noisy_model(backbone: nn.Module | None = None) -> Model:
    torch.manual_seed(0)
    return build_model(
        "gem-fi", Block() if backbone is None else backbone, 3, num_features=6
    ).train()


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def run_in_threads(function: Callable[[], None]) -> None:
    """Eight at a time, to the end."""
    threads = [threading.Thread(target=function) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def assert_untouched(module: nn.Module, before: dict[str, Tensor], modes: list[bool]) -> None:
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_threads_get_the_answer_of_evaluation_mode_and_change_nothing() -> None:
    model = noisy_model()
    before, modes = state(model), [part.training for part in model.modules()]
    ((_, belief),) = evaluating(model).passes(X)
    reference = belief.log_probs().double()
    wrong: list[Any] = []

    def predict() -> None:
        for _ in range(40):
            found = model.predict(X).log_probs()
            if not torch.allclose(found, reference, atol=1e-6):
                wrong.append(found)

    run_in_threads(predict)
    assert wrong == []
    assert_untouched(model, before, modes)
    assert torch.equal(model.predict(X).log_p, model.eval().predict(X).log_p)


def test_a_module_in_evaluation_mode_is_used_as_it_is() -> None:
    model = noisy_model().eval()
    assert evaluating(model) is model
    model.backbone.norm.train()  # one part is enough
    assert evaluating(model) is not model
    assert not any(part.training for part in evaluating(model).modules())


def test_the_twin_shares_every_tensor() -> None:
    model = noisy_model()
    twin = evaluating(model)
    for ours, theirs in (
        (model.parameters(), twin.parameters()),
        (model.buffers(), twin.buffers()),
    ):
        assert [id(each) for each in ours] == [id(each) for each in theirs]
    with torch.no_grad():
        model.backbone.linear.weight.zero_()
    assert not twin.backbone.linear.weight.any()


def test_parts_in_training_mode_can_be_chosen() -> None:
    model = noisy_model().eval()
    twin = evaluating(model, training=(nn.Dropout,))
    assert {type(part) for part in twin.modules() if part.training} == {nn.Dropout}
    assert evaluating(twin, training=(nn.Dropout,)) is twin
    assert not model.backbone.dropout.training


class ByList(Block):
    """Reaches its parts through a plain list, a dict, a bound method and a partial."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = [self.linear, self.norm]
        self.named = {"last": self.dropout}
        self.first = self.linear.forward
        self.then = functools.partial(_apply, self.norm)

    def forward(self, x: Tensor) -> Tensor:
        del x
        assert self.steps[1].training == self.norm.training
        assert self.first.__self__ is self.linear
        found: Tensor = self.named["last"](self.then(self.steps[0](X)))
        return found


def _apply(layer: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = layer(x)
    return found


def _set_on_the_object() -> nn.Module:
    block = Block()
    block.forward = functools.partial(Block.forward, block)  # type: ignore[method-assign]
    return block


def _parametrised() -> nn.Module:
    block = Block()
    nn.utils.parametrizations.spectral_norm(block.linear)
    return block


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    "make",
    [
        ByList,
        _set_on_the_object,
        _parametrised,
        lambda: Frozen(Block(), 6),
        lambda: torch.compile(Block()),
        lambda: torch.jit.script(Block()),
        lambda: nn.Sequential(Block(), nn.Identity()),
    ],
    ids=[
        "aliases",
        "forward on the object",
        "parametrised",
        "frozen",
        "compiled",
        "script",
        "sequential",
    ],
)
def test_modules_of_every_make_have_a_twin(make: Callable[[], nn.Module]) -> None:
    backbone = make()
    model = noisy_model(backbone)
    before, modes = state(model), [part.training for part in model.modules()]
    first, again = model.embed(X), model.embed(X)
    assert torch.equal(first, again)
    assert_untouched(model, before, modes)
    plain = getattr(backbone, "_orig_mod", backbone)
    plain.eval()
    with torch.no_grad():
        assert torch.equal(plain(X), first)


def test_a_forward_that_cannot_be_followed_is_refused() -> None:
    block = Block()
    plain = block.forward
    block.forward = lambda x: 2 * plain(x)  # type: ignore[method-assign]
    model = noisy_model(block)
    with pytest.raises(InputError, match=r"Block has a `forward` .* call model.eval\(\) first"):
        model.predict(X)
    assert len(model.eval().predict(X)) == 20


def test_everything_that_asks_a_model_leaves_its_modes_and_buffers() -> None:
    model = noisy_model()
    z = model.embed(X)
    model.head.fit_statistics([(z, torch.arange(20) % 3)], None)
    before, modes = state(model), [part.training for part in model.modules()]
    for look in (
        lambda: model.embed(X),
        lambda: observe(model, X),
        lambda: ODIN().score(model, X),
        lambda: diagnose(model, Split(X, torch.arange(20) % 3, Role.TEST, "x", 3)),
        lambda: monte_carlo(model, X, 2),
        lambda: OutlierDetector(model).predict(X),
        lambda: OutlierDetector(model).predict_features(model.embed(X)),
        lambda: build_model("softmax", model.backbone, 3, example=X),
    ):
        look()
        assert_untouched(model, before, modes)


def test_hooks_on_a_twin_stay_there() -> None:
    model = noisy_model()
    twin = evaluating(model)
    seen: list[int] = []
    twin.backbone.register_forward_hook(lambda _m, _x, z: seen.append(len(z)))
    model.embed(X)
    assert seen == []
    model.backbone.register_forward_hook(lambda _m, _x, z: seen.append(len(z)))
    model.embed(X)
    assert seen == [20]


class Meeting(nn.Module):
    """The first pass stays behind the classifier until a second one has come before it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.classifier = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.body(x)
        second = PASSED.is_set()
        if second:
            BEGUN.set()
            ENDED.wait(10)  # the first
        found: Tensor = self.classifier(z)
        PASSED.set()
        if not second:
            BEGUN.wait(0.2)
        return found


PASSED, BEGUN, ENDED = threading.Event(), threading.Event(), threading.Event()


def test_two_first_passes_of_an_attached_network_do_not_see_each_other() -> None:
    """The first pass looks for layers after the classifier; those of another pass are none."""
    model = attach(Meeting(), "softmax").eval()
    failures: list[BaseException] = []

    def predict() -> None:
        try:
            model.predict(X)
        except InputError as error:
            failures.append(error)
        ENDED.set()

    first = threading.Thread(target=predict)
    first.start()
    assert PASSED.wait(10)
    predict()
    first.join()
    assert failures == []
