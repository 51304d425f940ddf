"""Bundles: a model in one file, rebuilt to the bit, with its policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gemfi
from gemfi import METHODS, Belief, Model, Normalisation, Policy, Split, build_model, scores
from gemfi.bundle import Bundle, bundle_names, bundled, write_bundle
from gemfi.data import TASKS, Role, load_split
from gemfi.data.inputs import InputSpec
from gemfi.errors import CheckpointError, InputError, RoleError
from gemfi.runs import Run, bundle_of_run, make_spec, open_model, train_run
from gemfi.training import TrainConfig, fit

GOLDEN = Path(__file__).parent


def assert_same(one: Belief, other: Belief) -> None:
    """Every score equal to the bit."""
    names = scores.available(other)
    assert scores.available(one) == names
    for name in names:
        assert torch.equal(scores.SCORES[name](one), scores.SCORES[name](other)), name
    assert torch.equal(one.log_probs(), other.log_probs())


def rows(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two clouds of points in the plane, 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 2
    return torch.randn(count, 2, generator=generator) + 3.0 * y[:, None], y


def split(role: Role, count: int = 200, seed: int = 0) -> Split:
    x, y = rows(count, seed)
    return Split(x, y, role, "clouds", 2, ("left", "right"))


def trained(method: str = "gem-fi", backbone: str | nn.Module = "mlp", **options: object) -> Model:
    torch.manual_seed(0)
    if backbone == "mlp":
        options = {"in_features": 2, "width": 8, "depth": 1} | options
    model = build_model(method, backbone, 2, **options)  # type: ignore[arg-type]
    config = TrainConfig(epochs=1, batch_size=32)
    fit(model, split(Role.TRAIN), split(Role.VALIDATION, seed=1), config, progress=False)
    return model


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    task = TASKS["digits"]()
    spec = make_spec("digits", "gem-fi", task, options=["channels=4"], train={"epochs": 1})
    return train_run(spec, tmp_path_factory.mktemp("run"), task=task, progress=False)


# -- there and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_comes_back_to_the_bit(method: str, tmp_path: Path) -> None:
    model = trained(method)
    found = gemfi.load(gemfi.save(tmp_path / "model.safetensors", model))
    x, _ = rows(50, 7)
    assert found.info.method == method
    assert found.info.config == model.head.config
    assert not found.model.training
    torch.manual_seed(3)  # dropout draws its masks
    mine = found.predict(x)
    torch.manual_seed(3)
    assert_same(mine, model.predict(x))


@pytest.mark.parametrize(
    ("backbone", "options", "shape"),
    [
        ("convnet", {"size": 8, "channels": 4}, (1, 8, 8)),
        ("resnet18", {"width": 4}, (3, 32, 32)),
        ("vgg16", {"width": 4}, (3, 32, 32)),
        ("identity", {"in_features": 3}, (3,)),
        ("mlp", {"in_features": 3, "spectral": gemfi.spectral.Spectral("hard", 0.9)}, (3,)),
    ],
)
def test_every_backbone_comes_back(
    backbone: str, options: dict[str, object], shape: tuple[int, ...], tmp_path: Path
) -> None:
    model = build_model("softmax", backbone, 3, **options).eval()  # type: ignore[arg-type]
    model.inputs = InputSpec(sample_shape=shape)
    found = gemfi.load(gemfi.save(tmp_path / "model.safetensors", model))
    x = torch.rand(4, *shape)
    assert torch.equal(found.predict(x).log_probs(), model.predict(x).log_probs())
    assert found.info.backbone == model.blueprint
    assert found.sample_shape == shape
    again = gemfi.load(write_bundle(tmp_path / "again.safetensors", found))
    assert torch.equal(again.predict(x).log_probs(), model.predict(x).log_probs())


def test_normalisation_temperature_and_double_precision_come_back(tmp_path: Path) -> None:
    config = {"in_features": 2, "width": 8, "depth": 1}
    normalisation = Normalisation((1.5, 1.0), (2.0, 0.5))
    model = build_model("edl", "mlp", 2, normalisation=normalisation, **config).double().eval()
    model.set_temperature(0.3)
    found = gemfi.load(gemfi.save(tmp_path / "model.safetensors", model))
    x, _ = rows(50)
    assert found.info.dtype == "float64"
    assert_same(found.predict(x), model.predict(x))
    assert found.predict(x).log_temperature == pytest.approx(0.3)
    plain = build_model("edl", "mlp", 2, normalisation=normalisation, **config)
    plain.load_state_dict(
        {k: v.float() for k, v in model.state_dict().items() if k != "log_temperature"}
    )
    assert not torch.allclose(found.predict(x).log_probs(), plain.predict(x).log_probs(), atol=0.01)


def test_a_network_of_ones_own_needs_the_module(tmp_path: Path) -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 5), nn.Tanh())

    torch.manual_seed(1)
    model = trained("gem-fi", network(), num_features=5)
    path = gemfi.save(tmp_path / "model.safetensors", model)
    with pytest.raises(CheckpointError, match=r"a Sequential of somebody's own.*backbone=<a mod"):
        gemfi.load(path)
    mine = network()
    before = mine[0].weight.clone()  # type: ignore[index]
    found = gemfi.load(path, backbone=mine)
    x, _ = rows(20)
    assert_same(found.predict(x), model.predict(x))
    assert torch.equal(mine[0].weight, before)  # type: ignore[index]
    assert_same(gemfi.load(path, backbone=model).predict(x), model.predict(x))
    with pytest.raises(CheckpointError, match=r"backbone\.0\.weight has shape \(5, 2\), but"):
        gemfi.load(path, backbone=nn.Sequential(nn.Linear(3, 5)))


def test_an_ensemble_of_ones_own_networks(tmp_path: Path) -> None:
    model = trained("ensemble", nn.Linear(2, 4), num_features=4)
    found = gemfi.load(gemfi.save(tmp_path / "model.safetensors", model), backbone=nn.Linear(2, 4))
    x, _ = rows(20)
    assert_same(found.predict(x), model.predict(x))


def test_files_are_the_same_each_time(tmp_path: Path) -> None:
    model = trained()
    for name in ("a", "b"):
        gemfi.save(tmp_path / f"{name}.safetensors", model, provenance={"environment": None})
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


# -- with a policy -------------------------------------------------------------------------------


def test_a_policy_decides_as_before(tmp_path: Path) -> None:
    model, calibration = trained(), split(Role.CALIBRATION, 400, 2)
    policy = Policy.fit(model, calibration, "false_alarm=0.1,risk=0.3")
    path = tmp_path / "model.safetensors"
    found = gemfi.load(gemfi.save(path, model, calibration=calibration, policy=policy))
    x, _ = rows(300, 9)
    assert found.policy is not None
    assert found.policy.to_plain() == policy.to_plain()
    mine, theirs = found.decide(x), policy(model.predict(x))
    assert mine.counts() == theirs.counts()
    np.testing.assert_array_equal(mine.p_value, theirs.p_value)
    assert found.info.class_names == ("left", "right")


def test_conditional_policies_keep_their_groups(tmp_path: Path) -> None:
    model, calibration = trained(), split(Role.CALIBRATION, 400, 2)
    policy = Policy.fit(model, calibration, "false_alarm=0.1", conditional=True)
    found = gemfi.load(gemfi.save(tmp_path / "model.safetensors", model, policy=policy))
    assert found.policy is not None
    assert found.policy.to_plain() == policy.to_plain()
    assert found.calibration is None


def test_calibration_is_remembered_for_any_goal(tmp_path: Path) -> None:
    model, calibration = trained(), split(Role.CALIBRATION, 400, 2)
    path = tmp_path / "model.safetensors"
    found = gemfi.load(gemfi.save(path, model, calibration=calibration, policy="false_alarm=0.2"))
    expected = Policy.fit(model, calibration, "false_alarm=0.05,coverage=0.8")
    assert found.policy_for("false_alarm=0.05,coverage=0.8").to_plain() == expected.to_plain()
    assert found.policy is not None
    assert found.policy.level == 0.2
    x, _ = rows(30)
    assert (
        found.decide(x, "false_alarm=0.5").counts()["unfamiliar"]
        >= (found.decide(x).counts()["unfamiliar"])
    )
    belief = model.predict(calibration)
    for name, quantiles in found.references.items():
        values = scores.SCORES[name](belief).numpy()
        np.testing.assert_allclose(quantiles[[0, 100, 200]], np.quantile(values, [0, 0.5, 1]))
    assert {"energy", "unfamiliarity", "entropy"} <= found.references.keys()


def test_what_a_policy_needs_is_said(tmp_path: Path) -> None:
    model, path = trained(), tmp_path / "model.safetensors"
    with pytest.raises(InputError, match="a goal needs calibration data"):
        gemfi.save(path, model, policy="false_alarm=0.1")
    with pytest.raises(InputError, match="youden and costs need OOD-validation data, which a bun"):
        gemfi.save(path, model, calibration=split(Role.CALIBRATION), policy="youden")
    with pytest.raises(RoleError, match="calibration"):
        gemfi.save(path, model, calibration=split(Role.TEST))
    assert not path.exists()
    found = gemfi.load(gemfi.save(path, model))
    x, _ = rows(3)
    with pytest.raises(InputError, match="model has no policy: give a goal"):
        found.decide(x)
    with pytest.raises(InputError, match="was saved without calibration data"):
        found.policy_for("false_alarm=0.1")


# -- of runs, and those of the package -------------------------------------------------------------


def test_a_run_is_a_bundle(run: Run, tmp_path: Path) -> None:
    found = gemfi.load(
        write_bundle(tmp_path / "model.safetensors", bundle_of_run(run, "false_alarm=0.1"))
    )
    task = TASKS["digits"]()
    assert_same(found.predict(task.test), run.model.predict(task.test))
    assert found.info.provenance["spec"] == run.spec.to_plain()
    assert found.info.metrics["validation"]["accuracy"] > 0
    assert found.kind == "image"
    assert found.sample_shape == (1, 8, 8)
    assert found.policy is not None
    expected = Policy.fit(run.model, task.calibration, "false_alarm=0.1")
    assert found.policy.to_plain() == expected.to_plain()
    opened = open_model(run.folder)
    assert_same(opened.predict(task.test), run.model.predict(task.test))
    assert opened.policy is None


def test_the_package_has_a_model_of_mnist() -> None:
    assert bundle_names() == ("mnist-gem-fi",)
    found = bundled()
    assert found.info.class_names == tuple("0123456789")
    assert found.info.method == "gem-fi"
    assert found.policy is not None
    assert found.policy.goal.risk == 0.005
    assert found.calibration is not None
    assert len(found.calibration) == 5000
    assert gemfi.load("mnist-gem-fi").name == open_model("mnist-gem-fi").name == "mnist-gem-fi"


def test_the_model_of_mnist_knows_digits_from_letters(data_dir: Path) -> None:
    found = bundled()
    test = load_split("mnist", "validation", root=data_dir)
    letters = load_split("notmnist", "sample", root=data_dir)
    inside, outside = found.decide(test.x[:500]), found.decide(letters.x[:500])
    right = inside.label == test.labels[:500].numpy()
    assert right.mean() > 0.97
    assert inside.counts()["accept"] > 450
    assert right[inside.accepted].mean() > 0.99
    assert outside.counts()["unfamiliar"] > 485


def test_an_attached_network_is_given_attached(tmp_path: Path) -> None:
    def network() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    model = gemfi.attach(network(), "edl", num_classes=3)
    path = gemfi.save(tmp_path / "attached.safetensors", model)
    with pytest.raises(CheckpointError, match=r"backbone=attach\(<a network like it>, \.\.\.\)\)$"):
        gemfi.load(path)
    with pytest.raises(CheckpointError, match="not the network alone"):
        gemfi.load(path, backbone=network())
    with pytest.raises(CheckpointError, match="must be a module, got str"):
        gemfi.load(path, backbone="mlp")  # type: ignore[arg-type]
    found = gemfi.load(path, backbone=gemfi.attach(network(), "edl", num_classes=3))
    x = torch.randn(5, 4)
    assert torch.equal(found.predict(x).log_p, model.eval().predict(x).log_p)


def test_a_bundle_of_the_package_goes_to_a_device_as_any_other() -> None:
    found = gemfi.load("mnist-gem-fi", device="meta")
    assert {each.device.type for each in found.model.parameters()} == {"meta"}
    with pytest.raises(InputError, match="unknown device 'magic'"):
        gemfi.load("mnist-gem-fi", device="magic")


def test_kinds_of_inputs() -> None:
    found = bundled()
    for shape, kind in [
        ((3, 8, 8), "image"),
        ((4, 8, 8), "array"),
        ((5,), "row"),
        ((2, 5), "array"),
    ]:
        assert replace(found, info=replace(found.info, sample_shape=shape)).kind == kind
    unknown = replace(found, info=replace(found.info, sample_shape=None))
    with pytest.raises(InputError, match="was saved before it was trained"):
        _ = unknown.sample_shape


# -- the schema ------------------------------------------------------------------------------------


def test_a_file_of_every_schema_is_loadable() -> None:
    """It was written once, when its schema was new, and is never written again."""
    found = gemfi.load(GOLDEN / "golden-2.safetensors")
    expected = np.load(GOLDEN / "golden-2.npz")
    belief = found.predict(expected["x"])
    for name in ("entropy", "evidence", "energy", "unfamiliarity"):
        values = scores.SCORES[name](belief).numpy()
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=1e-5)
    assert found.info.class_names == ("upper moon", "lower moon")
    assert found.info.provenance["spec"]["task"] == "two-moons"
    decisions = found.decide(expected["x"])
    np.testing.assert_allclose(decisions.p_value, expected["p_value"], atol=0.02)


def test_a_bundle_can_be_written_again(tmp_path: Path) -> None:
    old = gemfi.load(GOLDEN / "golden-2.safetensors")
    new = gemfi.load(write_bundle(tmp_path / "new.safetensors", old))
    x = np.load(GOLDEN / "golden-2.npz")["x"]
    assert_same(new.predict(x), old.predict(x))
    assert replace(new.info) == replace(old.info)
    assert isinstance(new, Bundle)
