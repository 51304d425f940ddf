"""Spectral layers against dense matrices, singular value decompositions and autograd."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gemfi.backbones import MLP
from gemfi.errors import InputError
from gemfi.spectral import OFF, Conv2d, Linear, Spectral, SpectralLayer, refresh
from support.spectral import spectral_norms

CONVS = [
    (kernel, stride, size) for kernel in (1, 3, 5) for stride in (1, 2) for size in (4, 5)
]  # odd and even sizes: with stride 2 the transpose must restore what the stride dropped


def dense(weight: Tensor, layer: Conv2d) -> Tensor:
    """The matrix (outputs, inputs) of a convolution, from its Jacobian."""

    def convolve(x: Tensor) -> Tensor:
        image = x.view(1, *layer.in_shape)
        out = functional.conv2d(image, weight, stride=layer.stride, padding=weight.shape[-1] // 2)
        return out.flatten()

    zero = weight.new_zeros(math.prod(layer.in_shape))
    return torch.autograd.functional.jacobian(convolve, zero, create_graph=weight.requires_grad)


def matrices(layer: SpectralLayer, weight: Tensor) -> Tensor:
    """The operators of a layer for a given weight, (N, outputs, inputs)."""
    matrix = dense(weight, layer) if isinstance(layer, Conv2d) else weight
    return matrix if matrix.ndim == 3 else matrix[None]


def norms_of(layer: SpectralLayer, weight: Tensor) -> Tensor:
    """Largest singular value of each operator by SVD, in float64."""
    return torch.linalg.svdvals(matrices(layer, weight.detach().double()))[:, 0]


def used(layer: SpectralLayer) -> Tensor:
    """The weight that evaluation uses, found by probing `forward`."""
    layer = copy.deepcopy(layer).eval()
    with torch.no_grad():
        if isinstance(layer, Conv2d):
            return layer.normalised_weight()
        layer.bias.zero_()
        return layer(torch.eye(layer.inputs)).movedim(0, -1)


def layers(spectral: Spectral) -> dict[str, SpectralLayer]:
    torch.manual_seed(3)
    return {
        "linear": Linear(7, 5, spectral=spectral),
        "stack": Linear(6, 8, spectral=spectral, stack=3),
        "conv": Conv2d(3, 4, 3, size=5, spectral=spectral),
        "strided": Conv2d(2, 5, 3, size=6, stride=2, spectral=spectral),
    }


NAMES = ["linear", "stack", "conv", "strided"]


def example(layer: SpectralLayer, count: int = 4) -> Tensor:
    shape = layer.in_shape if isinstance(layer, Conv2d) else (layer.inputs,)
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(5)).to(layer.weight)


def rescale(layer: SpectralLayer, norm: float) -> None:
    """Give every operator of the layer this norm, by SVD."""
    with torch.no_grad():
        found = norms_of(layer, layer.weight).to(layer.weight.dtype)
        shape = (-1, *[1] * (layer.weight.ndim - 1)) if len(found) > 1 else (-1,)
        layer.weight *= norm / found.view(shape)


# ---------------------------------------------------------------- norms


class TestNorms:
    @pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 3), (3, 7), (40, 40)])
    def test_linear(self, inputs: int, outputs: int) -> None:
        layer = Linear(inputs, outputs)
        expected = norms_of(layer, layer.weight).float()
        torch.testing.assert_close(layer.norms(), expected, rtol=1e-4, atol=0)

    def test_stack_is_as_many_separate_layers(self) -> None:
        stack = Linear(9, 6, stack=4, spectral=Spectral("soft", 0.5))
        expected = norms_of(stack, stack.weight).float()
        assert expected.unique().numel() == 4
        stack.refresh(300)
        torch.testing.assert_close(stack.sigma, expected, rtol=1e-4, atol=0)
        for index in range(4):
            single = Linear(9, 6, spectral=Spectral("soft", 0.5))
            with torch.no_grad():
                single.weight.copy_(stack.weight[index])
                single.left.copy_(stack.left[index])
                single.right.copy_(stack.right[index])
            single.refresh(3)
            torch.testing.assert_close(single.sigma[0], stack.sigma[index], rtol=1e-5, atol=0)
            torch.testing.assert_close(used(single), used(stack)[index], rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize(("kernel", "stride", "size"), CONVS)
    def test_convolution_is_its_dense_matrix(self, kernel: int, stride: int, size: int) -> None:
        layer = Conv2d(2, 3, kernel, size=size, stride=stride, spectral=Spectral("hard", 2.0))
        layer.double()
        matrix = dense(layer.weight.detach(), layer)
        right, left = torch.randn(2, matrix.shape[1]).double(), torch.randn(2, matrix.shape[0])
        ahead = layer.apply_operator(right.view(2, *layer.in_shape), layer.weight)
        torch.testing.assert_close(ahead.flatten(1), right @ matrix.T)
        back = layer.apply_transpose(left.double().view(2, *layer.out_shape), layer.weight)
        assert back.shape[1:] == layer.in_shape
        torch.testing.assert_close(back.flatten(1), left.double() @ matrix)
        layer.refresh(500)
        expected = norms_of(layer, layer.weight)
        torch.testing.assert_close(layer.sigma, expected, rtol=1e-3, atol=0)
        torch.testing.assert_close(
            layer.norms(500), torch.tensor([2.0]).double(), rtol=2e-3, atol=0
        )

    def test_known_value(self) -> None:
        """All ones, kernel 3, one channel: an interior pixel sums nine, and the norm nears nine."""
        layer = Conv2d(1, 1, 3, size=16)
        with torch.no_grad():
            layer.weight.fill_(1.0)
        # separable: (1 + 2 cos(π/17))² for the path matrix of 16 nodes
        expected = (1 + 2 * math.cos(math.pi / 17)) ** 2
        assert layer.norms().item() == pytest.approx(expected, rel=1e-4)

    @pytest.mark.parametrize("name", NAMES)
    def test_in_float64_and_without_any_random_draw(self, name: str) -> None:
        layer = layers(Spectral("soft", 0.5))[name].double()
        layer.refresh(300)
        state = torch.get_rng_state()
        found = layer.norms(400)
        assert torch.equal(torch.get_rng_state(), state)
        assert found.dtype == torch.float64
        expected = norms_of(layer, layer.weight).clamp_max(0.5)
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)

    def test_names(self) -> None:
        model = nn.Sequential(MLP(3, 4, 2, spectral=OFF), nn.Linear(4, 4), Linear(4, 2, stack=5))
        found = spectral_norms(model)
        assert [*found] == ["0.first", "0.blocks.0", "0.blocks.1", "2"]
        assert [len(each) for each in found.values()] == [1, 1, 1, 5]
        expected = torch.linalg.svdvals(model[2].weight.detach())[:, 0]
        torch.testing.assert_close(found["2"], expected, rtol=1e-3, atol=0)

    def test_a_zero_weight_has_norm_zero(self) -> None:
        layer = Linear(3, 3, spectral=Spectral("soft", 1.0))
        with torch.no_grad():
            layer.weight.zero_()
        layer.refresh(5)
        assert layer.norms().item() == 0
        torch.testing.assert_close(layer(torch.randn(2, 3)), layer.bias.expand(2, 3))


# ---------------------------------------------------------------- soft, hard, off


class TestBound:
    @pytest.mark.parametrize("name", NAMES)
    def test_soft_leaves_small_norms_alone(self, name: str) -> None:
        layer = layers(Spectral("soft", 2.0))[name]
        rescale(layer, 1.99)
        refresh(layer)
        assert torch.equal(layer.eval().normalised_weight(), layer.weight)
        assert torch.equal(layer.train().normalised_weight(), layer.weight)

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize(("kind", "norm"), [("soft", 5.0), ("hard", 5.0), ("hard", 0.3)])
    def test_brings_the_norm_to_the_bound(self, name: str, kind: str, norm: float) -> None:
        layer = layers(Spectral(kind, 0.7))[name]  # type: ignore[arg-type]
        rescale(layer, norm)
        refresh(layer)
        found = norms_of(layer, used(layer))
        torch.testing.assert_close(found, torch.full_like(found, 0.7), rtol=0.01, atol=0)
        layer.refresh(1000)
        found = norms_of(layer, used(layer))
        torch.testing.assert_close(found, torch.full_like(found, 0.7), rtol=1e-4, atol=0)
        # only the length of the weight has changed
        ratio = used(layer) / layer.weight.detach()
        assert ratio.flatten(1).std(dim=1).max() < 1e-6

    @pytest.mark.parametrize("training", [True, False])
    @pytest.mark.parametrize("name", NAMES)
    def test_forward_uses_the_normalised_weight(self, name: str, training: bool) -> None:
        layer = layers(Spectral("soft", 0.7))[name]
        rescale(layer, 4.0)
        layer.refresh(1000)
        x = example(layer)
        out = layer.train(training)(x)
        if not isinstance(layer, Conv2d):
            out = out - layer.bias
        matrix = matrices(layer, layer.weight.detach()) * (0.7 / 4.0)
        expected = torch.einsum("noi,bi->bno", matrix, x.flatten(1))
        torch.testing.assert_close(out.reshape(expected.shape), expected, rtol=1e-3, atol=1e-4)

    def test_each_layer_of_a_stack_has_its_own_factor(self) -> None:
        layer = Linear(6, 8, spectral=Spectral("soft", 1.0), stack=3)
        rescale(layer, 1.0)
        with torch.no_grad():
            layer.weight *= torch.tensor([0.5, 2.0, 8.0])[:, None, None]
        layer.refresh(200)
        assert torch.equal(used(layer)[0], layer.weight[0])
        expected = torch.tensor([0.5, 1.0, 1.0]).double()
        torch.testing.assert_close(norms_of(layer, used(layer)), expected, rtol=1e-3, atol=0)

    @pytest.mark.parametrize("kind", ["soft", "hard"])
    def test_holds_after_violent_training(self, kind: str) -> None:
        spectral = Spectral(kind, 1.5)  # type: ignore[arg-type]
        first = Conv2d(2, 6, 3, size=6, stride=2, spectral=spectral)
        second = Linear(54, 8, spectral=spectral)
        third = Linear(8, 4, stack=3, spectral=spectral)
        model = nn.Sequential(first, nn.LeakyReLU(), nn.Flatten(), second, nn.LeakyReLU(), third)
        optimiser = torch.optim.SGD(model.parameters(), lr=2.0)
        x, y = torch.randn(32, 2, 6, 6), torch.randint(4, (32,))
        before = {
            name: norms_of(m, m.weight) for name, m in model.named_children() if name in "035"
        }
        for _ in range(15):
            optimiser.zero_grad()
            functional.cross_entropy(model(x).mean(dim=1), y).backward()
            optimiser.step()
        refresh(model)
        for name, old in before.items():
            layer = model.get_submodule(name)
            raw, now = norms_of(layer, layer.weight), norms_of(layer, used(layer))
            assert (raw / old - 1).abs().max() > 0.05  # the weights did move
            assert now.max() <= 1.5 * 1.01
            if kind == "hard":
                assert now.min() >= 1.5 * 0.999

    def test_off_is_a_plain_layer_without_state(self) -> None:
        for layer in layers(OFF).values():
            assert not [*layer.buffers()]
            assert layer.normalised_weight() is layer.weight
            refresh(layer)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Spectral("firm"), "soft, hard, off, got 'firm'"),  # type: ignore[arg-type]
            (lambda: Spectral("soft", 0.0), "must be above 0, got 0"),
            (lambda: Spectral("soft", math.nan), "must be above 0, got nan"),
            (lambda: Conv2d(1, 1, 3, size=0), "size must be an integer of at least 1, got 0"),
        ],
    )
    def test_errors(self, make, message: str) -> None:
        with pytest.raises(InputError, match=message):
            make()


# ---------------------------------------------------------------- state


class TestState:
    @pytest.mark.parametrize("name", NAMES)
    def test_training_forward_iterates_once_and_evaluation_never(self, name: str) -> None:
        layer = layers(Spectral("soft", 0.5))[name]
        with torch.no_grad():
            layer.weight.copy_(torch.randn_like(layer.weight))  # the vectors are out of date
        before = {key: value.clone() for key, value in layer.named_buffers()}
        layer.eval()(example(layer))
        for key, value in layer.named_buffers():
            assert torch.equal(value, before[key])
        layer.train()(example(layer))
        matrix = matrices(layer, layer.weight.detach())
        left = before["left"].flatten(1)
        right = functional.normalize(torch.einsum("noi,no->ni", matrix, left))
        left = torch.einsum("noi,ni->no", matrix, right)
        torch.testing.assert_close(layer.right.flatten(1), right)
        torch.testing.assert_close(layer.left.flatten(1), functional.normalize(left))
        torch.testing.assert_close(layer.sigma, left.norm(dim=1))
        assert not layer.sigma.requires_grad

    @pytest.mark.parametrize("kind", ["soft", "hard"])
    @pytest.mark.parametrize("name", NAMES)
    def test_loading_needs_no_forward(self, name: str, kind: str) -> None:
        spectral = Spectral(kind, 0.4)  # type: ignore[arg-type]
        trained, other = layers(spectral)[name], layers(spectral)[name]
        x = example(trained)
        with torch.no_grad():
            trained.weight.mul_(3).add_(torch.randn_like(trained.weight))
        for _ in range(3):
            trained(x)
        other.load_state_dict(trained.state_dict())
        assert torch.equal(other.eval()(x), trained.eval()(x))
        assert torch.equal(other.train()(x), trained.train()(x))  # and training goes on alike
        assert torch.equal(other.sigma, trained.sigma)

    @pytest.mark.parametrize("name", NAMES)
    def test_deepcopy_after_a_step_is_independent(self, name: str) -> None:
        layer = layers(Spectral("soft", 0.5))[name]
        layer(example(layer)).sum().backward()
        twin = copy.deepcopy(layer).eval()
        expected = layer.eval()(example(layer))
        assert torch.equal(twin(example(layer)), expected)
        with torch.no_grad():
            twin.weight.mul_(2)
        refresh(twin)
        assert torch.equal(layer(example(layer)), expected)

    @pytest.mark.parametrize("name", NAMES)
    def test_survives_export(self, name: str) -> None:
        layer = layers(Spectral("soft", 0.5))[name].eval()
        batch = torch.export.Dim("batch", min=1, max=64)
        program = torch.export.export(layer, (example(layer),), dynamic_shapes=({0: batch},))
        x = example(layer, 7)
        torch.testing.assert_close(program.module()(x), layer(x))


# ---------------------------------------------------------------- gradients


class TestGradient:
    """The gradient runs through σ, as if it came from an exact decomposition."""

    @pytest.mark.parametrize(("kind", "norm"), [("hard", 3.0), ("hard", 0.2), ("soft", 3.0)])
    @pytest.mark.parametrize("name", NAMES)
    def test_is_that_of_the_exact_norm(self, name: str, kind: str, norm: float) -> None:
        layer = layers(Spectral(kind, 0.8))[name].double()  # type: ignore[arg-type]
        rescale(layer, norm)
        layer.refresh(3000)
        direction = torch.randn_like(layer.weight)
        (direction * layer.normalised_weight()).sum().backward()

        weight = layer.weight.detach().clone().requires_grad_()
        sigma = torch.linalg.svdvals(matrices(layer, weight))[:, 0]
        shape = (-1, *[1] * (weight.ndim - 1)) if len(sigma) > 1 else (-1,)
        (direction * weight * (0.8 / sigma).view(shape)).sum().backward()
        torch.testing.assert_close(layer.weight.grad, weight.grad, rtol=1e-5, atol=1e-7)
        # not that of a constant factor, which leaves the component along the singular vectors
        assert (layer.weight.grad - direction * (0.8 / norm)).abs().max() > 1e-3

    @pytest.mark.parametrize("name", NAMES)
    def test_below_the_soft_bound_is_the_plain_one(self, name: str) -> None:
        layer = layers(Spectral("soft", 2.0))[name]
        rescale(layer, 1.0)
        layer.refresh(50)
        direction = torch.randn_like(layer.weight)
        (direction * layer.normalised_weight()).sum().backward()
        assert torch.equal(layer.weight.grad, direction)

    def test_two_forwards_before_one_backward(self) -> None:
        layer = Linear(4, 4, spectral=Spectral("hard", 1.0))
        (layer(torch.randn(3, 4)).sum() + layer(torch.randn(3, 4)).sum()).backward()
        assert torch.isfinite(layer.weight.grad).all()
        assert layer.weight.grad.abs().max() > 0


# ---------------------------------------------------------------- linear stacks


class TestLinear:
    @pytest.mark.parametrize("spectral", [OFF, Spectral("soft", 0.3), Spectral("hard", 1.0)])
    def test_without_a_stack_is_a_linear_layer(self, spectral: Spectral) -> None:
        layer = Linear(5, 3, spectral=spectral).eval()
        x = torch.randn(6, 5)
        weight = layer.normalised_weight().detach().numpy()
        expected = [weight @ row + layer.bias.detach().numpy() for row in x.numpy()]
        torch.testing.assert_close(layer(x), torch.from_numpy(np.stack(expected)))

    @pytest.mark.parametrize("stack", [1, 3])
    @pytest.mark.parametrize("shared", [True, False])
    @pytest.mark.parametrize("spectral", [OFF, Spectral("soft", 0.3)])
    def test_stack_is_a_loop(self, spectral: Spectral, shared: bool, stack: int) -> None:
        layer = Linear(5, 4, spectral=spectral, stack=stack).eval()
        x = torch.randn(6, 5) if shared else torch.randn(6, stack, 5)
        weight = layer.normalised_weight()
        out = layer(x)
        assert out.shape == (6, stack, 4)
        for index in range(stack):
            plain = nn.Linear(5, 4)
            with torch.no_grad():
                plain.weight.copy_(weight[index])
                plain.bias.copy_(layer.bias[index])
            expected = plain(x if shared else x[:, index])
            torch.testing.assert_close(out[:, index], expected)

    def test_heads_of_a_stack_start_apart(self) -> None:
        layer = Linear(5, 4, stack=3)
        assert not torch.equal(layer.weight[0], layer.weight[1])
        assert layer.weight.abs().max() <= 1 / math.sqrt(5)

    def test_gradients_of_a_stack_do_not_mix(self) -> None:
        layer = Linear(5, 4, spectral=Spectral("hard", 1.0), stack=3)
        layer(torch.randn(6, 5))[:, 1].square().sum().backward()
        assert layer.weight.grad[1].abs().max() > 0
        assert layer.weight.grad[[0, 2]].abs().max() == 0
