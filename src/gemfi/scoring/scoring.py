"""The loop: pieces of inputs to beliefs, decisions and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from gemfi.belief import Belief
from gemfi.bundle import Bundle
from gemfi.decisions import Decisions, Policy
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.scoring.inputs import find_inputs, stream_inputs
from gemfi.scoring.rows import Column, columns_of, rows_of
from gemfi.scoring.writers import check_output, writer

SHOWN = 20
"""Rows that are kept to be shown."""


@dataclass
class Scored:
    """What was done.

    Attributes:
        columns: of the rows.
        count: how many inputs there were.
        verdicts: how many inputs have each verdict, with a policy.
        labels: how many inputs have each label.
        failed: how many inputs could not be read.
        first: the first rows.
    """

    columns: list[Column]
    count: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    first: list[list[Any]] = field(default_factory=list)


def score_files(
    bundle: Bundle,
    inputs: Sequence[Path | str],
    out: Path | None = None,
    *,
    policy: Policy | None = None,
    probs: bool = False,
    batch_size: int = 512,
    progress: bool | None = None,
) -> Scored:
    """Ask a model about files; an input that cannot be read has a row that says why.

    Args:
        bundle: the model.
        inputs: images, folders of images, `.npy`, `.npz`, `.csv`, `.parquet`.
        out: `.csv`, `.jsonl` or `.parquet`; None to write nothing.
        policy: adds a verdict and a p-value.
        probs: add the probability of each class.
        batch_size: inputs of a forward pass.
        progress: a progress bar: yes, no, or (None) if standard error is a terminal.
    """
    files = find_inputs(inputs)
    if out is not None:
        check_output(out, files)
    names = bundle.info.class_names
    columns = columns_of(_trial(bundle, batch_size), names, policy=policy, probs=probs)
    scored = Scored(columns)
    asker = _Asker(bundle.model, policy, batch_size)
    hidden = None if progress is None else not progress
    with (
        nullcontext() if out is None else writer(out, columns) as write,
        tqdm(desc="predict", unit="input", disable=hidden, leave=False) as bar,
    ):
        for piece, x in stream_inputs(files, bundle):
            belief, decisions = asker.answers(x, piece.errors)
            rows = rows_of(
                piece.names, piece.errors, belief, names, decisions=decisions, probs=probs
            )
            if write is not None:
                write(rows)
            scored.first += rows[: max(0, SHOWN - len(scored.first))]
            scored.count += len(rows)
            scored.failed += len(piece.errors)
            good = [row for row in range(len(rows)) if row not in piece.errors]
            scored.labels.update(rows[row][1] for row in good)
            if decisions is not None:
                verdicts = decisions.names()
                scored.verdicts.update(verdicts[row] for row in good)
            bar.update(len(rows))
    return scored


@dataclass(frozen=True)
class _Asker:
    """A model with its policy, whom an input that it cannot judge does not stop."""

    model: Model
    policy: Policy | None
    batch_size: int

    def answers(self, x: Tensor, errors: dict[int, str]) -> tuple[Belief, Decisions | None]:
        """Beliefs and decisions on inputs; `errors` gains those which the model cannot judge."""
        try:
            return self._ask(x)
        except InputError:
            refused = self._refused(x)
        errors |= refused
        x[list(refused)] = 0
        return self._ask(x)

    def _ask(self, x: Tensor) -> tuple[Belief, Decisions | None]:
        belief = self.model.predict(x, self.batch_size)
        return belief, None if self.policy is None else self.policy(belief)

    def _refused(self, x: Tensor, first: int = 0) -> dict[int, str]:
        """Row -> why, by halves."""
        try:
            self._ask(x)
        except InputError as error:
            if len(x) == 1:
                return {first: f"the model cannot judge it: {error}"}
        else:
            return {}
        half = len(x) // 2
        return self._refused(x[:half], first) | self._refused(x[half:], first + half)


def _trial(bundle: Bundle, batch_size: int) -> Belief:
    """The belief on one input of zeros, to see what the method tells."""
    kind = bundle.info.torch_dtype
    return bundle.model.predict(torch.zeros(1, *bundle.sample_shape, dtype=kind), batch_size)
