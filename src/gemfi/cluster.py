"""Ray: work for more than one machine. Scoring runs on Ray Data, with a model a worker.

`score_files(..., ray=ADDRESS)` and `gemfi predict --ray` come here with parts of inputs; each part
is read, scored and written once, whatever workers die meanwhile. `gemfi bench --ray` takes the
connection alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from gemfi._files import require_module
from gemfi.errors import GemfiError, InputError

T = TypeVar("T")

Rows = list[list[Any]]
Work = Callable[[T], Iterator[Rows]]

PATIENCE: Final = 5.0
"""Seconds in which the machine of an address must answer."""

_BLOCKS: Final = 4096  # in which the parts are handed out, at most
_AHEAD: Final = 2  # parts that a worker is given at a time


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module ray, connected; a connection that the caller has is used, and stays.

    Args:
        address: `auto` for the cluster of this machine, `local` to start one here that ends with
            the work, `host:port`, or `ray://host:port` for a cluster from without.
    """
    ray = require_module("ray", "--ray")
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["include_dashboard"] = False
    elif address != "auto":
        _check_address(address)
    try:
        ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or ["no cluster"]
        reason = f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") else lines[0]
        raise InputError(
            f"--ray {address}: {reason}; start one with ray start --head, or give local"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse, within seconds, what is no address and where nobody answers; Ray takes minutes."""
    found = re.fullmatch(r"(?:ray://)?\[?([^\s/]+?)\]?:(\d{1,5})", address)
    if found is None or int(found[2]) >= 1 << 16:
        raise InputError(f"--ray {address}: expected auto, local, host:port or ray://host:port")
    try:
        socket.create_connection((found[1], int(found[2])), PATIENCE).close()
    except OSError as error:
        raise InputError(
            f"--ray {address}: nobody answers there ({error.strerror or error}); is the cluster up?"
        ) from error


@contextlib.contextmanager
def failures(ray: Any) -> Iterator[None]:
    """What fails on a worker, as an error of gemfi's."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, GemfiError):
            raise cause from error
        reason = str(cause or error).strip().splitlines() or [type(error).__name__]
        raise GemfiError(f"the work on the cluster failed: {reason[-1]}") from error


def share_of(ray: Any, device: str, cpus: int = 1) -> tuple[dict[str, int], int]:
    """What a worker takes of a machine, and how many workers the cluster has room for.

    Args:
        ray: the module, connected.
        device: `cuda`, or `auto` where the cluster has GPUs, takes one for each worker.
        cpus: that a worker computes with.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = any(machine.get("GPU", 0) >= 1 for machine in machines)
    share = {"num_cpus": cpus}
    if device.startswith("cuda") or (device == "auto" and gpus):
        share["num_gpus"] = 1
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    room = sum(
        min(int(machine.get(names[name], 0) // count) for name, count in share.items())
        for machine in machines
    )
    if not room:
        wanted = " and ".join(f"{count} {names[name]}" for name, count in share.items())
        raise InputError(f"no machine of the cluster has {wanted} for a worker")
    return share, room


class _Worker:
    """A process of the pool: prepares once, then works on one item after the other."""

    def __init__(self, job: list[Any]) -> None:
        import ray  # noqa: PLC0415 - an extra, which is here on a worker

        prepare, self.items, columns, device = ray.get(job[0])
        self.work: Work[Any] = prepare(device)
        arrow = require_module("pyarrow", "--ray")
        kinds = {str: arrow.string(), float: arrow.float64()}
        self.schema = arrow.schema([(name, kinds[kind]) for name, kind in columns])
        self.table: Any = arrow.table

    def __call__(self, batch: Any) -> Iterator[Any]:
        for number in batch["item"].to_pylist():
            for rows in self.work(self.items[number]):
                yield self.table(list(map(list, zip(*rows, strict=True))), schema=self.schema)


class _Deputy:
    """Does `on_workers` inside the cluster, for a client outside, from where Ray Data cannot."""

    def __init__(
        self,
        prepare: Callable[[str], Work[Any]],
        items: Sequence[Any],
        columns: Sequence[tuple[str, type]],
        device: str,
        ordered: bool,
    ) -> None:
        self.rows = on_workers(prepare, items, columns, device=device, ordered=ordered)

    def next_rows(self) -> Rows | None:
        """Some rows more; None at the end."""
        return next(self.rows, None)


def on_workers(
    prepare: Callable[[str], Work[T]],
    items: Sequence[T],
    columns: Sequence[tuple[str, type]],
    *,
    device: str = "auto",
    ordered: bool = True,
) -> Iterator[Rows]:
    """The rows that workers of a connected cluster make of items, some at a time.

    The cluster works on while the caller is busy with rows, until Ray Data's budget of memory is
    full. What a dead worker had not finished is done by another, and no row comes twice.

    Args:
        prepare: called on each worker, with the device; returns what is done with an item.
        items: to work on.
        columns: of the rows: name, and `str` or `float`.
        device: of the workers.
        ordered: rows come in the order of the items, and else as they are ready.
    """
    ray, data = require_module("ray", "--ray"), require_module("ray.data", "--ray")
    if not items:
        return
    if ray.util.client.ray.is_connected():
        deputy = ray.remote(num_cpus=0)(_Deputy).remote(prepare, items, columns, device, ordered)
        with failures(ray):
            while (rows := ray.get(deputy.next_rows.remote())) is not None:
                yield rows
        return
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    share, room = share_of(ray, device)
    count = min(room, len(items))
    job = ray.put((prepare, items, columns, device))
    numbers = data.from_items(list(range(len(items))), override_num_blocks=min(len(items), _BLOCKS))
    numbers.context.enable_progress_bars = False
    numbers.context.execution_options.preserve_order = ordered
    tables = numbers.map_batches(
        _Worker,
        batch_size=1,
        batch_format="pyarrow",
        fn_constructor_args=([job],),
        compute=data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=_AHEAD),
        **share,
    )
    with failures(ray):
        for table in tables.iter_batches(batch_size=None, batch_format="pyarrow"):
            cells = [column.to_pylist() for column in table.columns]
            yield list(map(list, zip(*cells, strict=True)))
