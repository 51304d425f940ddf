"""Model and build_model: any backbone, one forward pass, and what is refused."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gemfi import scores
from gemfi.belief import Belief
from gemfi.data import two_moons
from gemfi.data.inputs import InputSpec, dtype_name
from gemfi.data.normalisation import Normalisation
from gemfi.errors import InputError, NoAnswerError
from gemfi.methods import METHODS, PAPER_PRESETS
from gemfi.model import Model, build_model
from gemfi.spectral import SpectralLayer
from gemfi.training import TrainConfig, fit

FLOAT32 = {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("name", list(METHODS))
def test_any_module_that_returns_features_works(name: str) -> None:
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU())
    model = build_model(name, backbone, num_classes=4, example=torch.zeros(1, 3, 4))
    belief = model.predict(torch.randn(7, 3, 4), batch_size=3)
    assert belief.log_p.dtype == torch.float64
    torch.testing.assert_close(belief.probs().sum(1), torch.ones(7).double(), **FLOAT32)
    assert model.head.num_features == 5 * METHODS[name].copies(None)


@pytest.mark.parametrize("name", list(METHODS))
def test_batches_do_not_change_the_belief(name: str) -> None:
    model = build_model(name, "mlp", 3, in_features=6, width=16)
    x = torch.randn(11, 6)
    whole, parts = model.predict(x), model.predict(x, batch_size=4)
    torch.testing.assert_close(whole.log_probs(), parts.log_probs(), **FLOAT32)
    with torch.no_grad():
        once = model.eval()(x).log_probs().double()
    torch.testing.assert_close(once, whole.log_probs(), **FLOAT32)


def test_predict_leaves_the_mode_and_buffers_alone() -> None:
    model = build_model("gem-fi", "mlp", 3, in_features=6, width=16).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.predict(torch.randn(5, 6))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_uint8_images_are_scaled() -> None:
    model = build_model("softmax", "convnet", 3, size=8, channels=4)
    images = torch.randint(256, (5, 1, 8, 8), dtype=torch.uint8)
    torch.testing.assert_close(
        model.predict(images).log_probs(),
        model.predict(images.float() / 255).log_probs(),
        **FLOAT32,
    )


def test_sn_off_reaches_a_backbone_given_by_name() -> None:
    config = replace(PAPER_PRESETS["gem-fi"], sn=False)
    model = build_model("gem-paper", "resnet18", 3, config=config, width=2)
    kinds = {m.spectral.kind for m in model.modules() if isinstance(m, SpectralLayer)}
    assert kinds == {"off"}


@pytest.mark.parametrize("name", list(METHODS))
def test_one_forward_pass_exports(name: str) -> None:
    model = build_model(name, "mlp", 3, in_features=6, width=16).eval()
    z, y = torch.randn(60, 16), torch.arange(60) % 3
    model.head.fit_statistics([(z, y)], [(z, y)])
    x = torch.randn(9, 6)
    batch = torch.export.Dim("batch", min=2, max=512)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},)).module()
    more = torch.randn(33, 6)
    for score in model.head.named_scores.values():
        one, other = (scores.SCORES[score](each(more)) for each in (model, program))
        torch.testing.assert_close(one, other)


def test_parameter_counts_at_width_64_agree_with_the_paper_to_one_percent() -> None:
    """The paper's counts fit the common CIFAR network with projected shortcuts."""
    paper = {"softmax": 11.17, "gem-core": 11.24, "gem-mix": 11.38, "gem-fi": 11.38}
    for name, millions in paper.items():
        config = PAPER_PRESETS.get(name)
        method = "softmax" if config is None else "gem-paper"
        model = build_model(method, "resnet18", 10, config=config, width=64, shortcut="project")
        count = sum(parameter.numel() for parameter in model.parameters()) / 1e6
        assert count == pytest.approx(millions, rel=0.01), name
    five = replace(PAPER_PRESETS["gem-fi"], num_components=5)
    model = build_model("gem-paper", "resnet18", 10, config=five, width=64, shortcut="project")
    count = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert count == pytest.approx(11.52, rel=0.01)


def test_bad_input_is_named() -> None:
    model = build_model("gem-fi", "mlp", 3, in_features=6, width=16)
    with pytest.raises(InputError, match="at least one input"):
        model.predict(torch.zeros(0, 6))
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        model.predict(torch.zeros(2, 6), batch_size=0)
    for bad in (math.nan, math.inf):
        x = torch.zeros(5, 6)
        x[3, 2] = bad
        with pytest.raises(InputError, match="features of input 3 are not finite"):
            model.predict(x, batch_size=2)


def test_outputs_of_the_head_that_are_not_finite_are_refused_by_row() -> None:
    """PostNet's flows overflow where the features do not; huge weights do it to any head."""
    model = build_model("postnet", "mlp", 3, in_features=6)
    x = torch.ones(5, 6)
    x[3] = 1e20
    with pytest.raises(NoAnswerError, match="outputs of the head on input 3 are not finite") as got:
        model.predict(x, batch_size=2)
    assert got.value.row == 3
    assert copy.copy(got.value).row == 3  # as pickle does it
    assert len(model.predict(x[:3])) == 3
    huge = build_model("softmax", nn.Identity(), 3, num_features=6)
    with torch.no_grad():
        huge.head.linear.weight.fill_(3e38)
    with pytest.raises(NoAnswerError, match="outputs of the head on input 0"):
        huge.predict(x)


@pytest.mark.parametrize("field", ["log_p", "log_weight", "log_evidence", "energy"])
def test_nan_in_any_part_of_a_belief_is_refused(field: str) -> None:
    model = build_model("gem-fi", "mlp", 3, in_features=6, width=16).eval()
    whole = model.head.forward

    def broken(z: Tensor) -> Belief:
        belief = whole(z)
        value = getattr(belief, field).clone()
        value[1] = math.nan
        return replace(belief, **{field: value})

    model.head.forward = broken
    with pytest.raises(NoAnswerError, match="head on input 1 are not finite"):
        model.predict(torch.zeros(3, 6))


def test_impossible_classes_and_infinite_scores_are_answers() -> None:
    model = build_model("softmax", nn.Identity(), 3, num_features=3).eval()
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    belief = Belief(
        logits.log_softmax(1)[:, None], torch.zeros(1, 1), log_density=torch.tensor([-math.inf])
    )
    model.head.forward = lambda _: belief
    found = model.predict(torch.zeros(1, 3))
    assert found.probs().tolist() == [[pytest.approx(0.5), 0.0, pytest.approx(0.5)]]
    assert scores.density(found).tolist() == [math.inf]
    model.log_temperature = torch.tensor(-1e4)  # as a damaged file may have it
    with pytest.raises(NoAnswerError, match="head on input 0"):
        model.predict(torch.zeros(1, 3))


class TestStateDict:
    """A state holds the temperature and the normalisation, which a fresh model lacks."""

    def test_it_loads_into_a_fresh_model(self) -> None:
        normalisation = Normalisation((1.0, 2.0), (0.5, 3.0))
        model = build_model("gem-fi", "mlp", 2, in_features=2, normalisation=normalisation)
        model.set_temperature(0.7)
        fresh = build_model("gem-fi", "mlp", 2, in_features=2)
        x = torch.randn(4, 2)
        for assign in (False, True):
            fresh.load_state_dict(model.state_dict(), assign=assign)
            assert torch.equal(fresh.predict(x).log_probs(), model.predict(x).log_probs())
        assert fresh.state_dict().keys() == model.state_dict().keys()

    def test_as_a_part_of_a_module_too(self) -> None:
        whole, fresh = (
            nn.ModuleDict({"m": build_model("edl", "mlp", 2, in_features=2)}) for _ in "ab"
        )
        whole["m"].set_temperature(0.7)
        fresh.load_state_dict(whole.state_dict())
        assert float(fresh["m"].log_temperature) == pytest.approx(0.7)

    def test_a_state_without_them_leaves_them(self) -> None:
        model = build_model("edl", "mlp", 2, in_features=2)
        model.load_state_dict(model.state_dict())
        assert model.log_temperature is None
        calibrated = build_model("edl", "mlp", 2, in_features=2)
        calibrated.set_temperature(0.7)
        with pytest.raises(RuntimeError, match=r'Missing key.*"log_temperature"'):
            calibrated.load_state_dict(model.state_dict())


def test_bad_backbones_are_named() -> None:
    with pytest.raises(InputError, match="unknown backbone 'vgg'; known: convnet, mlp, resnet18"):
        build_model("softmax", "vgg", 3)
    with pytest.raises(InputError, match="Identity has no `num_features`"):
        build_model("softmax", nn.Identity(), 3)
    with pytest.raises(InputError, match=r"must return \(B, D\) features, got \(2, 3, 4\)"):
        build_model("softmax", nn.Identity(), 3, example=torch.zeros(2, 3, 4))
    with pytest.raises(InputError, match="options width are for a backbone given by name"):
        build_model("softmax", nn.Identity(), 3, num_features=4, width=3)
    wrong = build_model("softmax", nn.Identity(), 3, num_features=4)
    with pytest.raises(InputError, match=r"must return \(B, 4\) features, got \(2, 5\)"):
        wrong.predict(torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("backbone", "options", "shape", "message"),
    [
        ("convnet", {"size": 8}, (2, 3, 8, 8), r"images \(1, 8, 8\) in a batch, got shape"),
        ("convnet", {"size": 8}, (1, 8, 8), r"got shape \(1, 8, 8\); .* add the batch dimension"),
        ("resnet18", {"width": 2}, (2, 3, 28, 28), r"resnet18 was built for images \(3, 32, 32\)"),
        ("mlp", {"in_features": 6}, (2, 5), r"mlp was built for 6 numbers a sample"),
        ("mlp", {"in_features": 6}, (6,), r"add the batch dimension"),
    ],
)
def test_inputs_of_another_shape_are_refused(
    backbone: str, options: dict[str, int], shape: tuple[int, ...], message: str
) -> None:
    model = build_model("gem-fi", backbone, 3, **options)
    with pytest.raises(InputError, match=message):
        model.predict(torch.zeros(shape))


def test_predict_takes_splits_arrays_and_float64() -> None:
    task = two_moons(n=20)
    model = build_model("gem-fi", "mlp", 2, in_features=2, width=8)
    expected = model.predict(task.test.x).log_probs()
    for same in (task.test, task.test.x.numpy(), task.test.x.double()):
        assert torch.equal(model.predict(same).log_probs(), expected)
    with pytest.raises(InputError, match=r"numpy array, got list: write torch.tensor\(x\)"):
        model.predict([[0.0, 1.0]])
    with pytest.raises(InputError, match=r"floating point, or uint8 images, got torch.int64"):
        model.predict(torch.zeros(3, 2, dtype=torch.int64))


def test_a_trained_model_knows_the_shape_of_its_inputs() -> None:
    """Some modules take a single sample for a batch, and would answer nonsense."""
    task = two_moons(n=20)
    backbone = nn.Sequential(nn.Unflatten(-1, (2, 1)), nn.Linear(1, 4), nn.Flatten(-2))
    model = build_model("softmax", backbone, 2, num_features=8)
    fit(model, task.train, config=TrainConfig(epochs=1), progress=False)
    assert len(model.predict(task.test.x[:1])) == 1
    with pytest.raises(InputError, match=r"trained on inputs \(2,\) in a batch, .* x\[None\]"):
        model.predict(task.test.x[0])


def test_uint8_examples_find_the_width() -> None:
    images = torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8)
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    assert build_model("softmax", backbone, 2, example=images).head.num_features == 144


class TestScale:
    """Bytes are scaled to [0, 1] and other numbers are not, so a mix-up would go unseen."""

    @staticmethod
    def trained(dtype: torch.dtype) -> Model:
        model = build_model("softmax", "mlp", 2, in_features=4)
        model.inputs = InputSpec(sample_dtype=dtype_name(torch.empty(0, dtype=dtype)))
        return model

    def test_a_model_of_bytes_takes_bytes_and_numbers_in_the_unit_interval(self) -> None:
        model = self.trained(torch.uint8)
        x = torch.randint(256, (3, 4), dtype=torch.uint8)
        torch.testing.assert_close(
            model.predict(x).log_probs(), model.predict(x / 255).log_probs(), rtol=1e-5, atol=1e-6
        )
        with pytest.raises(InputError, match=r"trained on bytes.* reach 200: pass uint8, or"):
            model.predict(torch.full((1, 4), 200.0))

    def test_a_model_of_numbers_refuses_bytes(self) -> None:
        model = self.trained(torch.float32)
        model.predict(torch.full((1, 4), 200.0))
        with pytest.raises(InputError, match="bytes would be scaled"):
            model.predict(torch.zeros(1, 4, dtype=torch.uint8))
