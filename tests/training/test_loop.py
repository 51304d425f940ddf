"""The training loop: it learns, it is deterministic, it resumes exactly, and it fails loudly."""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gemfi import metrics
from gemfi.data import as_split, two_moons
from gemfi.errors import CheckpointError, InputError, NonFiniteLossError, RoleError
from gemfi.interrupt import Terminated
from gemfi.methods import METHODS, PAPER_PRESETS, PRESETS
from gemfi.model import Model, build_model
from gemfi.outliers import OutlierConfig
from gemfi.spectral import Spectral
from gemfi.training import TrainConfig, fit
from gemfi.training.checkpoint import Checkpoint
from gemfi.training.objective import Objective, make_optimizer
from gemfi.training.run_data import permutation
from gemfi.training.run_dir import CHECKPOINT, LOCK, LOG
from support.runs import Killed, assert_same, kill_at, timeless

TASK = two_moons(n=120)
CONFIG = TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3)
STEPS = 3 * 4


def build(name: str = "gem-fi", seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return build_model(name, "mlp", 2, in_features=2, width=8, depth=1, dropout=0.1)


def train(model: Model, config: TrainConfig = CONFIG, **more: Any) -> Any:
    return fit(model, TASK.train, TASK.validation, config, progress=False, **more)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_learns_the_moons(name: str) -> None:
    model = build(name)
    result = train(model, TrainConfig(epochs=40, batch_size=32, learning_rate=1e-2))
    first, last = (next(iter(result.history[i]["terms"].values())) for i in (0, -1))
    assert last < 0.5 * first  # of the prediction term: a KL that is annealed rises
    belief = model.predict(TASK.test.x)
    assert metrics.accuracy(belief.probs(), TASK.test.labels) > 85
    assert result.steps == 160
    assert not model.training


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    one, other, third = build(), build(), build()
    train(one)
    torch.manual_seed(99)  # the caller's generator must not matter
    train(other)
    assert_same(one, other)
    train(third, TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3, seed=1))
    assert not torch.equal(one.head.heads.layers[0].weight, third.head.heads.layers[0].weight)


def test_the_callers_generator_is_left_alone() -> None:
    model = build()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(model)
    assert torch.equal(before, torch.get_rng_state())


def test_one_step_is_adamw_with_clipping_and_cosine_decay() -> None:
    """The first two steps of softmax, written out by hand with torch's own pieces."""
    model, oracle = build("softmax"), build("softmax")
    for each in (model, oracle):
        each.backbone.dropout.p = 0.0
    config = TrainConfig(epochs=1, batch_size=60, learning_rate=0.1, clip_norm=0.01)
    train(model, config)
    optimizer = make_optimizer(oracle, config)
    order = permutation(120, 0, 0)
    oracle.train()
    for step in range(2):
        rows = order[60 * step : 60 * (step + 1)]
        log_p = oracle(TASK.train.x[rows]).log_probs()
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(log_p, TASK.train.labels[rows]).backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in oracle.parameters()))
        for p in oracle.parameters():
            p.grad *= min(1.0, 0.01 / float(norm))
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 + math.cos(math.pi * step / 2))
        optimizer.step()
    for mine, theirs in zip(model.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_weight_decay_spares_biases_and_the_temperature() -> None:
    model = build()
    decayed, spared = make_optimizer(model, TrainConfig(weight_decay=0.3)).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert decayed["weight_decay"] == 0.3
    assert spared["weight_decay"] == 0.0
    assert all(names[id(p)].endswith("weight") for p in decayed["params"])
    assert "head.log_temperature" in {names[id(p)] for p in spared["params"]}
    assert len(names) == len(decayed["params"]) + len(spared["params"])


def test_select_best_keeps_the_epoch_of_lowest_validation_nll() -> None:
    flipped = as_split(TASK.validation.x, 1 - TASK.validation.labels, role="validation")
    model = build("softmax")
    config = TrainConfig(epochs=4, batch_size=16, learning_rate=0.02, select="best")
    result = fit(model, TASK.train, flipped, config)
    nlls = [record["validation_nll"] for record in result.history]
    assert nlls == sorted(nlls)  # labels are flipped: what is learnt makes it worse
    assert result.best_epoch == 0
    found = metrics.nll(model.predict(flipped.x).log_probs(), flipped.labels)
    assert found == pytest.approx(nlls[0], rel=1e-3)


def test_bf16_touches_the_backbone_alone() -> None:
    model = build()
    seen: dict[str, set[torch.dtype]] = {"backbone": set(), "heads": set()}
    for name, module in (("backbone", model.backbone.blocks[0]), ("heads", model.head.heads)):
        module.register_forward_hook(lambda _m, _i, out, name=name: seen[name].add(out.dtype))
    model.train()
    step = Objective(model, 10, precision="bf16")
    step(TASK.train.x[:8], TASK.train.labels[:8])
    assert seen == {"backbone": {torch.bfloat16}, "heads": {torch.float32}}
    train(model, TrainConfig(epochs=1, batch_size=32, precision="bf16"))


# -- outliers -----------------------------------------------------------------------------------


def test_outliers_begin_at_their_fraction() -> None:
    model = build()
    counts: list[int] = []
    original = model.head.objective

    def spy(batch: Any, at: Any) -> dict[str, Tensor]:
        counts.append(0 if batch.outliers is None else len(batch.outliers))
        return original(batch, at)

    model.head.objective = spy  # type: ignore[method-assign]
    train(model, outliers=OutlierConfig(start=0.5, ramp=0.2))
    assert counts[:7] == [0] * 7  # the ramp is zero at the very start
    assert counts[7:] == [31, 42, 42, 42, 31]  # 1.3 · 32, and of the last 24


@pytest.mark.parametrize("name", ["softmax", "mc-dropout"])
def test_outliers_for_a_method_without_a_term_on_them_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} has no loss term on outliers"):
        train(build(name), outliers=OutlierConfig())


def test_auxiliary_outliers_reach_the_objective_with_gradient() -> None:
    far = as_split(TASK.ood_test["cluster"].x, role="auxiliary", name="far")
    model = build()
    kind = OutlierConfig(kind="auxiliary", scrambled=0.0)
    train(model, auxiliary=far, outliers=kind)
    with pytest.raises(InputError, match="need a split of role auxiliary"):
        train(build(), outliers=kind)
    with pytest.raises(InputError, match="auxiliary split was given, but the outliers are of kind"):
        train(build(), auxiliary=far)
    step = Objective(model, 10, outliers=kind)
    step.step = 5
    seen = {}
    original = model.head.objective
    model.head.objective = lambda batch, at: seen.update(batch=batch) or original(batch, at)
    step(TASK.train.x[:8], TASK.train.labels[:8], far.x[:3])
    assert seen["batch"].outliers.shape == (3, 8)
    assert seen["batch"].outliers.requires_grad


# -- checkpoints --------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [None, 1, 5])
def test_a_run_killed_at_any_step_resumes_bit_for_bit(tmp_path: Path, every: int | None) -> None:
    config = TrainConfig(
        epochs=3, batch_size=32, learning_rate=5e-3, select="best", checkpoint_steps=every
    )
    whole = build()
    expected = train(whole, config, run_dir=tmp_path / "whole")
    log = (tmp_path / "whole" / LOG).read_text()
    for step in range(STEPS):
        folder = tmp_path / f"killed-{step}"
        first = build()
        kill_at(first, step)
        with pytest.raises(Killed):
            train(first, config, run_dir=folder)
        second = build(seed=7)  # resuming does not depend on the initial weights
        result = train(second, config, run_dir=folder)
        assert_same(whole, second)
        assert result.steps == STEPS
        assert result.resumed_at == (step // (every or 4)) * (every or 4)
        assert timeless(result.history) == timeless(expected.history)
        assert timeless(read(folder / LOG)) == timeless([json.loads(x) for x in log.splitlines()])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_finished_run_is_returned_at_once(tmp_path: Path) -> None:
    one, other = build(), build(seed=3)
    first = train(one, run_dir=tmp_path)
    kill_at(other, 0)
    second = train(other, run_dir=tmp_path)
    assert_same(one, other)
    assert (second.steps, second.notes, second.history) == (
        first.steps,
        first.notes,
        first.history,
    )


@pytest.mark.parametrize(
    ("sent", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_finishes_the_step_saves_and_resumes_exactly(
    tmp_path: Path, sent: signal.Signals, raised: type[KeyboardInterrupt]
) -> None:
    before = signal.getsignal(sent)
    whole = build()
    train(whole)
    for step in (0, 3, 5, 11):  # 3 and 11 are the last steps of an epoch
        folder = tmp_path / str(step)
        model = build()
        original = model.head.objective

        def interrupting(batch: Any, at: Any, step: int = step, go: Any = original) -> Any:
            if at.step == step:
                os.kill(os.getpid(), sent)
            return go(batch, at)

        model.head.objective = interrupting  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt) as stopped:
            train(model, run_dir=folder)
        assert type(stopped.value) is raised
        again = build()
        result = train(again, run_dir=folder)
        assert result.resumed_at == step + 1
        assert_same(whole, again)
        assert len(result.history) == 3
    assert signal.getsignal(sent) is before


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait_for_the_step(tmp_path: Path, sent: signal.Signals) -> None:
    model = build()

    def impatient(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), sent)
        pytest.fail("the step went on")

    model.head.objective = impatient  # type: ignore[method-assign]
    with pytest.raises(Terminated):
        train(model, run_dir=tmp_path)
    assert train(build(), run_dir=tmp_path).resumed_at == 0


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    train(build(), run_dir=tmp_path)
    other = TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3, seed=4)
    with pytest.raises(
        CheckpointError, match=r"belongs to another run \(train.seed: 0 there, 4 here\)"
    ):
        train(build(), other, run_dir=tmp_path)
    with pytest.raises(
        CheckpointError,
        match=r"belongs to another run .*method: \"gem-fi\" there, \"gem-mix\" here",
    ):
        train(build("gem-mix"), run_dir=tmp_path)
    moved = as_split(TASK.train.x + 1, TASK.train.labels, role="train", num_classes=2)
    with pytest.raises(CheckpointError, match=r"belongs to another run \(data.train: "):
        fit(build(), moved, TASK.validation, CONFIG, run_dir=tmp_path)


def test_another_backbone_is_another_run(tmp_path: Path) -> None:
    """Dropout and spectral bounds change no parameter's shape, but they change the run."""
    train(build(), run_dir=tmp_path)
    options = {"in_features": 2, "width": 8, "depth": 1}
    for other in ({"dropout": 0.5}, {"dropout": 0.1, "spectral": Spectral("hard", 0.1)}):
        model = build_model("gem-fi", "mlp", 2, **options, **other)
        with pytest.raises(CheckpointError, match=r"belongs to another run .backbone: "):
            train(model, run_dir=tmp_path)


def test_ctrl_c_while_statistics_are_fitted_is_not_lost(tmp_path: Path) -> None:
    model = build()
    original = model.head.fit_statistics

    def interrupted(*arguments: Any) -> list[str]:
        os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    model.head.fit_statistics = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train(model, run_dir=tmp_path)
    assert train(build(), run_dir=tmp_path).steps == STEPS


def test_a_kill_between_the_last_log_line_and_the_last_save_leaves_one_finished_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build()
    train(whole, run_dir=tmp_path / "whole")
    save = Checkpoint.save

    def dying(checkpoint: Checkpoint) -> None:
        if checkpoint.state.finished:
            raise Killed
        save(checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", dying)
        with pytest.raises(Killed):
            train(build(), run_dir=tmp_path / "killed")
    again = build()
    train(again, run_dir=tmp_path / "killed")
    assert_same(whole, again)
    records = read(tmp_path / "killed" / LOG)
    assert [record for record in records if "finished" in record] == records[-1:]


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("gem-paper", {}),
        ("gem-paper", {"sizes": "released", "spectral": "hard"}),
        ("gem-fi", {"outliers": OutlierConfig(kind="noise")}),
        ("gem-fi", {"outliers": OutlierConfig(kind="between")}),
    ],
    ids=["paper", "released", "noise", "between"],
)
def test_other_kinds_of_state_resume_exactly_too(
    tmp_path: Path, method: str, changes: dict[str, Any]
) -> None:
    presets = PAPER_PRESETS if method == "gem-paper" else PRESETS
    config = replace(presets["gem-fi"], **changes)

    def make() -> Model:
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2))
        return build_model(method, backbone, 2, config=config, num_features=8)

    whole, first, second = make(), make(), make()
    train(whole)
    kill_at(first, 10)
    with pytest.raises(Killed):
        train(first, run_dir=tmp_path)
    train(second, run_dir=tmp_path)
    assert_same(whole, second)


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: str) -> None:
    train(build(), run_dir=tmp_path)
    path = tmp_path / CHECKPOINT
    data = path.read_bytes()
    path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "text": b"hello" * 99}[damage])
    with pytest.raises(
        CheckpointError, match=f"{CHECKPOINT} is (damaged|no safetensors file).*; delete it to"
    ):
        train(build(), run_dir=tmp_path)


def test_nothing_but_checkpoint_log_and_lock_is_left_behind(tmp_path: Path) -> None:
    train(build(), run_dir=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([CHECKPOINT, LOCK, LOG])


# -- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [True, False])
def test_a_non_finite_term_stops_the_run_and_is_named(tmp_path: Path, *, kept: bool) -> None:
    model = build()
    original = model.head.objective

    def broken(batch: Any, at: Any) -> dict[str, Tensor]:
        terms = original(batch, at)
        if at.step == 6:
            terms["kl"] = terms["kl"] * math.nan
        return terms

    model.head.objective = broken  # type: ignore[method-assign]
    where = {"run_dir": tmp_path} if kept else {}
    with pytest.raises(NonFiniteLossError) as caught:
        train(model, **where)
    text = str(caught.value)
    assert "kl is nan at step 6 (epoch 1)" in text
    assert ("checkpoint.safetensors (step 4)" in text) is kept
    assert ("no checkpoint was kept" in text) is not kept


def test_non_finite_features_and_gradients_are_named() -> None:
    model = build()
    with torch.no_grad():
        model.backbone.first.bias[0] = math.inf
    with pytest.raises(NonFiniteLossError, match="features is nan at step 0"):
        train(model)
    model = build("softmax")
    model.head.linear.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(NonFiniteLossError, match="gradient norm is"):
        train(model)


@pytest.mark.parametrize("role", ["test", "validation", "calibration"])
def test_training_refuses_other_roles(role: str) -> None:
    split = as_split(TASK.train.x, TASK.train.labels, role=role, num_classes=2)
    with pytest.raises(RoleError, match=f"role {role}, which training refuses"):
        fit(build(), split)


def test_ood_splits_are_refused_everywhere() -> None:
    ood = as_split(TASK.train.x, TASK.train.labels, role="ood-test", num_classes=2)
    with pytest.raises(RoleError, match="ood-test, which training refuses"):
        fit(build(), ood)
    with pytest.raises(RoleError, match="ood-test, which selection refuses"):
        fit(build(), TASK.train, ood)
    with pytest.raises(RoleError, match="ood-test, which auxiliary outliers refuses"):
        train(build(), auxiliary=ood)


def test_other_bad_input() -> None:
    with pytest.raises(InputError, match="wrap it with as_split"):
        fit(build(), TASK.train.x)
    single = as_split(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), role="train")
    with pytest.raises(InputError, match="one class only"):
        fit(build(), single)
    many = as_split(torch.zeros(3, 2), torch.arange(3), role="train")
    with pytest.raises(InputError, match="has label 2, but the model has classes 0 to 1"):
        fit(build(), many)
    flawed = as_split(TASK.validation.x, TASK.validation.labels + 1, role="validation")
    with pytest.raises(InputError, match=r"\(validation\) has label 2, .* count labels from 0"):
        fit(build(), TASK.train, flawed)
    images = as_split((255 * torch.rand(9, 2)).byte(), role="auxiliary", name="images")
    with pytest.raises(InputError, match=r"'images' \(auxiliary\) has samples .* torch.uint8, but"):
        train(build(), auxiliary=images, outliers=OutlierConfig(kind="auxiliary"))
    wrong = build_model("gem-fi", nn.Linear(2, 5), 2, num_features=8)
    with pytest.raises(InputError, match=r"must return \(B, 8\) features, got \(32, 5\)"):
        train(wrong)
    with pytest.raises(InputError, match='select="best" needs validation data'):
        fit(build(), TASK.train, config=TrainConfig(select="best"))
    for bad in (
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": -1.0},
        {"clip_norm": 0.0},
        {"weight_decay": -1.0},
        {"select": "ood"},
        {"checkpoint_steps": 0},
        {"seed": -1},
        {"seed": 2**70},
        {"augmentation": "standard"},
    ):
        with pytest.raises(InputError, match=next(iter(bad))):
            TrainConfig(**bad)
