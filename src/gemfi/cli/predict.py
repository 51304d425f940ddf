"""`gemfi predict`: a trained model on files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import tyro

from gemfi._text import aligned, printable
from gemfi.cli import options
from gemfi.decisions import Goal
from gemfi.devices import place
from gemfi.errors import CheckFailedError
from gemfi.processes import process_group, together
from gemfi.runs import fit_policy, open_model
from gemfi.scoring import SHOWN, Scored, check_output, find_inputs, score_files

_Inputs = tyro.conf.arg(metavar="INPUT ...")
_Path = tyro.conf.arg(metavar="PATH", help_behavior_hint="")


def predict(
    model: options.Model,
    inputs: Annotated[tuple[str, ...], tyro.conf.Positional, _Inputs],
    policy: options.Goal = None,
    out: Annotated[str | None, _Path] = None,
    backbone: options.Backbone = None,
    batch_size: int = 512,
    device: options.Device = "auto",
    ray: options.Ray = None,
    key: Annotated[str | None, tyro.conf.arg(metavar="COLUMN", help_behavior_hint="")] = None,
    *,
    probs: bool = False,
    quiet: bool = False,
) -> None:
    """Ask a trained model about images, folders of images, arrays and tables.

    Each input has a row: its label, its confidence and its uncertainties; with a policy also
    accept, abstain or unfamiliar. Files of any size are read a piece at a time. An input that
    cannot be read has a row that says why, and the exit code is then 1.

    Args:
        model: the folder of a run, a bundle (.safetensors), or mnist-gem-fi, which comes with the
            package.
        inputs: .png .jpg .bmp .webp, .npy .npz .csv .parquet, folders of images or of .parquet, and
            all but .csv also where pyarrow reads them, such as s3://bucket/folder.
        policy: what to decide by, such as false_alarm=0.05 or false_alarm=0.05,risk=0.02, in place
            of the policy of a bundle; it is fitted on the calibration data that a bundle remembers,
            or on those of the run's task.
        out: .csv, .jsonl or .parquet; without it the first rows are shown.
        backbone: where the network of a bundle is whose backbone is of your own, such as mynet:Net.
        batch_size: inputs of a forward pass.
        device: auto, cpu, cuda, cuda:N or mps.
        ray: score on a Ray cluster, with a model a worker: auto, local (started here), host:port or
            ray://host:port. Inputs must be where the workers can read them.
        key: with --ray, write rows as they are ready, and not in order: input, or the column of
            parquet files whose cells then stand in the column input.
        probs: also write the probability of each class.
        quiet: print nothing but errors.
    """
    goal = None if policy is None else Goal.parse(policy)
    bundle = open_model(model, backbone)
    if ray is None:
        place(bundle.model, device)
    files, target = find_inputs(inputs), None if out is None else Path(out)
    if target is not None:
        check_output(target, files)  # before the policy, which takes its time
    fitted = bundle.policy if goal is None else fit_policy(bundle, goal)
    if fitted is not None and not quiet:
        print(f"{fitted.summary()}\n")
    with process_group(device) as is_first, together():
        scored = score_files(
            bundle,
            files,
            target if is_first else None,
            policy=fitted,
            probs=probs,
            batch_size=batch_size,
            progress=None if is_first and not quiet else False,
            ray=ray,
            key=key,
            device=device,
        )
    if not is_first:
        return
    if not quiet:
        print(_shown(scored, out))
    if scored.failed:
        where = "" if out is None else f"; {out} says why"
        raise CheckFailedError(
            f"{scored.failed:,} of {scored.count:,} inputs could not be read{where}"
        )


def _shown(scored: Scored, out: str | None) -> str:
    counts = scored.verdicts or scored.labels
    common = ", ".join(f"{printable(name)} {count:,}" for name, count in counts.most_common(6))
    total = f"{scored.count:,} input{'s' if scored.count != 1 else ''}: {common or 'none read'}"
    if out is not None:
        return f"{total}\nWrote {out}."
    hidden = ("prob_",) if scored.failed else ("prob_", "error")
    names = [name for name, _ in scored.columns]
    shown = [place for place, name in enumerate(names) if not name.startswith(hidden)]
    rows = [[names[place].replace("_", " ") for place in shown]]
    rows += [[_cell(row[place]) for place in shown] for row in scored.first]
    if scored.count > SHOWN:
        total = f"The first {SHOWN} of {scored.count:,}; --out writes all.\n\n{total}"
    else:
        total = f"\n{total}"
    return "\n".join([*aligned(rows, left=len(shown)), total])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))
