"""`gemfi bundle`, `show` and `export`: a model as one file, what is inside, and as a graph."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import tyro

from gemfi._config import check_int
from gemfi._files import to_json, write_atomically
from gemfi._text import file_size
from gemfi.bundle import Bundle, write_bundle
from gemfi.bundle.bundle import check_ending
from gemfi.cli import options
from gemfi.decisions import Goal
from gemfi.errors import InputError
from gemfi.runs import Run, bundle_of_run, fit_policy, open_model

if TYPE_CHECKING:
    from gemfi.export.deployed import Deployed
    from gemfi.export.parity import Given, Graph

_ENDINGS: Final = {"onnx": ".onnx", "int8": ".onnx", "program": ".pt2"}


def bundle(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")],
    policy: options.Goal = None,
) -> None:
    """Write a finished run as one file, model.safetensors, that holds all that it takes to use it.

    Args:
        run: the folder of a run, as gemfi train prints it.
        file: to write, which ends in .safetensors.
        policy: also fit a policy on the calibration data of the task; their scores are kept then,
            so that a policy for another goal needs the file alone.
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
        model: the folder of a run, a bundle (.safetensors), or mnist-gem-fi of the package.
        backbone: of a bundle whose network is of your own, where that is, such as mynet:Net.
        json: everything, as JSON.
    """
    opened = open_model(model, backbone)
    print(to_json(opened.info.to_plain(), indent=2) if json else opened)


def export(
    model: options.Model,
    onnx: options.File = None,
    int8: options.File = None,
    program: options.File = None,
    policy: options.Goal = None,
    backbone: options.Backbone = None,
    data: Annotated[tuple[str, ...], options.shown_as("DATA ...")] = (),
    inputs: int = 1000,
) -> None:
    """Write a model as a graph that runs without gemfi: ONNX, or a program of torch.export.

    Scaling, normalisation, network, density, temperature, gate, scores and decision are all inside.
    The categories and missing values of a table are not: its graph takes the encoded numbers.
    Each graph is first compared with the model, and written only if log-probabilities are within
    1e-4 and no decision differs but those as close to a boundary.

    Args:
        model: the folder of a run, a bundle (.safetensors), or mnist-gem-fi of the package.
        onnx: a file .onnx to write.
        int8: also an .onnx with the weights of the network in eight bits; tells what it changes.
        program: a file .pt2 to write, for torch.export.load.
        policy: what to decide by, such as false_alarm=0.05,risk=0.02, in place of its policy.
        backbone: of a bundle whose network is of your own, where that is, such as mynet:Net.
        data: inputs to compare on: the name of a task, of which validation and OOD-validation data
            are taken, or files as for gemfi predict; without any, random ones.
        inputs: how many of them, of each set of a task.
    """
    from gemfi.export import deployed as module  # noqa: PLC0415 - half of torch comes with it
    from gemfi.export import graphs as formats  # noqa: PLC0415
    from gemfi.export import parity  # noqa: PLC0415

    files = _checked({"onnx": onnx, "int8": int8, "program": program})
    check_int("--inputs", inputs, 1)
    if files.keys() & {"onnx", "int8"}:
        for package in formats.PACKAGES:  # what is missing is said before the work
            formats.require(package)
    goal = None if policy is None else Goal.parse(policy)
    source = open_model(model, backbone)
    deployed = module.Deployed(
        source.model, source.policy if goal is None else fit_policy(source, goal)
    )
    given = parity.gather(source, deployed, data, inputs)
    print(_heading(source, deployed, given))
    graphs = parity.make_graphs(source, deployed, given, files, inputs)
    for graph in graphs:
        write_atomically(graph.path, graph.data)
    print(_shown(graphs))
    if (example := files.get("onnx", files.get("int8"))) is not None:
        code = textwrap.indent(module.snippet(deployed, example.name), "    ")
        print(f"\nTo run it with onnxruntime alone:\n\n{code}", end="")


def _shown(graphs: Sequence[Graph]) -> str:
    """Files with their sizes, and how they compare with the model."""
    verdicts = next((graph.parity.verdicts for graph in graphs if graph.parity), None) or {}
    counts = ", ".join(f"{name} {count:,}" for name, count in verdicts.items())
    lines = [f"decisions {counts}"] if counts else []
    for graph in graphs:
        lines.append(f"wrote     {graph.path} ({file_size(len(graph.data))})")
        lines += [" " * 10 + line for line in graph.lines]
    return "\n".join(lines)


def _heading(bundle: Bundle, deployed: Deployed, given: Given) -> str:
    policy = deployed.policy
    decides = "no policy" if policy is None else f"policy {policy.goal}"
    lines = [
        f"model     {bundle.name}: {bundle.info.method} on {bundle.info.network}, {decides}",
        f"outputs   {', '.join(deployed.output_names)}",
        f"compared  on {len(given.x):,} {given.words}",
    ]
    if bundle.info.columns is not None:
        lines.insert(
            1,
            f"input     {len(bundle.info.columns.outputs)} numbers: categories and missing values "
            "are encoded outside of the graph, as its metadata say",
        )
    if given.task is None and given.words.startswith("random"):
        lines[-1] += "; --data takes real ones"
    return "\n".join(lines)


def _checked(given: Mapping[str, Any]) -> dict[str, Path]:
    """The files to write, refused before the work if they could not be."""
    files = {option: Path(text) for option, text in given.items() if text is not None}
    if not files:
        raise InputError("give at least one file to write: --onnx, --int8 or --program")
    for option, path in files.items():
        if path.suffix != _ENDINGS[option]:
            raise InputError(f"--{option} {path}: it must end in {_ENDINGS[option]}")
        options.check_target(f"--{option}", path)
    if len({path.resolve() for path in files.values()}) < len(files):
        raise InputError("each of --onnx, --int8 and --program needs a file of its own")
    return files
