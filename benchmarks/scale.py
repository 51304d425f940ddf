"""How cost grows: time and memory with rows, classes, features, heads and processes.

Each case is a process of its own with one thread (two with two processes), whose peak memory is
that of its resident set. A table shows ratios to its first row, which come from the same run.

    python benchmarks/scale.py --out docs/records/scale.jsonl
    python benchmarks/scale.py --tables rows density --out FILE
    python benchmarks/scale.py --show docs/records/scale.jsonl

Cases that the file holds already are not measured again. `--quick` takes small ones.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.utils.data import DataLoader, IterableDataset

from gemfi import Objective, TrainConfig, as_split, build_model, fit, processes, scores
from gemfi._environment import environment
from gemfi.density import ClassGaussians
from gemfi.processes import process_group, shared_by_processes
from gemfi.synchronised import synchronised

Case = dict[str, Any]

BATCH: Final = 128  # of a step
SECONDS: Final = float(os.environ.get("SCALE_SECONDS", "2"))  # a thing is repeated so long
ROWS: Final = 8_192 if SECONDS else 1_024  # that statistics are fitted on
IMAGES: Final = ROWS // 8  # the same of several processes
PLANNED: Final = 1_024  # rows a process and step in the plan
TABLES: Final[dict[str, list[Case]]] = {
    "rows": [{"rows": 10**power} for power in (4, 5, 6, 7)],
    "classes": [{"classes": each} for each in (10, 100, 1_000, 10_000)],
    "features": [{"features": each} for each in (64, 256, 1_024, 4_096)],
    "heads": [{"heads": each} for each in (1, 2, 3, 5, 10)],
    "density": [
        {"classes": classes, "features": features}
        for classes, features in (
            (10, 64), (10, 512), (10, 2_048), (10, 4_096), (10, 8_192), (10, 16_384),
            (100, 512), (1_000, 64), (1_000, 512), (10_000, 64), (10_000, 512), (10_000, 4_096),
        )
    ],
    "processes": [
        {"network": network, "processes": processes}
        for network in ("perceptron", "resnet18")
        for processes in (1, 2)
    ],
}  # fmt: skip
QUICK: Final[dict[str, list[Case]]] = {
    "rows": [{"rows": 2_048}, {"rows": 4_096}],
    "classes": [{"classes": 4}, {"classes": 8}],
    "features": [{"features": 8}, {"features": 16}],
    "heads": [{"heads": 1}, {"heads": 2}],
    "density": [{"classes": 2, "features": 8}, {"classes": 2, "features": 7_072}],
    "processes": [{"network": "perceptron", "processes": each} for each in (1, 2)],
}


# -- what is measured -----------------------------------------------------------------------------


def peak() -> float:
    """Most memory that was resident in this process, in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def median(act: Callable[[], Any], *, least: int = 3) -> float:
    """Seconds of an act that was done once before."""
    act()
    taken: list[float] = []
    while len(taken) < (least if SECONDS else 1) or sum(taken) < SECONDS:
        start = time.perf_counter()
        act()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def once(act: Callable[[], Any]) -> float:
    """Seconds of an act."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def made(count: int, classes: int, features: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows around the centres of their classes, the same number of each."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(classes, features, generator=torch.Generator().manual_seed(1))
    y = torch.arange(count) % classes
    return centre[y] + torch.randn(count, features, generator=generator), y


class Made(IterableDataset[Any]):
    """Batches of rows that are made when they are asked for, so that any number takes no memory."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self.rows, 1_024):
            yield made(min(1_024, self.rows - start), 10, 64, seed=start)


def measure_rows(rows: int) -> dict[str, float]:
    """An epoch of training on a stream, and the statistics after it."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    model = build_model("gem-fi", backbone, 10, num_features=64)
    train = as_split(DataLoader(Made(rows), batch_size=None), role="train", length=rows)
    held = as_split(*made(1_000, 10, 64, seed=-1), role="validation")
    start, config = time.perf_counter(), TrainConfig(epochs=1, batch_size=1_024)
    result = fit(model, train, held, config, progress=False)
    epoch = float(result.history[0]["seconds"])
    return {
        "train": epoch,
        "statistics": time.perf_counter() - start - epoch,
        "weights": float(sum(each.numel() for each in model.parameters())),
    }


def measure_step(classes: int = 10, features: int = 512, heads: int = 3) -> dict[str, float]:
    """A step on features, the statistics of `ROWS` rows, and the answers to a batch."""
    torch.manual_seed(0)
    config = build_model("gem-fi", nn.Identity(), 2, num_features=2).head.config
    config = type(config)(**{**vars(config), "num_components": heads})
    model = build_model("gem-fi", nn.Identity(), classes, num_features=features, config=config)
    x, y = made(ROWS, classes, features)
    objective = Objective(model, total_steps=10**6)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        objective(x[:BATCH], y[:BATCH]).backward()
        optimizer.step()

    found = {"step": median(step)}
    train = as_split(x, y, role="train", num_classes=classes)
    held = as_split(x[:BATCH], y[:BATCH], role="validation", num_classes=classes)
    found["statistics"] = once(lambda: model.finish(train, held))
    found["predict"] = median(lambda: model.predict(x[:BATCH]))
    belief = model.predict(x[:BATCH])
    others = [score for name, score in scores.SCORES.items() if name != "dissonance"]
    found["scores"] = median(lambda: [score(belief) for score in others])
    found["dissonance"] = median(lambda: scores.dissonance(belief[:4]), least=1) * BATCH / 4
    return {**found, "weights": float(sum(each.numel() for each in model.parameters()))}


def measure_density(classes: int, features: int) -> dict[str, Any]:
    """The statistics of `ROWS` rows in batches of 512, the fit, and answers to `BATCH` rows."""
    gaussians = ClassGaussians(classes, features)
    found = gaussians.statistics()
    x, y = made(ROWS // 2, classes, features)

    def update() -> None:
        for z, labels in zip(torch.split(x, 512), torch.split(y, 512), strict=True):
            found.update(z, labels)

    taken = {"update": once(update) + once(update)}
    taken["fit"] = once(lambda: gaussians.fit(found))
    taken["answer"] = median(lambda: gaussians(x[:BATCH]))
    kept = sum(each.numel() for each in (found.outer, found.total, found.count))
    form = "low rank" if gaussians.rank else "tied" if gaussians.tied else "class"
    return {**taken, "form": form, "numbers": float(kept)}


# -- processes ------------------------------------------------------------------------------------


@contextlib.contextmanager
def counted(sizes: dict[str, float]) -> Iterator[None]:
    """Count the bytes that a process gives to others."""
    plain = distributed.all_gather, distributed.all_reduce, distributed.all_gather_object
    exchange = processes._exchange  # what batch norms of one machine use

    def gather(parts: Any, mine: Tensor, *rest: Any) -> Any:
        sizes["gathered"] += mine.nbytes
        return plain[0](parts, mine, *rest)

    def reduce(mine: Tensor, *rest: Any, **options: Any) -> Any:
        sizes["reduced"] += mine.nbytes
        return plain[1](mine, *rest, **options)

    def gather_objects(parts: Any, mine: Any) -> None:
        sizes["gathered"] += len(pickle.dumps(mine))
        plain[2](parts, mine)

    def by_socket(peers: Any, mine: Tensor) -> Tensor:
        sizes["gathered"] += mine.nbytes
        return exchange(peers, mine)

    names = ("all_gather", "all_reduce", "all_gather_object")
    try:
        processes._exchange = by_socket
        for name, counting in zip(names, (gather, reduce, gather_objects), strict=True):
            setattr(distributed, name, counting)
        yield
    finally:
        processes._exchange = exchange
        for name, usual in zip(names, plain, strict=True):
            setattr(distributed, name, usual)


def network(name: str) -> tuple[nn.Module, tuple[int, ...], int]:
    """A backbone, the shape of its inputs, and the number of its features."""
    if name == "resnet18":
        backbone = build_model("softmax", "resnet18", 10, width=16).backbone
        return backbone, (3, 32, 32), 128
    layers = [nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers), (512,), 512


def step_bytes(model: nn.Module, sample: int, features: int, batch: int) -> dict[str, float]:
    """What a process gives in a step, by formula: gradients and counts; the rest of the batch.

    Args:
        model: all of it.
        sample: bytes of an input.
        features: D.
        batch: rows of this process.
    """
    weights = sum(each.numel() for each in model.parameters() if each.requires_grad)
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    return {
        "reduced": 4.0 * weights + 16,
        "gathered": sum(16.0 * part.num_features + 4 for part in norms)
        + batch * (8 + sample + 4.0 * features) + 3 * 8,
    }  # fmt: skip


def fit_bytes(density: ClassGaussians) -> float:
    """What a process all-reduces for the statistics, by formula: sums, and no feature."""
    classes, features = density.means.shape
    moments = 1 if density.tied else classes
    return 8.0 * (
        1 + classes + classes * features + moments * features * (density.sketch or features)
    )


def measure_processes(network_name: str, batch: int = BATCH) -> dict[str, float]:
    """A step and the statistics, in as many processes as there are, and what they say."""
    with process_group("cpu"):
        alone = not distributed.is_initialized()
        rank, count = (0, 1) if alone else (distributed.get_rank(), distributed.get_world_size())
        torch.manual_seed(0)
        backbone, shape, features = network(network_name)
        model = build_model("gem-fi", backbone, 10, num_features=features)
        x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0))
        y = torch.arange(batch) % 10
        objective = Objective(model, total_steps=100)
        sizes = {"reduced": 0.0, "gathered": 0.0}
        step_loss: nn.Module = objective
        if count > 1:
            step_loss, group = shared_by_processes(objective), distributed.group.WORLD
            assert group is not None  # noqa: S101 - it has begun
            # torch's own sum, called where it is counted
            step_loss.register_comm_hook(None, lambda _, bucket: allreduce_hook(group, bucket))
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def step() -> None:
            optimizer.zero_grad()
            step_loss(x[rank::count], y[rank::count]).backward()
            optimizer.step()

        with synchronised(model):
            taken = [once(step) for _ in range(24 if SECONDS else 3)]  # as often in each process
        with counted(sizes), synchronised(model):
            sizes.update(dict.fromkeys(sizes, 0.0))  # they have met
            step()
        in_step = dict(sizes)
        split = as_split(
            x.repeat(IMAGES // batch, *(1 for _ in shape)),
            y.repeat(IMAGES // batch),
            role="train",
        )
        held = as_split(x, y, role="validation")
        sizes.update(dict.fromkeys(sizes, 0.0))
        with counted(sizes):
            taken_by_fit = once(lambda: model.finish(split, held))
        formula = step_bytes(model, x[0].nbytes, features, batch // count)
        density: Any = model.head.density
        formula["fit"] = fit_bytes(density)
        return {
            "rank": rank,
            "step": statistics.median(taken[2:]),
            "statistics": taken_by_fit,
            **{f"step_{name}": value for name, value in in_step.items()},
            **{f"formula_{name}": value * (count > 1) for name, value in formula.items()},
            **{f"fit_{name}": value for name, value in sizes.items()},
        }


# -- cases ----------------------------------------------------------------------------------------


def measure(table: str, case: Case) -> dict[str, Any]:
    """One case, in this process."""
    if table == "rows":
        return measure_rows(case["rows"])
    if table == "density":
        return measure_density(case["classes"], case["features"])
    if table == "processes":
        return measure_processes(case["network"])
    return measure_step(**case)


def in_a_process(table: str, case: Case, *, quick: bool = False) -> dict[str, Any]:
    """One case in a process of its own, or in several."""
    command = [sys.executable]
    if case.get("processes", 1) > 1:
        count = str(case["processes"])
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
    command += [__file__, "--case", json.dumps({"table": table, **case})]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    threads |= {"SCALE_SECONDS": "0"} if quick else {}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=os.environ | threads
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{table} {case} failed with {done.returncode}:\n{done.stderr[-3000:]}")
    return min(lines, key=lambda each: each.get("rank", 0))


def run(tables: Mapping[str, list[Case]], out: Path, *, quick: bool) -> None:
    """Measure what the file does not hold, and add it line by line."""
    known = [(each["table"], each["case"]) for each in read(out)] if out.exists() else []
    for table, cases in tables.items():
        for case in cases:
            if (table, case) in known:
                continue
            found = in_a_process(table, case, quick=quick)
            about = environment()
            facts = {"commit": about.commit, "changed": about.changed, "torch": torch.__version__}
            line = json.dumps({"table": table, "case": case, **found, **facts})
            with out.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            print(line, flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# -- tables ---------------------------------------------------------------------------------------


def ratio(values: Sequence[float], unit: float = 1e3, name: str = "ms") -> list[str]:
    """Each value in a unit of time, and in parts of the first."""
    return [f"{_short(value * unit)} {name} ({_short(value / values[0])})" for value in values]


def _short(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def columns(table: str, found: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Head of a column -> its cells."""
    keys = list(found[0]["case"])
    names = {"rows": "N", "classes": "C", "features": "D", "heads": "K"}
    shown = {
        names.get(key, key): [
            f"{each['case'][key]:,}" if key in names else str(each["case"][key]) for each in found
        ]
        for key in keys
    }

    def of(name: str) -> list[float]:
        return [each[name] for each in found]

    if table == "rows":
        shown["an epoch"] = ratio(of("train"), 1, "s")
        shown["statistics"] = ratio(of("statistics"), 1, "s")
        both = [
            (a + b) / n["case"]["rows"]
            for a, b, n in zip(of("train"), of("statistics"), found, strict=True)
        ]
        shown["a row"] = ratio(both, 1e6, "µs")
    elif table == "density":
        shown["covariance"] = [each["form"] for each in found]
        shown["statistics kept"] = [f"{_short(8e-6 * value)} MB" for value in of("numbers")]
        shown[f"{ROWS:,} rows"] = ratio(of("update"), 1, "s")
        shown["fit"] = ratio(of("fit"), 1, "s")
        shown[f"log p of {BATCH}"] = ratio(of("answer"))
    elif table == "processes":
        alone = {each["case"]["network"]: each["step"] for each in reversed(found)}
        shown["a step"] = [
            ratio([alone[each["case"]["network"]], each["step"]])[1] for each in found
        ]
        for name, label in (("reduced", "all-reduced"), ("gathered", "gathered")):
            pairs = zip(of(f"step_{name}"), of(f"formula_{name}"), strict=True)
            shown[f"{label} a step (formula)"] = [f"{a:,.0f} ({b:,.0f})" for a, b in pairs]
        pairs = zip(of("fit_reduced"), of("formula_fit"), strict=True)
        shown["by the fit (formula)"] = [f"{a:,.0f} ({b:,.0f})" for a, b in pairs]
        shown["gathered by the fit"] = [f"{each:,.0f}" for each in of("fit_gathered")]
    else:
        shown["weights"] = [f"{value:,.0f}" for value in of("weights")]
        shown["a step"] = ratio(of("step"))
        shown["statistics"] = ratio(of("statistics"), 1, "s")
        for name in ("predict", "scores", "dissonance"):
            shown[name] = ratio(of(name))
    return shown | {"peak": [f"{value:,.0f} MB" for value in of("peak")]}


def shown(table: str, records: Sequence[Mapping[str, Any]]) -> str:
    """A table in Markdown."""
    cells = columns(table, [each for each in records if each["table"] == table])
    lines = [" | ".join(cells), "|".join("---" for _ in cells)]
    lines += [" | ".join(row) for row in zip(*cells.values(), strict=True)]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def plan(records: Sequence[Mapping[str, Any]]) -> str:
    """An epoch of 10⁹ rows on p processes, from what was measured, in Markdown.

    `PLANNED` rows a process and step; gradients go over the wire 2(p − 1)/p times.
    """
    rows = [each for each in records if each["table"] == "rows"][-1]
    deep = {
        each["case"]["processes"]: each
        for each in records
        if (each["table"], each["case"].get("network")) == ("processes", "resnet18")
    }
    seen = rows["case"]["rows"]
    networks = {
        "64 features, perceptron": (
            rows["train"] / seen,
            rows["statistics"] / seen,
            4 * rows["weights"],
        ),
        "3×32×32, ResNet-18 of width 16": (
            deep[1]["step"] / BATCH,
            deep[1]["statistics"] / IMAGES,
            deep[2]["formula_reduced"],
        ),
    }
    lines = ["| rows | p | an epoch | statistics | all-reduced a step | of the step's time |"]
    lines.append("|---|---|---|---|---|---|")
    for name, (train, fit_, reduced) in networks.items():
        for count in (1, 16, 256):
            wire = 2 * (count - 1) / count * reduced
            step, talk = PLANNED * train, wire / 1e9
            epoch = 1e9 / count / PLANNED * (step + talk) / 3600
            cells = [
                name, str(count), f"{_short(epoch)} h",
                f"{_short(1e9 / count * fit_ / 3600)} h", f"{_short(wire / 1e6)} MB",
                f"{_short(100 * talk / (step + talk))} %",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("scale.jsonl"))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", type=Path)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        table = given.case.pop("table")
        found = measure(table, given.case)
        sys.stdout.write(json.dumps({**found, "peak": peak()}) + "\n")
        return
    if not given.show:
        chosen = QUICK if given.quick else TABLES
        run({name: chosen[name] for name in given.tables}, given.out, quick=given.quick)
    records = read(given.show or given.out)
    for table in (name for name in TABLES if name in {each["table"] for each in records}):
        print(f"\n{table}\n\n{shown(table, records)}")
    if {"rows", "processes"} <= {each["table"] for each in records}:
        print(f"\nplan\n\n{plan(records)}")


if __name__ == "__main__":
    main()
