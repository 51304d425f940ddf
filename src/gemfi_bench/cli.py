"""`gemfi bench` and `gemfi report`."""

from __future__ import annotations

import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import torch
import tyro

from gemfi._config import check_int
from gemfi._drawing import require_matplotlib
from gemfi._files import runs_root, write_atomically
from gemfi._text import UNDEFINED, WIDTH, aligned, duration, number
from gemfi.cli.options import Device, Ray
from gemfi.errors import InputError
from gemfi_bench.estimate import estimate, jobs_of, seconds_left
from gemfi_bench.grid import RATES, Cell
from gemfi_bench.manifest import is_kept
from gemfi_bench.overhead import keep_overhead
from gemfi_bench.protocol import Protocol, find_protocol
from gemfi_bench.record_file import RunRecord
from gemfi_bench.results import OVERHEAD, Pick, of_set
from gemfi_bench.runner import Bench, Event
from gemfi_bench.toys import train_toys
from gemfi_bench.workers import workers

_Path = tyro.conf.arg(metavar="PATH", help_behavior_hint="")
_Chosen = tyro.conf.arg(metavar="GROUP[/ROW] ...", help_behavior_hint="(default: all)")
_Count = tyro.conf.arg(metavar="N", help_behavior_hint="(default: torch's)")

Only = Callable[[Cell], bool]


def bench(
    protocol: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PROTOCOL")],
    out: Annotated[str | None, _Path] = None,
    only: Annotated[tuple[str, ...], _Chosen] = (),
    threads: Annotated[int | None, _Count] = None,
    device: Device = "auto",
    ray: Ray = None,
    *,
    arrays: bool = False,
    dry_run: bool = False,
    render: bool = True,
    quiet: bool = False,
) -> None:
    """Train and evaluate what a protocol compares, then make its tables, figures and report.

    What is done is not done again: the same command goes on where it was stopped, and given in
    another terminal as well, the two share the work.

    Args:
        protocol: a name, such as digits, for which nothing is downloaded, mnist or cifar10; or the
            path of your own TOML file.
        out: folder for runs, records and report; by default below GEMFI_RUNS, or the platform's
            data folder.
        only: groups of the grid, or single rows, such as methods or ablation/ablation-full;
            --dry-run shows them. The learning rates that are to be chosen come first.
        threads: of torch. One each is best where several processes share the work.
        device: auto, cpu, cuda, cuda:N or mps.
        ray: do the runs on a Ray cluster: auto, local (started here), host:port or
            ray://host:port. This process keeps the records, which are the same.
        arrays: also do runs again whose records are here without their arrays, as those of results
            under version control are (some tables and figures are made from arrays), or without an
            OOD set that was absent then and is here now.
        dry_run: print the grid, what of it is done, and how long the rest would take; run nothing.
        render: make tables, figures and report in the end.
        quiet: print where the report is (or the folder, with --no-render), and nothing else.
    """
    if threads is not None:
        check_int("--threads", threads, 1)
        torch.set_num_threads(threads)
    if render and not dry_run:
        require_matplotlib()  # fail before the training and not after it
    chosen = find_protocol(protocol)
    folder = runs_root() / "bench" / chosen.name if out is None else Path(out)
    work = Bench(chosen, folder, arrays=arrays, device=device)
    cells = work.plan()
    wanted = selection(cells, chosen, only)
    cells = [cell for cell in cells if wanted(cell)]
    if dry_run:
        print(_plan(work, cells))
        return
    try:
        _work(work, cells, wanted, ray, quiet=quiet)
        if not only:
            if not quiet and not (folder / OVERHEAD).exists():
                print("Measuring what each method costs in time and memory ...", flush=True)
            keep_overhead(work, progress=False if quiet else None)
            train_toys(folder, progress=False if quiet else None)
        if render:
            made = _render(folder, None, quiet=quiet)
            print(made if quiet else f"Report: {made}")
        else:
            print(folder if quiet else f"To render: gemfi report {shlex.quote(str(folder))}")
    except KeyboardInterrupt:
        print(f"gemfi: what was done is in {folder}; the same command resumes", file=sys.stderr)
        raise


def report(
    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
    out: Annotated[str | None, _Path] = None,
) -> None:
    """Make the tables, the figures and the report of a benchmark again; nothing is trained.

    Results that are kept without their arrays, as those under version control are, stay as they
    are: they are rendered into the folder report-NAME below the current one.

    Args:
        folder: that gemfi bench has written, complete or not.
        out: also write the report, which is one page without other files, to this file.
    """
    if out is not None and Path(out).is_dir():
        raise InputError(f"--out {out} is a folder; give a file")
    if out is not None and not Path(out).resolve().parent.is_dir():
        raise InputError(f"--out {out}: its folder does not exist")
    require_matplotlib()
    target = None
    if is_kept(Path(folder)):
        target = Path(f"report-{Path(folder).resolve().name}")
        print(f"{folder} is kept without its arrays, and stays as it is; rendering into {target}.")
    made = _render(Path(folder), target, quiet=False)
    print(f"Report: {made}")
    if out is not None:
        write_atomically(Path(out), made.read_bytes())
        print(f"Wrote {out}.")


def _render(folder: Path, out: Path | None, *, quiet: bool) -> Path:
    """Render into `out`, None for the folder itself; returns the page."""
    rendering = import_module("gemfi_bench.rendering")  # now: it is slow to load
    made: Path = rendering.render(folder, out=out, progress=False if quiet else None).report
    return made


# -- which runs -----------------------------------------------------------------------------------


def selection(cells: Sequence[Cell], protocol: Protocol, only: Sequence[str]) -> Only:
    """Which cells were asked for; those that choose learning rates, and members, belong to them.

    `only` are groups and `group/row`, as `--dry-run` shows them; none for everything.
    """
    rows: dict[str, dict[str, None]] = {}
    for group, row in map(_label, cells):
        rows.setdefault(group, {})[row] = None
    chosen: set[tuple[str, str]] = set()
    for text in only:
        group, _, row = text.partition("/")
        if group not in rows:
            raise InputError(f"--only {text}: no such group; there are: {', '.join(rows)}")
        if row and row not in rows[group]:
            known = ", ".join(rows[group])
            raise InputError(f"--only {text}: no such row; the rows of {group}: {known}")
        chosen |= {(group, name) for name in ([row] if row else rows[group])}
    parts = {one.name: one.assembled for one in protocol.contestants if one.assembled}
    chosen |= {(group, parts[row]) for group, row in chosen if row in parts}
    methods = {cell.spec.method for cell in cells if _label(cell) in chosen}

    def wanted(cell: Cell) -> bool:
        rated = cell.group == RATES and cell.spec.method in methods
        return not only or rated or _label(cell) in chosen

    return wanted


# -- the grid before the work ---------------------------------------------------------------------


def _plan(work: Bench, cells: Sequence[Cell]) -> str:
    """The grid as a table, with what is done and how long the rest would take."""
    records = work.done()
    first = {cell.key: cell for cell in reversed(cells)}  # key -> the first cell of it
    missing = [cell for key, cell in first.items() if key not in records]
    seconds = estimate(work, missing, progress=None)
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        rows.setdefault(_label(cell), []).append(cell)
    lines = [("group", "row", "seeds", "state", "time")]
    before = ""
    for (group, row), members in rows.items():
        own = [cell for cell in members if _label(first[cell.key]) == (group, row)]
        state = "as " + "/".join(_label(first[members[0].key]))
        if own:
            state = _state(members, records)
        left = [seconds[cell.key] for cell in own if cell.key in seconds]
        time_left = duration(sum(left)) if left else UNDEFINED
        seeds = " ".join(dict.fromkeys(str(cell.seed) for cell in members))
        lines.append(("" if group == before else group, row, seeds, state, time_left))
        before = group
    head, *body = aligned(lines, left=4)
    rule = "─" * max(map(len, [head, *body]))
    threads = torch.get_num_threads()
    to_do = (
        f"To do: {_runs(len(missing))}, about {duration(sum(seconds.values()))} with {threads} "
        f"{'thread' if threads == 1 else 'threads'}."
    )
    end = to_do if missing else "Nothing is to be done."
    return "\n".join([*_headline(work, len(first), len(missing)), "", head, rule, *body, "", end])


def _label(cell: Cell) -> tuple[str, str]:
    """Group and row; the runs that choose a learning rate are one row a method."""
    return cell.group, cell.spec.method if cell.group == RATES else cell.row


def _state(cells: Sequence[Cell], records: Mapping[str, RunRecord]) -> str:
    done = sum(cell.key in records for cell in cells)
    waiting = sum(cell.key not in records and not cell.ready for cell in cells)
    counts = {
        "done": done,
        "missing": len(cells) - done - waiting,
        "waiting for a learning rate": waiting,
    }
    said = [f"{count} {word}" for word, count in counts.items() if count]
    return said[0].partition(" ")[2] if len(said) == 1 else ", ".join(said)


def _headline(work: Bench, total: int, missing: int) -> list[str]:
    return [
        f"{work.protocol.name}: {work.protocol.title}",
        f"Folder: {work.folder}",
        f"{_runs(total)}, {total - missing} of them done",
    ]


def _runs(count: int) -> str:
    return f"{count:,} {'run' if count == 1 else 'runs'}"


# -- the work -------------------------------------------------------------------------------------


_TIMES: Final = ("took", "spent", "left")
_WIDE: Final = len("59 min 59 s")
_NUMBER: Final = len("99.99")


def _picks(protocol: Protocol) -> dict[str, tuple[Pick, int]]:
    """Name of a number that is shown of each run -> how it is picked, and its digits."""
    picks = {"acc": (_classified("accuracy"), 2), "NLL": (_classified("nll"), 3)}
    groups = {"near": protocol.near, "far": protocol.far}
    named: dict[str, Sequence[str] | None] = {name: sets for name, sets in groups.items() if sets}
    named = named or {"OOD": None}
    return picks | {name: (_mean_auroc(sets), 1) for name, sets in named.items()}


def _classified(metric: str) -> Pick:
    """On test data, or on validation data of a run that saw no others."""

    def pick(run: RunRecord) -> float | None:
        seen = "test" if "test" in run.numbers else "validation"
        value: float | None = run.numbers.get(seen, {}).get("id", {}).get(metric)
        return value

    return pick


def _mean_auroc(sets: Sequence[str] | None) -> Pick:
    """The mean over those of the sets that are here; None for all that are."""

    def pick(run: RunRecord) -> float | None:
        names = run.numbers.get("ood", {}) if sets is None else sets
        aurocs = [of_set(name, "epistemic", "auroc")(run) for name in names]
        known = [auroc for auroc in aurocs if auroc is not None]
        return statistics.fmean(known) if known else None

    return pick


class _Teller:
    """Prints a line for each run that ends: its numbers, what it took, what is left."""

    def __init__(self, work: Bench, cells: Sequence[Cell], only: Only) -> None:
        self.work, self.only = work, only
        self.picks = _picks(work.protocol)
        self.jobs = {job.cell.key: job for job in jobs_of(work, cells)}
        self.wide = 2 * len(str(len(self.jobs))) + 1
        self.begin = time.perf_counter()

    def begins(self) -> None:
        """What there is to do, and what the lines will say."""
        total = len(self.jobs)
        missing = len(self.jobs.keys() - self.work.done().keys())
        print("\n".join(_headline(self.work, total, missing)), flush=True)
        if missing:
            print(f"\n{_EXPLAINED.format(sets=' and '.join([*self.picks][2:]))}\n")
            print(self._line("run", _TIMES, self.picks, ""))
            print("─" * WIDTH, flush=True)

    def __call__(self, event: Event) -> None:
        """Say what happened."""
        if event.kind == "wait":
            print(f"waiting for {event.cell.title}, which another process is doing", flush=True)
        if event.kind != "end":
            return
        records = self.work.done()
        run = records[event.cell.key]
        if event.cell.key not in self.jobs:  # a learning rate that was chosen makes other runs
            cells = [cell for cell in self.work.plan() if self.only(cell)]
            self.jobs = {job.cell.key: job for job in jobs_of(self.work, cells)}
        left = seconds_left(self.jobs.values(), records)
        times = [
            duration(event.seconds),
            duration(time.perf_counter() - self.begin),
            UNDEFINED if left is None else duration(left),
        ]
        numbers = [number(pick(run), digits) for pick, digits in self.picks.values()]
        counted = f"{event.done}/{event.total}"
        print(self._line(counted, times, numbers, event.cell.title), flush=True)

    def ends(self) -> None:
        """How long it took, and whether the protocol has more to do."""
        took = duration(time.perf_counter() - self.begin)
        left = len(self.work.missing())
        if left:
            print(f"\nDone in {took} here; left of the whole protocol: {_runs(left)}.", flush=True)
        else:
            print(f"\nAll is done, in {took} here.", flush=True)

    def _line(self, run: str, times: Iterable[str], numbers: Iterable[str], title: str) -> str:
        cells = [run.rjust(self.wide), *(text.rjust(_WIDE) for text in times)]
        cells += [text.rjust(_NUMBER) for text in numbers]
        return "  ".join([*cells, title]).rstrip()


_EXPLAINED: Final = (
    "acc (percent) and NLL on test data, of runs that choose a learning rate on validation data;\n"
    "{sets}: AUROC of each method's own epistemic score, mean over the sets."
)


def _work(work: Bench, cells: Sequence[Cell], only: Only, ray: str | None, *, quiet: bool) -> None:
    """Do what is missing, here or on a cluster."""
    teller = None if quiet else _Teller(work, cells, only)
    with nullcontext() if ray is None else workers(ray, work) as team:
        if teller is not None:
            teller.begins()
        work.work(
            only=only,
            tell=teller or (lambda _event: None),
            progress=False if quiet else None,
            turn=None if team is None else team.turn,
        )
        if teller is not None:
            teller.ends()
