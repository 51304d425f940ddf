"""Belief: construction, what it says, moving it about, and the pytree."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from gemfi.belief import Belief
from gemfi.errors import InputError

B, K, C, D = 5, 3, 4, 6
FIELDS = [each.name for each in dataclasses.fields(Belief)]
SCALARS = ("log_temperature", "log_prior")


def full_fields(batch=B, heads=K, classes=C, seed=0):
    """Every field of a belief, `extra` included."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    return {
        "log_p": torch.log_softmax(2 * normal(batch, heads, classes), -1),
        "log_weight": torch.log_softmax(normal(batch, heads), -1),
        "log_evidence": normal(batch, heads),
        "log_gate": torch.log(0.1 + 0.8 * torch.sigmoid(normal(batch, classes))),
        "log_rho": -normal(batch).square(),
        "log_density": normal(batch),
        "log_familiarity": -normal(batch).square(),
        "energy": normal(batch),
        "logits": normal(batch, heads, classes),
        "log_temperature": torch.tensor(0.3),
        "log_prior": torch.tensor(-0.2),
        "features": normal(batch, D),
        "extra": {"odin": normal(batch), "layers": normal(batch, 2, 3)},
    }


def full_belief(**kwargs):
    return Belief(**full_fields(**kwargs))


def assert_same(found, expected, close=False):
    """Equal in every field, None and `extra` included."""
    compare = torch.testing.assert_close if close else torch.equal
    for name in FIELDS:
        ours, theirs = getattr(found, name), getattr(expected, name)
        if name == "extra":
            assert ours.keys() == theirs.keys()
            pairs = [(ours[key], theirs[key]) for key in ours]
        elif theirs is None:
            assert ours is None, name
            continue
        else:
            pairs = [(ours, theirs)]
        for one, other in pairs:
            assert one.dtype == other.dtype, name
            assert compare(one, other) in {None, True}, name


# ---------------------------------------------------------------- construction


def test_a_belief_keeps_what_it_is_given():
    given = full_fields()
    belief = Belief(**given)
    for name in FIELDS:
        assert getattr(belief, name) is given[name]
    small = Belief(given["log_p"], given["log_weight"])
    assert all(getattr(small, name) is None for name in FIELDS[2:-1])
    assert small.extra == {}
    assert len(small) == B


@pytest.mark.parametrize("shape", [(C,), (B, C), (B, 1, K, C)])
def test_log_p_needs_three_dimensions(shape):
    with pytest.raises(InputError, match=r"log_p must be \(batch, components, classes\), got \("):
        Belief(torch.zeros(shape), torch.zeros(B, K))


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("log_weight", (B,), "(5, 3)"),
        ("log_weight", (B, K + 1), "(5, 3)"),
        ("log_weight", (1, K), "(5, 3)"),
        ("log_evidence", (B, C), "(5, 3)"),
        ("log_evidence", (B, K, 1), "(5, 3)"),
        ("log_gate", (B, K), "(5, 4)"),
        ("log_gate", (C,), "(5, 4)"),
        ("log_rho", (B, 1), "(5)"),
        ("log_rho", (), "(5)"),
        ("log_density", (B + 1,), "(5)"),
        ("energy", (B, 1), "(5)"),
        ("logits", (B, C), "(5, 3, 4)"),
        ("logits", (B, C, K), "(5, 3, 4)"),
        ("log_temperature", (1,), "()"),
        ("log_prior", (C,), "()"),
        ("features", (B + 1, D), "(5, ...)"),
        ("features", (), "(5, ...)"),
    ],
)
def test_a_wrong_shape_is_named_with_what_was_expected(name, shape, wanted):
    with pytest.raises(InputError) as error:
        Belief(**(full_fields() | {name: torch.zeros(shape)}))
    assert str(error.value) == f"Belief.{name} must have shape {wanted}, got {shape}"


def test_extra_is_checked_too():
    with pytest.raises(
        InputError, match=r"extra\['knn'\] must have shape \(5, ...\), got \(4, 2\)"
    ):
        Belief(**(full_fields() | {"extra": {"knn": torch.zeros(4, 2)}}))


def test_a_belief_is_frozen():
    belief = full_belief()
    with pytest.raises(dataclasses.FrozenInstanceError):
        belief.log_p = torch.zeros(B, K, C)
    with pytest.raises(dataclasses.FrozenInstanceError):
        del belief.energy


# ---------------------------------------------------------------- what it says


def naive_probs(belief):
    """Mix, gate, renormalise, temper, in float64 and without logarithms."""
    p = (belief.log_weight.double().exp().unsqueeze(-1) * belief.log_p.double().exp()).sum(1)
    if belief.log_gate is not None:
        p = p * belief.log_gate.double().exp()
        p = p / p.sum(-1, keepdim=True)
    if belief.log_temperature is not None:
        p = p ** (1 / math.exp(belief.log_temperature.item()))
        p = p / p.sum(-1, keepdim=True)
    return p


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("temperature", [None, 0.5, 3.0])
def test_probs_mix_gate_and_temper(heads, gate, temperature):
    given = full_fields(heads=heads)
    given["log_gate"] = given["log_gate"] if gate else None
    given["log_temperature"] = None if temperature is None else torch.tensor(temperature).log()
    belief = Belief(**given).to(torch.float64)
    expected = naive_probs(belief)
    assert torch.allclose(belief.probs(), expected, rtol=0, atol=1e-14)
    assert torch.allclose(belief.log_probs(), expected.log(), rtol=0, atol=1e-13)
    assert torch.equal(belief.labels(), expected.argmax(-1))
    single = belief.to(torch.float32).probs()
    assert torch.allclose(single.double(), expected, atol=1e-6)


def test_temperature_flattens_and_keeps_the_label():
    hot = Belief(**(full_fields() | {"log_temperature": torch.tensor(2.0)}))
    cold = Belief(**(full_fields() | {"log_temperature": torch.tensor(-2.0)}))
    assert (hot.probs().amax(-1) < cold.probs().amax(-1)).all()
    assert torch.equal(hot.labels(), cold.labels())


def test_log_probs_survive_where_probabilities_underflow():
    log_p = torch.tensor([[[0.0, -300.0, -600.0]]])
    belief = Belief(log_p, torch.zeros(1, 1), log_gate=torch.tensor([[0.1, 0.9, 0.5]]).log())
    expected = [0.0, -300 + math.log(9), -600 + math.log(5)]
    assert belief.log_probs()[0].tolist() == pytest.approx(expected, abs=1e-3)


def test_gated_moves_the_gate_into_the_components_and_changes_no_prediction():
    belief = full_belief().to(torch.float64)
    gated = belief.gated()
    assert gated.log_gate is None
    assert torch.allclose(gated.log_probs(), belief.log_probs(), rtol=0, atol=1e-13)
    assert torch.equal(gated.log_evidence, belief.log_evidence)
    assert (gated.log_p - belief.log_p).abs().max() > 0.1
    assert (gated.log_weight - belief.log_weight).abs().max() > 0.01
    assert gated.gated() is gated


def test_total_evidence_is_the_weighted_sum_without_rho():
    belief = full_belief().to(torch.float64)
    expected = (belief.log_weight.exp() * belief.log_evidence.exp()).sum(-1).log()
    assert torch.allclose(belief.log_total_evidence(), expected, atol=1e-14)


@pytest.mark.parametrize("name", FIELDS[2:-1])
def test_need_names_the_field_that_is_missing(name):
    belief = full_belief()
    assert belief.need(name) is getattr(belief, name)
    with pytest.raises(InputError, match=f"has no `{name}`"):
        dataclasses.replace(belief, **{name: None}).need(name)


# ---------------------------------------------------------------- moving it about


def tensors(belief):
    return [*pytree.tree_leaves(belief)]


def test_to_and_detach_reach_every_tensor():
    given = full_fields()
    for value in (*(given[name] for name in FIELDS[:-1]), *given["extra"].values()):
        value.requires_grad_()
    belief = Belief(**given)
    assert len(tensors(belief)) == len(FIELDS) + 1  # two in `extra`
    double = belief.to(torch.float64)
    assert all(tensor.dtype == torch.float64 for tensor in tensors(double))
    assert all(tensor.requires_grad for tensor in tensors(double))
    detached = double.detach()
    assert not any(tensor.requires_grad for tensor in tensors(detached))
    assert_same(detached.to(torch.float32), belief.detach())
    assert all(each.device.type == "meta" for each in tensors(belief.to(device="meta")))
    assert belief.log_p.dtype == torch.float32  # the first is as it was


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (1, [1]),
        (0, [0]),
        (-1, [4]),
        (-5, [0]),
        (np.int64(3), [3]),
        (torch.tensor(2), [2]),
        (slice(1, 3), [1, 2]),
        (slice(None), [0, 1, 2, 3, 4]),
        (slice(None, None, 2), [0, 2, 4]),
        (slice(-2, None), [3, 4]),
        (slice(3, 3), []),
        ([4, 0, 0], [4, 0, 0]),
        ([-1, 1], [4, 1]),
        ([], []),
        (np.array([2, 1]), [2, 1]),
        (torch.tensor([3, 1, 3]), [3, 1, 3]),
        (torch.tensor([True, False, False, True, False]), [0, 3]),
        ([True, False, False, False, True], [0, 4]),
        (torch.zeros(5, dtype=torch.bool), []),
    ],
)
def test_indexing_selects_inputs_in_every_field(index, rows):
    belief = full_belief()
    found = belief[index]
    assert len(found) == len(rows)
    chosen, given = torch.tensor(rows, dtype=torch.long), full_fields()
    extra = {name: value[chosen] for name, value in given.pop("extra").items()}
    expected = {name: value if name in SCALARS else value[chosen] for name, value in given.items()}
    assert_same(found, Belief(**expected, extra=extra))


@pytest.mark.parametrize("index", [5, -6, [0, 5]])
def test_an_index_out_of_range_is_an_index_error(index):
    with pytest.raises(IndexError, match=r"out of (range|bounds)"):
        full_belief()[index]


def test_iterating_gives_one_input_at_a_time():
    belief = full_belief()
    assert_same(Belief.cat(list(belief)), belief)


def test_cat_joins_in_order_and_undoes_slicing():
    belief = full_belief()
    assert_same(Belief.cat([belief[:2], belief[2:2], belief[2:]]), belief)
    assert_same(Belief.cat([belief]), belief)
    small = Belief(belief.log_p, belief.log_weight)
    joined = Belief.cat([small[3:], small[:3]])
    assert torch.equal(joined.log_p, belief.log_p[[3, 4, 0, 1, 2]])
    assert joined.energy is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"energy": None}, "different fields.*'energy'.*number 1 has"),
        ({"extra": {}}, r"different fields.*extra\['layers'\]"),
        ({"extra": {"odin": torch.zeros(B), "knn": torch.zeros(B, 2, 3)}}, "different fields"),
        ({"energy": None, "extra": {"energy": torch.zeros(B)}}, "different fields"),
        ({"log_temperature": torch.tensor(0.4)}, "different log_temperature"),
        ({"log_prior": torch.tensor(0.0)}, "different log_prior"),
        ({"log_prior": None}, "different fields"),
        ({"features": torch.zeros(B, D + 1)}, r"different features.*\(6,\) in the first, \(7,\)"),
    ],
    ids=["field", "extra", "extra name", "field or extra", "temperature", "prior", "none", "width"],
)
def test_cat_refuses_beliefs_that_differ(change, message):
    belief = full_belief()
    with pytest.raises(InputError, match=message):
        Belief.cat([belief, dataclasses.replace(belief, **change)])


@pytest.mark.parametrize("change", [{"heads": 2}, {"classes": 7}])
def test_cat_refuses_another_number_of_heads_or_classes(change):
    with pytest.raises(InputError, match="cannot join beliefs with different log_p"):
        Belief.cat([full_belief(), full_belief(**change)])


def test_cat_needs_a_belief():
    with pytest.raises(InputError, match="at least one belief"):
        Belief.cat([])


# ---------------------------------------------------------------- the pytree


def test_tree_flatten_and_unflatten_are_inverse():
    for belief in (full_belief(), Belief(torch.zeros(2, 1, 3), torch.zeros(2, 1))):
        leaves, spec = pytree.tree_flatten(belief)
        assert_same(pytree.tree_unflatten(leaves, spec), belief)
        restored = pytree.treespec_loads(pytree.treespec_dumps(spec))
        assert_same(pytree.tree_unflatten(leaves, restored), belief)


def test_tree_map_reaches_every_tensor_and_names_it():
    belief = full_belief()
    doubled = pytree.tree_map(lambda tensor: 2 * tensor, belief)
    assert isinstance(doubled, Belief)
    assert torch.equal(doubled.energy, 2 * belief.energy)
    assert torch.equal(doubled.extra["odin"], 2 * belief.extra["odin"])
    names = {pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(belief)[0]}
    assert {".log_p", ".log_prior", ".extra['odin']"} <= names
    shapes = pytree.tree_map(lambda tensor: tuple(tensor.shape), belief)  # any leaf is allowed
    assert shapes.log_p == (B, K, C)


class Tiny(nn.Module):
    """A head that returns a belief with an evidence, a gate and an extra."""

    def __init__(self):
        super().__init__()
        self.heads = nn.Linear(D, K * C)
        self.router = nn.Linear(D, K)

    def forward(self, z):
        log_alpha = self.heads(z).unflatten(-1, (K, C))
        log_total = torch.logsumexp(log_alpha, -1)
        return Belief(
            log_p=log_alpha - log_total.unsqueeze(-1),
            log_weight=torch.log_softmax(self.router(z), -1),
            log_evidence=log_total,
            log_gate=nn.functional.logsigmoid(log_alpha.mean(1)),
            log_prior=torch.zeros(()),
            extra={"norm": z.square().sum(-1)},
        )


def test_export_with_a_dynamic_batch_returns_an_equal_belief():
    module = Tiny().eval()
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(module, (torch.randn(4, D),), dynamic_shapes=({0: batch},))
    for size in (4, 2, 9):
        z = torch.randn(size, D)
        found = program.module()(z)
        assert isinstance(found, Belief)
        assert_same(found, module(z), close=True)
        assert torch.allclose(found.probs().sum(-1), torch.ones(size))
