"""The loop: pieces of inputs to beliefs, decisions and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from gemfi.belief import Belief
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
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
        check_output(out)
    names = bundle.info.class_names
    columns = columns_of(_trial(bundle), names, policy=policy, probs=probs)
    scored = Scored(columns)
    hidden = None if progress is None else not progress
    with (
        nullcontext() if out is None else writer(out, columns) as write,
        tqdm(desc="predict", unit="input", disable=hidden, leave=False) as bar,
    ):
        for piece, x in stream_inputs(files, bundle):
            belief = bundle.model.predict(x, batch_size)
            rows, decisions = rows_of(
                piece.names, piece.errors, belief, names, policy=policy, probs=probs
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


def _trial(bundle: Bundle) -> Belief:
    """The belief on one input of zeros, to see what the method tells."""
    kind = bundle.model.sample_dtype
    return bundle.model.predict(torch.zeros(1, *bundle.sample_shape, dtype=kind))
