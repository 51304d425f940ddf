"""The deep ensemble: separate members, assembled; its belief and objective by hand."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from gemfi import build_model, scores
from gemfi.backbones import MLP, Stack
from gemfi.data import TASKS, Task
from gemfi.errors import CheckpointError, InputError
from gemfi.methods import Batch, EDLConfig, Ensemble, EnsembleConfig, Progress, Softmax
from gemfi.model import Model
from gemfi.training import TrainConfig, fit, loop
from gemfi.training.loop import member_seed
from gemfi.training.result import mean_history

D, C, B, M = 4, 3, 10, 3
QUICK = TrainConfig(epochs=2, batch_size=64, learning_rate=5e-3, seed=1)


@pytest.fixture(scope="module")
def moons() -> Task:
    return TASKS["two-moons"]()


def ensemble(members: int = M, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    config = EnsembleConfig(members=members)
    return build_model("ensemble", "mlp", 2, config=config, in_features=2, width=8)


def test_the_belief_is_every_member_with_equal_weights() -> None:
    torch.manual_seed(0)
    head = Ensemble(M * D, C, EnsembleConfig(members=M)).double()
    z = torch.randn(B, M * D, dtype=torch.float64)
    belief = head(z)
    for index, part in enumerate(z.split(D, dim=1)):
        linear = head.heads[index].linear
        p = torch.softmax(part @ linear.weight.T + linear.bias, dim=1)
        torch.testing.assert_close(belief.log_p[:, index].exp(), p)
    torch.testing.assert_close(belief.probs(), belief.log_p.exp().mean(dim=1))
    assert belief.log_evidence is None
    mean = belief.probs()
    entropies = -(belief.log_p.exp() * belief.log_p).sum(-1).mean(1)
    expected = -(mean * mean.log()).sum(1) - entropies
    torch.testing.assert_close(scores.disagreement(belief), expected)


def test_the_objective_is_the_mean_cross_entropy() -> None:
    torch.manual_seed(0)
    head = Ensemble(M * D, C, EnsembleConfig(members=M)).double()
    data = Batch(torch.randn(B, M * D, dtype=torch.float64), torch.randint(C, (B,)))
    each = [
        -head.heads[k](data.z[:, k * D : (k + 1) * D]).log_p[range(B), 0, data.y].mean()
        for k in range(M)
    ]
    torch.testing.assert_close(head.objective(data, Progress(0, 1))["nll"], sum(each) / M)


def test_each_member_is_the_softmax_network_that_its_own_run_gives(moons: Task) -> None:
    whole = ensemble()
    alone = ensemble().members()[1]
    fit(whole, moons.train, moons.validation, QUICK, progress=False)
    seed = member_seed(QUICK.seed, 1, M)
    config = TrainConfig(epochs=2, batch_size=64, learning_rate=5e-3, seed=seed)
    assert isinstance(alone.head, Softmax)
    fit(alone, moons.train, moons.validation, config, progress=False)
    x = moons.validation.x
    assert torch.equal(whole.predict(x).log_p[:, 1], alone.predict(x).log_p[:, 0])
    assert not torch.equal(whole.predict(x).log_p[:, 0], whole.predict(x).log_p[:, 1])


def test_members_resume_where_they_were_and_the_whole_is_assembled(
    moons: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ensemble()
    fit(expected, moons.train, moons.validation, QUICK, progress=False)
    stopped = ensemble()
    third = stopped.members()[2].backbone

    def fail(_x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(third, "forward", fail)
        patch.setattr("gemfi.training.loop.check_run", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            fit(stopped, moons.train, moons.validation, QUICK, progress=False, run_dir=tmp_path)
    again = ensemble(seed=9)  # other initial weights: those of the checkpoints count
    result = fit(again, moons.train, moons.validation, QUICK, progress=False, run_dir=tmp_path)
    x = moons.validation.x
    assert torch.equal(again.predict(x).log_p, expected.predict(x).log_p)
    assert len(result.history) == QUICK.epochs
    once_more = ensemble(seed=5)
    fit(once_more, moons.train, moons.validation, QUICK, progress=False, run_dir=tmp_path)
    assert torch.equal(once_more.predict(x).log_p, expected.predict(x).log_p)
    other = ensemble(members=2)
    with pytest.raises(CheckpointError, match="another run"):
        fit(other, moons.train, moons.validation, QUICK, progress=False, run_dir=tmp_path)


def test_history_is_the_mean_of_the_members() -> None:
    def record(value: float) -> dict[str, object]:
        return {
            "step": 5, "epoch": 0, "loss": value, "terms": {"nll": value}, "learning_rate": 0.1,
            "seconds": 2.0, "validation_nll": value, "validation_accuracy": 90.0 + value,
        }  # fmt: skip

    (merged,) = mean_history([[record(1.0)], [record(3.0)]])
    assert merged == {**record(2.0), "seconds": 4.0}


def test_no_two_ensembles_share_a_seed() -> None:
    seeds = [member_seed(seed, index, 5) for seed in range(4) for index in range(5)]
    assert len(set(seeds)) == 20


def test_own_backbones_come_as_a_stack() -> None:
    members = [MLP(2, width=8) for _ in range(2)]
    model = build_model("ensemble", Stack(members), 2, config=EnsembleConfig(members=2))
    assert model.predict(torch.randn(4, 2)).log_p.shape == (4, 2, 2)
    assert [each.backbone for each in model.members()] == members
    with pytest.raises(InputError, match=r"needs that many backbones.*Stack"):
        Model(MLP(2, width=10), Ensemble(10, 2)).members()
    with pytest.raises(InputError, match="which 5 does not divide"):
        Ensemble(8, 2)


def test_a_module_is_copied_for_each_member() -> None:
    plain = nn.Sequential(nn.Linear(2, 6), nn.ReLU())
    model = build_model("ensemble", plain, 2, config=EnsembleConfig(members=3), num_features=6)
    members = model.members()
    x = torch.randn(4, 2)
    assert model.head.num_features == 18
    assert torch.equal(members[0].embed(x), members[2].embed(x))
    with torch.no_grad():
        members[0].backbone[0].weight.zero_()
    assert not torch.equal(members[0].embed(x), members[2].embed(x))


def test_a_stack_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(InputError, match="all of one integer `num_features`"):
        Stack([MLP(2, width=8), MLP(2, width=4)])
    with pytest.raises(InputError, match="at least one backbone"):
        Stack([])
    with pytest.raises(InputError, match="num_features"):
        Stack([nn.Linear(2, 2)])
    one = MLP(2, width=8)
    with pytest.raises(InputError, match="share parameters"):
        Stack([one, one])


def test_an_ensemble_of_one_is_refused() -> None:
    with pytest.raises(InputError, match="members must be an integer of at least 2, got 1"):
        EnsembleConfig(members=1)


def test_a_foreign_configuration_is_refused() -> None:
    with pytest.raises(InputError, match="ensemble takes an EnsembleConfig, got EDLConfig"):
        build_model("ensemble", "mlp", 2, config=EDLConfig(), in_features=2)


def test_ctrl_c_between_two_members_is_heeded(moons: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    real = loop.fit

    def spy(member: Model, *arguments: object, **options: object) -> object:
        begun.append(member)
        result = real(member, *arguments, **options)
        if len(begun) == 1:
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(loop, "fit", spy)
    with pytest.raises(KeyboardInterrupt):
        real(ensemble(), moons.train, moons.validation, QUICK, progress=False)
    assert len(begun) == 1


def test_a_member_without_its_log_says_what_to_delete(moons: Task, tmp_path: Path) -> None:
    config = replace(QUICK, seed=member_seed(QUICK.seed, 0, M))
    member = ensemble().members()[0]
    folder = tmp_path / "member-0"
    fit(member, moons.train, moons.validation, config, progress=False, run_dir=folder)
    (folder / "log.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"member-0 has a checkpoint without its whole log"):
        fit(ensemble(), moons.train, moons.validation, QUICK, progress=False, run_dir=tmp_path)
