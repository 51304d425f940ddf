"""The paper's two propositions on trained toys: nothing that they promise is violated."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from gemfi.data import Task, line, two_moons
from gemfi.errors import InputError
from gemfi.methods import PAPER_PRESETS, GEMPaper
from gemfi.model import Model, build_model
from gemfi.spectral import Spectral
from gemfi.training import TrainConfig, fit
from support import theory
from support.spectral import spectral_norms

CONFIG = replace(PAPER_PRESETS["gem-fi"], density_space="raw", rho_floor=0.0)


def trained(task: Task, **changes: object) -> Model:
    torch.manual_seed(0)
    model = build_model(
        "gem-paper",
        "mlp",
        2,
        config=replace(CONFIG, **changes),
        in_features=task.train.x.shape[1],
        width=32,
        depth=2,
        spectral=Spectral(bound=3.0),
    )
    train = TrainConfig(epochs=15, batch_size=32, learning_rate=5e-3)
    fit(model, task.train, task.validation, train, progress=False)
    return model


@pytest.fixture(scope="module")
def moons() -> tuple[Task, Model]:
    task = two_moons(n=400)
    return task, trained(task)


def test_every_layer_of_the_head_keeps_its_bound(moons: tuple[Task, Model]) -> None:
    norms = spectral_norms(moons[1])
    assert {name.split(".")[0] for name in norms} == {"backbone", "head"}
    for name, values in norms.items():
        bound = 1.0 if name.startswith("head") else 3.0
        assert float(values.max()) <= 1.01 * bound, name


def pairs(x: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Near and far pairs of points around the data."""
    generator = torch.Generator().manual_seed(0)
    one = x[torch.randint(len(x), (count,), generator=generator)]
    length = 10 ** torch.empty(count, 1).uniform_(-3, 0.5, generator=generator)
    other = one + length * torch.randn(one.shape, generator=generator)
    return one, other


@pytest.mark.parametrize("space", ["unit", "raw"])
def test_no_sampled_pair_violates_the_lipschitz_bound(space: str) -> None:
    task = two_moons(n=400)
    model = trained(task, feature_space=space)
    head = model.head
    assert isinstance(head, GEMPaper)
    one, other = pairs(task.train.x, 4000)
    z, w = model.embed(one).double(), model.embed(other).double()
    radius = float(torch.cat([z, w]).norm(dim=1).min())
    head.double()
    with torch.no_grad():
        moved = (head(z).probs() - head(w).probs()).abs().sum(dim=1)
    distance = (z - w).norm(dim=1)
    bound = theory.lipschitz_bound(head, radius)
    assert bool((moved <= bound * distance * (1 + 1e-6)).all())
    seen = float((moved / distance).max())
    assert seen > bound / 2000, "the bound is so loose that it says nothing"
    in_input = bound * theory.mlp_bound(model.backbone)  # and so from the input on
    assert bool((moved <= in_input * (one - other).norm(dim=1).double() * (1 + 1e-4)).all())


def test_softmax_moves_at_most_by_half_the_root_of_two() -> None:
    u = 5 * torch.randn(20000, 10, dtype=torch.float64)
    v = u + torch.randn_like(u) * torch.rand(20000, 1, dtype=torch.float64)
    moved = (torch.softmax(u, 1) - torch.softmax(v, 1)).abs().sum(1)
    assert bool((moved <= (u - v).norm(dim=1) / math.sqrt(2)).all())
    tight = torch.tensor([[1e-4, -1e-4]], dtype=torch.float64)  # the two-point case reaches it
    moved = (torch.softmax(tight, 1) - torch.softmax(-tight, 1)).abs().sum()
    assert float(moved / (2 * tight).norm()) == pytest.approx(1 / math.sqrt(2), rel=1e-6)


def test_evidence_weakly_falls_along_rays_that_leave_the_moons(moons: tuple[Task, Model]) -> None:
    centre = torch.tensor([0.5, 0.25])
    distances = torch.linspace(3.0, 40.0, 150)  # every training point is within 2.3 of the centre
    assert float((moons[0].train.x - centre).norm(dim=1).max()) < 2.3
    for angle in torch.linspace(0, 2 * math.pi, 25)[:-1]:
        direction = torch.stack([angle.cos(), angle.sin()])
        evidence = theory.evidence_on_ray(moons[1], centre, direction, distances)
        assert float(theory.rises(evidence).max()) == 0
        inside = theory.evidence_on_ray(moons[1], moons[0].train.x[0], direction, torch.zeros(1))
        assert float(evidence[0]) < float(inside[0])


def test_evidence_weakly_falls_off_both_ends_of_the_line() -> None:
    task = line(n=400)
    model = trained(task)
    distances = torch.linspace(5.0, 60.0, 150)  # the data lie in [-4, 4]
    for sign in (-1.0, 1.0):
        evidence = theory.evidence_on_ray(model, torch.zeros(1), torch.tensor([sign]), distances)
        assert float(theory.rises(evidence).max()) == 0


def test_without_density_nothing_makes_the_evidence_fall() -> None:
    """Proposition 2 rests on ρ alone: its premise, and a test that the tests above can fail."""
    task = two_moons(n=400)
    model = trained(task, rho="none", feature_space="raw")
    centre, distances = torch.tensor([0.5, 0.25]), torch.linspace(3.0, 40.0, 150)
    rises = [
        float(
            theory.rises(
                theory.evidence_on_ray(
                    model, centre, torch.stack([angle.cos(), angle.sin()]), distances
                )
            ).max()
        )
        for angle in torch.linspace(0, 2 * math.pi, 25)[:-1]
    ]
    assert max(rises) > 0.5


def test_rises_finds_what_passes_the_lowest_so_far() -> None:
    values = torch.tensor([3.0, 2.0, 2.5, 1.0, 1.0, 1.2])
    torch.testing.assert_close(theory.rises(values), torch.tensor([0.0, 0.5, 0.0, 0.0, 0.2]))
    assert float(theory.rises(values, tolerance=0.6).max()) == 0


def test_where_there_is_no_bound_it_says_so() -> None:
    with pytest.raises(InputError, match="for the probability gate, got gate='logit'"):
        theory.lipschitz_bound(GEMPaper(4, 2, replace(CONFIG, gate="logit")))
    with pytest.raises(InputError, match="no Lipschitz bound with batch norm"):
        theory.lipschitz_bound(GEMPaper(4, 2, replace(CONFIG, sizes="released")))
    with pytest.raises(InputError, match="radius must be positive"):
        theory.lipschitz_bound(GEMPaper(4, 2), 0.0)
