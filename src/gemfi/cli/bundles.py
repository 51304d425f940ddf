"""`gemfi bundle` and `gemfi show`: one file from a run, and what is inside of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from gemfi._files import to_json
from gemfi._text import file_size
from gemfi.bundle import write_bundle
from gemfi.bundle.file import check_ending
from gemfi.cli import options
from gemfi.decisions import Goal
from gemfi.errors import InputError
from gemfi.runs import Run, bundle_of_run, open_model


def bundle(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    policy: options.Goal = None,
) -> None:
    """Write a finished run as one file, model.safetensors, that holds all that it takes to use it.

    Args:
        run: the folder of a run, as gemfi train prints it.
        file: to write, which ends in .safetensors.
        policy: also fit a policy on the calibration data of the task, such as
            false_alarm=0.05,risk=0.02; with it the scores of these data are kept, so that a policy
            for another goal needs the file alone.
    """
    check_ending(Path(file))
    goal = None if policy is None else Goal.parse(policy)
    if not Path(run).is_dir():
        raise InputError(f"no run {run}: give the folder of a run, as gemfi train prints it")
    made = bundle_of_run(Run.open(run), goal)
    path = write_bundle(file, made)
    print(made)
    print(f"\nWrote {path} ({file_size(path.stat().st_size)})")


def show(model: options.Model, backbone: options.Backbone = None, *, json: bool = False) -> None:
    """Tell what is inside of a trained model: method, inputs, classes, policy, numbers, origin.

    Args:
        model: a bundle, the folder of a run, or a bundle that comes with the package:
            mnist-gem-fi.
        backbone: where the network of a bundle is whose backbone is of your own, such as mynet:Net.
        json: everything, as JSON.
    """
    opened = open_model(model, backbone)
    print(to_json(opened.info.to_plain(), indent=2) if json else opened)
