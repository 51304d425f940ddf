"""Checkpoints that lie: every one is a CheckpointError of one line that names the file."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from gemfi._files import header_end
from gemfi.data import two_moons
from gemfi.errors import CheckpointError
from gemfi.model import Model, build_model
from gemfi.training import TrainConfig, fit
from gemfi.training.checkpoint import Checkpoint
from gemfi.training.run_dir import CHECKPOINT, LOG
from support.checkpoints import header_of, rewrite, tensors_of, write
from support.runs import Killed, kill_at

TASK = two_moons(n=120)
STEPS = 3 * 4
AT = 6  # where the run was stopped: in the middle of its second epoch


def build(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return build_model("gem-fi", "mlp", 2, in_features=2, width=4, depth=1, dropout=0.1)


def train(folder: Path, model: Model | None = None, **changes: Any) -> Any:
    config = TrainConfig(
        **{"epochs": 3, "batch_size": 32, "select": "best", "checkpoint_steps": 1} | changes
    )
    model = build() if model is None else model
    return fit(model, TASK.train, TASK.validation, config, run_dir=folder, progress=False)


@cache
def stopped() -> tuple[bytes, bytes]:
    """Checkpoint and log of a run that was killed."""
    model = build()
    kill_at(model, AT)
    with TemporaryDirectory() as folder:
        with pytest.raises(Killed):
            train(Path(folder), model)
        return (Path(folder) / CHECKPOINT).read_bytes(), (Path(folder) / LOG).read_bytes()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was killed, to spoil."""
    data, log = stopped()
    (tmp_path / CHECKPOINT).write_bytes(data)
    (tmp_path / LOG).write_bytes(log)
    return tmp_path


def refused(run: Path, name: str = CHECKPOINT) -> str:
    with pytest.raises(CheckpointError) as error:
        train(run)
    text = str(error.value)
    assert str(run / name) in text
    assert "\n" not in text
    return text


def test_the_run_that_the_tests_spoil_resumes(run: Path) -> None:
    assert train(run).resumed_at == AT


# -- bytes -----------------------------------------------------------------------------------------


def loads(path: Path) -> None:
    Checkpoint.load_state(path)
    Checkpoint.load(path)


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_is_found(run: Path, every: int) -> None:
    """One bit of each byte of the header, and as many of the tensors."""
    good, chance = stopped()[0], random.Random(0)  # noqa: S311 - no secret
    end = header_end(good)
    places = [*range(0, end, every), *chance.sample(range(end, len(good)), end // every)]
    for place in places:
        data = bytearray(good)
        data[place] ^= 1 << chance.randrange(8)
        (run / CHECKPOINT).write_bytes(data)
        with pytest.raises(CheckpointError, match=CHECKPOINT):
            Checkpoint.load_state(run / CHECKPOINT)
        with pytest.raises(CheckpointError, match=CHECKPOINT):
            Checkpoint.load(run / CHECKPOINT)
    assert len(places) > 8_000 / every


@pytest.mark.parametrize("seed", range(5))
def test_a_flipped_bit_of_the_tensors_is_not_resumed_from(run: Path, seed: int) -> None:
    data, chance = bytearray(stopped()[0]), random.Random(seed)  # noqa: S311 - no secret
    data[chance.randrange(header_end(data), len(data))] ^= 1 << chance.randrange(8)
    (run / CHECKPOINT).write_bytes(data)
    text = refused(run)
    assert "do not have the checksum that it states; delete it to start the run again" in text


def test_truncated_and_inserted_bytes_are_found(run: Path) -> None:
    good, chance = stopped()[0], random.Random(1)  # noqa: S311 - no secret
    for _ in range(60):
        place = chance.randrange(len(good))
        for data in (good[:place], good[:place] + chance.randbytes(9) + good[place:]):
            (run / CHECKPOINT).write_bytes(data)
            refused(run)


def test_random_bytes_are_refused(run: Path) -> None:
    chance = random.Random(2)  # noqa: S311 - no secret
    for size in range(0, 300, 7):
        data = chance.randbytes(size)
        (run / CHECKPOINT).write_bytes(data)
        refused(run)
        (run / CHECKPOINT).write_bytes(min(size, 99).to_bytes(8, "little") + data)
        refused(run)


def test_a_checkpoint_of_the_format_before_says_what_to_do(run: Path) -> None:
    header = header_of(run / CHECKPOINT)
    names = ("counters", "fingerprint", "groups")
    old = {"format": "2", **{name: json.dumps(header[name]) for name in names}}
    save_file(tensors_of(run / CHECKPOINT), run / CHECKPOINT, metadata=old)
    assert "is not a checkpoint of format 4 (found '2'); use another run dir" in refused(run)


# -- a right checksum and wrong contents -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("step", 10**9, "step 1000000000 of 12 cannot be"),
        ("step", -5, "step -5 of 12 cannot be"),
        ("step", 13, "step 13 of 12 cannot be"),
        ("step", 8, " sums after 0 steps of an epoch cannot be"),
        ("step", 6.0, "counters.step: expected an integer, got 6.0"),
        ("step", True, "counters.step: expected an integer"),
        ("step", None, "counters.step: expected an integer, got null"),
        pytest.param("step", 10**400, "step 1000", id="step-huge"),
        ("seconds", math.nan, "nan seconds cannot be"),
        ("seconds", math.inf, "inf seconds cannot be"),
        ("seconds", -1.0, "-1.0 seconds cannot be"),
        pytest.param("seconds", 10**400, "counters.seconds: 1000", id="seconds-huge"),
        ("seconds", "long", "counters.seconds: expected a number, got 'long'"),
        ("threads", 0, "0 threads cannot be"),
        ("best_epoch", 1, "best epoch 1 of 1 that have ended cannot be"),
        ("best_epoch", -1, "best epoch -1 of 1"),
        ("best_epoch", None, "best epoch None with NLL"),
        ("best_nll", None, "best epoch 0 with NLL None"),
        ("best_nll", "low", "counters.best_nll: expected a number"),
        ("finished", True, "the end at step 6 of 12 cannot be"),
        ("finished", 1, "counters.finished: expected true or false"),
        ("notes", "none", "counters.notes: expected a list"),
        ("notes", [3], "counters.notes[0]: expected a text"),
        ("sums", {}, "0 sums after 2 steps of an epoch"),
        ("sums", {"ce": math.nan}, "sums [nan] cannot be"),
        ("sums", {"ce": [1]}, "counters.sums.ce: expected a number"),
        ("sums", [1.0], "counters.sums: expected a mapping"),
        ("stop", 3, "counters.stop: unknown field; did you mean step?"),
    ],
)
def test_counters_that_no_run_has(run: Path, name: str, value: Any, message: str) -> None:
    rewrite(run / CHECKPOINT, lambda header: header["counters"].update({name: value}))
    text = refused(run)
    assert message in text
    assert text.endswith("; delete it to start the run again")
    assert "0" * 300 not in text


@pytest.mark.parametrize(
    "name", ["step", "seconds", "best_nll", "best_epoch", "finished", "threads", "notes", "sums"]
)
def test_counters_that_are_missing(run: Path, name: str) -> None:
    rewrite(run / CHECKPOINT, lambda header: header["counters"].pop(name))
    assert f"counters.{name} is missing; delete it to start" in refused(run)


@pytest.mark.parametrize("name", ["counters", "fingerprint", "groups"])
@pytest.mark.parametrize("value", [None, 3, "x", [], [1], {"a": 1}, [["step"]], math.nan])
def test_headers_that_cannot_be(run: Path, name: str, value: Any) -> None:
    rewrite(run / CHECKPOINT, lambda header: header.update({name: value}))
    refused(run)


@pytest.mark.parametrize("name", ["counters", "fingerprint", "groups", "format"])
def test_entries_of_the_header_that_are_missing(run: Path, name: str) -> None:
    rewrite(run / CHECKPOINT, lambda header: header.pop(name))
    refused(run)


def test_a_fingerprint_that_is_nested_too_deeply(run: Path) -> None:
    deep: Any = {}
    for _ in range(800):
        deep = {"a": deep}
    rewrite(run / CHECKPOINT, lambda header: header["fingerprint"].update(head=deep))
    refused(run)


def without(group: str) -> Callable[[dict[str, Tensor]], None]:
    """Deletes the tensors of a group."""

    def change(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.startswith(f"{group}/")]:
            del tensors[name]

    return change


@pytest.mark.parametrize("group", ["step", "optimizer", "best"])
def test_groups_that_are_missing(run: Path, group: str) -> None:
    rewrite(run / CHECKPOINT, lambda header: header["groups"].remove(group))
    assert f"tensor '{group}/" in refused(run)
    data = stopped()[0]
    (run / CHECKPOINT).write_bytes(data)
    rewrite(run / CHECKPOINT, lambda header: header["groups"].remove(group), without(group))
    assert "its groups are [" in refused(run)
    if group != "optimizer":  # before the first step it has no tensors
        (run / CHECKPOINT).write_bytes(data)
        rewrite(run / CHECKPOINT, tensors=without(group))
        refused(run)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("optimizer/999.exp_avg", torch.zeros(2), "its optimiser has '999.exp_avg' and"),
        ("optimizer/-1.exp_avg", torch.zeros(2), "its optimiser has '-1.exp_avg' and"),
        ("optimizer/x.exp_avg", torch.zeros(2), "its optimiser has 'x.exp_avg' and"),
        ("optimizer/\u0661.exp_avg", torch.zeros(2), "its optimiser has '\u0661.exp_avg' and"),
        ("optimizer/exp_avg", torch.zeros(2), "its optimiser has 'exp_avg' and"),
        ("optimizer/0.exp_avg", torch.zeros(7), "'0.exp_avg' of its optimiser has the shape (7,)"),
        ("optimizer/0.other", torch.zeros(()), "'other', 'step'] of parameter 0"),
        ("optimizer/0.exp_avg", None, "its optimiser has ['exp_avg_sq', 'step'] of parameter 0"),
        ("best/more", torch.zeros(1), "the weights of its best epoch are of another model"),
        ("step/model.more", torch.zeros(1), "the weights of its best epoch are of another model"),
        ("step/more", torch.zeros(1), "does not fit this model: Error(s) in loading"),
        ("other/x", torch.zeros(1), "a tensor 'other/x' of no group"),
        ("alone", torch.zeros(1), "a tensor 'alone' of no group"),
    ],
)
def test_tensors_that_cannot_be(run: Path, name: str, value: Tensor | None, message: str) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value

    rewrite(run / CHECKPOINT, tensors=change)
    assert message in refused(run)


def test_the_optimiser_of_another_kind(tmp_path: Path) -> None:
    train(tmp_path, optimizer="sgd")
    path = tmp_path / CHECKPOINT
    rewrite(path, lambda header: header["fingerprint"]["train"].update(optimizer="adamw"))
    assert "its optimiser has ['momentum_buffer'] of parameter 0" in refused(tmp_path)


def test_nothing_is_loaded_from_what_is_refused(run: Path) -> None:
    rewrite(run / CHECKPOINT, tensors=lambda tensors: tensors.pop("optimizer/0.step"))
    model = build(seed=9)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointError, match="its optimiser has"):
        train(run, model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def outcome(run: Path) -> str:
    """The words of a CheckpointError; empty where the run ends well."""
    try:
        assert train(run).steps == STEPS
    except CheckpointError as error:
        return str(error)
    return ""


ODD = (
    None,
    True,
    -1,
    7,
    10**30,
    0.5,
    math.nan,
    math.inf,
    "",
    "x",
    "\x1b[2J",
    [],
    {},
    [[]],
    {"": 0},
)


def mutated(value: Any, chance: random.Random) -> Any:
    """A JSON value with one thing changed somewhere in it."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.15:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: mutated(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.5:
        index = chance.randrange(len(value))
        return [*value[:index], mutated(value[index], chance), *value[index + 1 :]]
    return chance.choice(ODD)


@pytest.mark.filterwarnings("ignore:.*saved by a run with")  # another number of threads
@pytest.mark.parametrize("count", [150, pytest.param(3_000, marks=pytest.mark.slow)])
def test_a_header_with_one_wrong_value_is_refused_or_harmless(run: Path, count: int) -> None:
    chance = random.Random(count)  # noqa: S311 - no secret
    good, tensors = header_of(run / CHECKPOINT), tensors_of(run / CHECKPOINT)
    log, counted = (run / LOG).read_bytes(), 0
    for _ in range(count):
        header = {**good, "counters": mutated(good["counters"], chance)}
        header = mutated(good, chance) if chance.random() < 0.5 else header
        if not isinstance(header, dict):
            continue
        write(run / CHECKPOINT, header, tensors)
        (run / LOG).write_bytes(log)
        said = outcome(run)
        counted += said != ""
        assert said == "" or (CHECKPOINT in said and "\n" not in said)
    assert counted > count / 2


# -- the log ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{broken", "it is no JSON"),
        (b"", "it is no JSON"),
        (b"\xff\xfe", "it is no JSON"),
        (b'{"step": "\xe9"}', "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[1]", "it has no step"),
        (b"{}", "it has no step"),
        (b'{"step": null}', "it has no step"),
        (b'{"step": true}', "it has no step"),
        (b'{"step": "4"}', "it has no step"),
        (b'{"step": 4}', "it has no epoch"),
        (b'{"step": 4, "epoch": 0, "loss": "low"}', "it has no loss"),
        (
            b'{"step": 4, "epoch": 0, "loss": 1, "learning_rate": 1, "seconds": 1}',
            "it has no terms",
        ),
        (
            b'{"step": 4, "epoch": 0, "loss": 1, "learning_rate": 1, "seconds": 1, "terms": {}}',
            "router is not in every epoch",
        ),
    ],
)
def test_lines_of_the_log_that_cannot_be(run: Path, line: bytes, message: str) -> None:
    log = (run / LOG).read_bytes()
    (run / LOG).write_bytes(log + line + b"\n" + log)
    text = refused(run, LOG)
    assert f"{run / LOG} line 2 is damaged: {message}" in text
    assert "put a whole copy of the file there, or delete it and the checkpoint" in text
    assert (run / LOG).read_bytes() == log + line + b"\n" + log  # nothing was rewritten


def test_a_last_line_that_was_cut_off_is_dropped(run: Path) -> None:
    log = (run / LOG).read_bytes()
    (run / LOG).write_bytes(log + b'{"step": 7, "ep\xff')
    assert len(train(run).history) == 3
    assert (run / LOG).read_bytes().startswith(log)
