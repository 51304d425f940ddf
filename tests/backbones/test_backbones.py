"""Backbones: shapes, counts, a slow reference of the ResNet, the MLP's Lipschitz bound, export."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi import spectral
from gemfi.backbones import BACKBONES, MLP, VGG16, ConvNet, ResNet18, resnet18, vgg16
from gemfi.errors import InputError
from gemfi.spectral import OFF, Conv2d, Linear, Spectral, SpectralLayer
from support.spectral import spectral_norms
from support.theory import mlp_bound

SMALL: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "convnet": ({"size": 9, "channels": 3}, (1, 9, 9)),
    "convnet-hidden": ({"size": 9, "channels": 3, "hidden": (4, 6)}, (1, 9, 9)),
    "mlp": ({"in_features": 6, "width": 5, "depth": 2}, (2, 3)),
    "resnet18": ({"size": 9, "width": 2}, (3, 9, 9)),
    "whitenet": ({"size": 17, "widths": (3, 2, 4)}, (3, 17, 17)),
    "resnet18-project": ({"size": 8, "width": 2, "shortcut": "project"}, (3, 8, 8)),
    "vgg16": ({"size": 33, "width": 2}, (3, 33, 33)),
}


def small(name: str, **more: Any) -> tuple[nn.Module, tuple[int, ...]]:
    options, shape = SMALL[name]
    return BACKBONES[name.partition("-")[0]](**{**options, **more}), shape


def parameters(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def train(module: nn.Module, x: Tensor, steps: int = 12, rate: float = 0.5) -> None:
    """Push the features around with a large learning rate."""
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    target = torch.randint(2, (len(x),))
    module.train()
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(module(x)[:, :2], target).backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()


# ---------------------------------------------------------------- shapes and counts


@pytest.mark.parametrize(
    ("backbone", "shape", "features"),
    [
        (ConvNet, (1, 28, 28), 576),
        (lambda: ConvNet(3, 32, 8), (3, 32, 32), 128),
        (lambda: ConvNet(1, 8, 5), (1, 8, 8), 5),
        (lambda: ConvNet(2, 23, 4), (2, 23, 23), 16),
        (lambda: ConvNet(1, 8, 5, hidden=(7, 3)), (1, 8, 8), 3),
        (lambda: MLP(3), (3,), 128),
        (lambda: MLP(12, 7, 0), (3, 2, 2), 7),
        (lambda: MLP(1, 1, 3), (1,), 1),
        (lambda: ResNet18(width=2), (3, 32, 32), 16),
        (lambda: ResNet18(1, 28, 3), (1, 28, 28), 24),
        (lambda: ResNet18(1, 8, 1), (1, 8, 8), 8),
        (lambda: ResNet18(3, 13, 4, shortcut="project"), (3, 13, 13), 32),
        (lambda: VGG16(width=2), (3, 32, 32), 16),
        (lambda: VGG16(1, 64, 1), (1, 64, 64), 32),
        (lambda: VGG16(2, 47, 3), (2, 47, 47), 24),
    ],
)
def test_shapes(backbone, shape: tuple[int, ...], features: int) -> None:
    module = backbone()
    assert module.num_features == features
    for count in (2, 5):
        assert module(torch.randn(count, *shape)).shape == (count, features)
    assert module.eval()(torch.randn(1, *shape)).shape == (1, features)


def test_every_backbone_is_tested_here() -> None:
    elsewhere = {"identity"}  # it has nothing to learn: test_identity.py
    assert {name.partition("-")[0] for name in SMALL} | elsewhere == set(BACKBONES)


@pytest.mark.parametrize(("shortcut", "count"), [("pool", 10_995_008), ("project", 11_168_832)])
def test_resnet_has_the_size_of_the_papers_network(shortcut: Any, count: int) -> None:
    """With a linear layer for ten classes `project` is the 11.17 M of the paper's table."""
    module = resnet18(width=64, shortcut=shortcut, spectral=OFF)
    assert parameters(module) == count
    assert module.num_features == 512
    if shortcut == "project":
        assert round((count + 512 * 10 + 10) / 1e6, 2) == 11.17


def test_vgg_has_the_size_of_the_usual_network() -> None:
    """The convolutions of VGG-16 are 14,714,688 with their biases, in place of which are norms."""
    pairs = [
        (3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 256), (256, 512),
        (512, 512), (512, 512), (512, 512), (512, 512), (512, 512),
    ]  # fmt: skip
    outputs = sum(out for _, out in pairs)
    assert sum(9 * inputs * out for inputs, out in pairs) + outputs == 14_714_688
    module = vgg16(spectral=OFF)
    assert parameters(module) == 14_714_688 - outputs + 2 * outputs
    assert module.num_features == 512


def test_convnet_and_mlp_parameters() -> None:
    assert parameters(ConvNet()) == 25 * 64 * (1 + 64 + 64) + 3 * 64
    hidden = ConvNet(hidden=(64, 64, 64))
    assert parameters(hidden) == parameters(ConvNet()) + 576 * 64 + 2 * 64 * 64 + 3 * 64
    assert parameters(MLP(3, 10, 4)) == 3 * 10 + 10 + 4 * 110


@pytest.mark.parametrize("name", ["convnet", "resnet18", "resnet18-project", "vgg16"])
def test_convolutions_know_the_size_of_their_input(name: str) -> None:
    """The norm is that of the operator, so a wrong size would hold the wrong thing."""
    module, shape = small(name)
    seen: dict[nn.Module, tuple[int, ...]] = {}

    def look(layer: nn.Module, args: tuple[Tensor], out: Tensor) -> None:
        seen[layer] = (*args[0].shape[1:], *out.shape[1:])

    layers = [each for each in module.modules() if isinstance(each, Conv2d)]
    for layer in layers:
        layer.register_forward_hook(look)
    module.eval()(torch.randn(1, *shape))
    assert [seen[each] for each in layers] == [(*each.in_shape, *each.out_shape) for each in layers]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConvNet(size=7), "convnet: size must be an integer of at least 8, got 7"),
        (lambda: ConvNet(channels=0), "convnet: channels must .* at least 1, got 0"),
        (lambda: ConvNet(hidden=(4, 0)), "convnet: hidden must .* at least 1, got 0"),
        (lambda: VGG16(size=31), "vgg16: size must .* at least 32, got 31"),
        (lambda: VGG16(width=0), "vgg16: width must .* at least 1, got 0"),
        (lambda: VGG16(in_channels=0), "vgg16: in_channels must .* at least 1, got 0"),
        (lambda: VGG16()(torch.zeros(2, 1, 32, 32)), r"vgg16 was built for images \(3, 32, 32\)"),
        (lambda: ResNet18(size=7), "resnet18: size must .* at least 8, got 7"),
        (lambda: ResNet18(width=0), "resnet18: width must .* at least 1, got 0"),
        (lambda: ResNet18(in_channels=0), "resnet18: in_channels must .* at least 1, got 0"),
        (lambda: ResNet18(shortcut="none"), "shortcut must be one of pool, project, got 'none'"),  # type: ignore[arg-type]
        (lambda: MLP(0), "mlp: in_features must .* at least 1, got 0"),
        (lambda: MLP(2, 0), "mlp: width must .* at least 1, got 0"),
        (lambda: MLP(2, 2, -1), "mlp: depth must .* at least 0, got -1"),
    ],
)
def test_errors(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# ---------------------------------------------------------------- forward


def conv_by_hand(x: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    """Pixel by pixel, (C, H, H) to (O, H', H')."""
    kernel = weight.shape[-1]
    around = kernel // 2
    size = x.shape[1]
    out_size = (size + 2 * around - kernel) // stride + 1
    padded = np.zeros((x.shape[0], size + 2 * around, size + 2 * around))
    padded[:, around : around + size, around : around + size] = x
    out = np.zeros((weight.shape[0], out_size, out_size))
    for row, column in itertools.product(range(out_size), repeat=2):
        top, left = row * stride, column * stride
        patch = padded[:, top : top + kernel, left : left + kernel]
        out[:, row, column] = (weight * patch).sum(axis=(1, 2, 3))
    return out


def held_weight(layer: Conv2d) -> tuple[np.ndarray, float]:
    """W / max(1, σ/c) with σ from the SVD of the dense operator, and σ."""
    weight = layer.weight.detach()
    count = math.prod(layer.in_shape)
    basis = torch.eye(count, dtype=weight.dtype).view(count, *layer.in_shape)
    images = functional.conv2d(basis, weight, stride=layer.stride, padding=layer.padding)
    sigma = torch.linalg.svdvals(images.flatten(1))[0].item()
    return weight.numpy() / max(1.0, sigma / layer.spectral.bound), sigma


def settle(module: nn.Module) -> list[float]:
    """Store the exact norms, so that what is compared does not hang on power iteration."""
    layers = [each for each in module.modules() if isinstance(each, Conv2d)]
    for layer in layers:
        layer.sigma.fill_(held_weight(layer)[1])
    return [layer.sigma.item() for layer in layers]


def norm_by_hand(x: np.ndarray, norm: nn.BatchNorm2d) -> np.ndarray:
    mean, variance, scale, shift = (
        each.detach().numpy()[:, None, None]
        for each in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    return (x - mean) / np.sqrt(variance + norm.eps) * scale + shift


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.01 * x)


def pool_by_hand(x: np.ndarray) -> np.ndarray:
    """Mean of each 2 × 2 window; a window over the edge of an odd size has fewer pixels."""
    size = math.ceil(x.shape[1] / 2)
    out = np.zeros((x.shape[0], size, size))
    for row, column in itertools.product(range(size), repeat=2):
        out[:, row, column] = x[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].mean((1, 2))
    return out


def resnet_by_hand(module: ResNet18, image: np.ndarray) -> np.ndarray:
    x = leaky(norm_by_hand(conv_by_hand(image, held_weight(module.stem)[0], 1), module.norm))
    for index, block in enumerate(module.blocks):
        stride = 2 if index in (2, 4, 6) else 1
        out = conv_by_hand(x, held_weight(block.conv1)[0], stride)
        out = leaky(norm_by_hand(out, block.norm1))
        out = norm_by_hand(conv_by_hand(out, held_weight(block.conv2)[0], 1), block.norm2)
        if stride == 2:
            x = pool_by_hand(x)
        if block.project is not None:
            projected = conv_by_hand(x, held_weight(block.project[0])[0], 1)
            x = norm_by_hand(projected, block.project[1])
        else:
            x = np.concatenate([x, np.zeros((out.shape[0] - x.shape[0], *x.shape[1:]))])
        x = leaky(out + x)
    return x.mean(axis=(1, 2))


@pytest.mark.parametrize(("size", "shortcut"), [(8, "pool"), (11, "pool"), (9, "project")])
def test_resnet_is_its_slow_reference(size: int, shortcut: Any) -> None:
    module = ResNet18(2, size, 2, shortcut=shortcut, spectral=Spectral("soft", 1.2)).double()
    generator = torch.Generator().manual_seed(1)
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            for tensor, low in ((each.running_mean, -1), (each.running_var, 0.5), (each.bias, -1)):
                tensor.data.uniform_(low, 1.5, generator=generator)
            each.weight.data.uniform_(0.5, 1.5, generator=generator)
    norms = settle(module)
    assert sum(norm > 1.2 for norm in norms) > 5  # normalisation takes part in what follows
    images = torch.randn(2, 2, size, size, generator=generator, dtype=torch.float64)
    expected = np.stack([resnet_by_hand(module, image.numpy()) for image in images])
    found = module.eval()(images).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_convnet_is_its_slow_reference() -> None:
    module = ConvNet(2, 9, 3, spectral=Spectral("soft", 1.0)).double().eval()
    for bias in module.biases:
        bias.data.uniform_(-0.5, 0.5)
    assert max(settle(module)) > 1.0
    image = torch.randn(2, 9, 9, dtype=torch.float64)
    x = image.numpy()
    for conv, bias in zip(module.convs, module.biases, strict=True):
        x = conv_by_hand(x, held_weight(conv)[0], 1) + bias.detach().numpy()[:, None, None]
        x = np.maximum(x, 0)[:, : x.shape[1] // 2 * 2, : x.shape[1] // 2 * 2]
        half = x.shape[1] // 2
        x = x.reshape(-1, half, 2, half, 2).max(axis=(2, 4))
    found = module(image[None])[0].detach().numpy()
    np.testing.assert_allclose(found, x.ravel(), rtol=1e-9, atol=1e-12)


def test_hidden_layers_are_linear_with_relu() -> None:
    plain = ConvNet(2, 9, 3, spectral=Spectral("soft", 0.5)).double().eval()
    module = ConvNet(2, 9, 3, hidden=(5, 4), spectral=Spectral("soft", 0.5)).double().eval()
    module.load_state_dict(plain.state_dict(), strict=False)
    for layer in (each for each in module.modules() if isinstance(each, Linear)):
        layer.refresh(2000)
    image = torch.randn(1, 2, 9, 9, dtype=torch.float64)
    x = plain(image)[0].detach().numpy()
    layers = [each for each in module.hidden if isinstance(each, SpectralLayer)]
    assert len(layers) == 2
    for layer in layers:
        weight = layer.weight.detach().numpy()
        weight = weight / max(1.0, np.linalg.norm(weight, 2) / 0.5)
        x = np.maximum(weight @ x + layer.bias.detach().numpy(), 0)
    np.testing.assert_allclose(module(image)[0].detach().numpy(), x, rtol=1e-8, atol=1e-12)


def test_vgg_is_its_slow_reference() -> None:
    module = VGG16(1, 32, 1, spectral=Spectral("soft", 0.8)).double()
    generator = torch.Generator().manual_seed(1)
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            for tensor, low in ((each.running_mean, -1), (each.running_var, 0.5), (each.bias, 0)):
                tensor.data.uniform_(low, 1.5, generator=generator)
            each.weight.data.uniform_(0.5, 1.5, generator=generator)
    held = [each for each in module.modules() if isinstance(each, Conv2d)]
    for layer in held:  # sizes up to 32 are too many for an SVD: any norm will do, above the bound
        layer.sigma.fill_(1.6)
    image = torch.randn(1, 32, 32, generator=generator, dtype=torch.float64)
    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm2d)]
    x = image.numpy()
    for index, (conv, norm) in enumerate(zip(held, norms, strict=True)):
        x = conv_by_hand(x, conv.weight.detach().numpy() / 2, 1)
        x = np.maximum(norm_by_hand(x, norm), 0)
        if index in (1, 3, 6, 9, 12):
            half = x.shape[1] // 2
            x = x.reshape(-1, half, 2, half, 2).max(axis=(2, 4))
    assert x.shape == (8, 1, 1)
    assert x.max() > 0
    found = module.eval()(image[None])[0].detach().numpy()
    np.testing.assert_allclose(found, x.ravel(), rtol=1e-9, atol=1e-12)


def test_mlp_is_its_slow_reference() -> None:
    module = MLP(4, 3, 2, spectral=Spectral("soft", 0.4)).double().eval()
    spectral.refresh(module, 2000)
    rows = torch.randn(5, 2, 2, dtype=torch.float64)
    for row, found in zip(rows, module(rows), strict=True):
        z = np.zeros(0)
        for index, layer in enumerate((module.first, *module.blocks)):
            weight = layer.weight.detach().numpy()
            weight = weight / max(1.0, np.linalg.norm(weight, 2) / 0.4)
            bias = layer.bias.detach().numpy()
            z = weight @ row.numpy().ravel() + bias if index == 0 else z + leaky(weight @ z + bias)
        np.testing.assert_allclose(found.detach().numpy(), z, rtol=1e-8)


# ---------------------------------------------------------------- behaviour


@pytest.mark.parametrize("name", SMALL)
def test_dropout_acts_in_training_only(name: str) -> None:
    module, shape = small(name, dropout=0.5)
    x = torch.randn(16, *shape)
    for each in module.modules():  # so that two passes could differ by dropout alone
        if isinstance(each, (nn.BatchNorm2d, SpectralLayer)):
            each.eval()
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))
    plain, _ = small(name, dropout=0.0)
    plain.load_state_dict(module.state_dict())
    assert torch.equal(plain.eval()(x), module(x))


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_learns(name: str) -> None:
    module, shape = small(name)
    module(torch.randn(8, *shape)).square().sum().backward()
    for parameter_name, parameter in module.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("name", SMALL)
def test_norms_hold_after_training_and_loading_needs_no_forward(name: str) -> None:
    module, shape = small(name, spectral=Spectral("soft", 1.0))
    x = torch.randn(16, *shape)
    train(module, x)
    spectral.refresh(module)
    norms = torch.cat([*spectral_norms(module).values()])
    # on 33×33 pixels the largest singular values lie closer together than on 9×9
    assert norms.max() <= (1.02 if name == "vgg16" else 1.01)
    other, _ = small(name, spectral=Spectral("soft", 1.0))
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.eval()(x), module.eval()(x))


@pytest.mark.parametrize(
    "held", [OFF, Spectral("soft", 3.0), Spectral("soft", 0.9), Spectral("hard")]
)
@pytest.mark.parametrize("steps", [0, 30])
def test_no_pair_violates_the_lipschitz_bound_of_the_mlp(held: Spectral, steps: int) -> None:
    module = MLP(3, 16, 3, spectral=held)
    train(module, torch.randn(64, 3), steps, rate=1.0)
    if steps:
        spectral.refresh(module)
    module.double().eval()
    bound = mlp_bound(module)
    generator = torch.Generator().manual_seed(2)
    x = 3 * torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    step = torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    step *= torch.logspace(-6, 1, 4000, dtype=torch.float64)[:, None]
    with torch.no_grad():
        ratio = (module(x + step) - module(x)).norm(dim=1) / step.norm(dim=1)
    assert ratio.max() <= bound
    expected = np.prod(
        [
            np.linalg.norm(layer.normalised_weight().detach().numpy(), 2) + bool(index)
            for index, layer in enumerate((module.first, *module.blocks))
        ]
    )
    assert bound == pytest.approx(expected, rel=1e-3)
    if held.kind != "off" and steps:
        assert bound <= held.bound * (1 + held.bound) ** 3 * 1.05


def test_the_lipschitz_bound_is_reached_by_a_linear_mlp() -> None:
    module = MLP(2, 2, 1, spectral=OFF)
    with torch.no_grad():
        for layer, scale in ((module.first, 2.0), (module.blocks[0], 3.0)):
            layer.weight.copy_(scale * torch.eye(2))
            layer.bias.fill_(1.0)
        x = torch.tensor([[1.0, 1.0], [2.0, 1.0]])  # where the activation is the identity
        ratio = (module(x)[1] - module(x)[0]).norm()
    assert mlp_bound(module) == pytest.approx(ratio.item())
    assert ratio.item() == pytest.approx(8.0)


@pytest.mark.parametrize("name", SMALL)
def test_survives_export_with_any_batch(name: str) -> None:
    module, shape = small(name)
    train(module, torch.randn(8, *shape), steps=2)
    module.eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(module, (torch.randn(4, *shape),), dynamic_shapes=({0: batch},))
    for count in (1, 7):
        x = torch.randn(count, *shape)
        torch.testing.assert_close(program.module()(x), module(x))
