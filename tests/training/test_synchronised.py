"""Batch norms of several processes, and the sockets through which they talk."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing.spawn import spawn

from gemfi.errors import GemfiError
from gemfi.processes import quick_table, table
from gemfi.randomness import forked_generator
from gemfi.synchronised import synchronised

SHARES = (7, 5, 4)  # of three processes; together 16 samples
NORMS = {
    "rows": (nn.BatchNorm1d(3), ()),
    "series": (nn.BatchNorm1d(3, momentum=None), (5,)),
    "images": (nn.BatchNorm2d(3, eps=0.1), (4, 4)),
    "volumes": (nn.BatchNorm3d(3, affine=False), (2, 2, 2)),
    "far from zero": (nn.BatchNorm2d(3, track_running_stats=False), (4, 4)),
}


def draw(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A batch norm, a whole batch and the gradient of what comes out."""
    norm, shape = NORMS[name]
    with forked_generator(1):
        for parameter in norm.parameters():
            nn.init.normal_(parameter)
        x = torch.randn(16, 3, *shape) + (1000.0 if name == "far from zero" else 2.0)
        return norm, x, torch.randn_like(x)


def run(name: str, rows: slice) -> dict[str, Tensor | None]:
    """Two steps of the norm on some rows of the batch."""
    norm, x, g = draw(name)
    x, g = x[rows].clone().requires_grad_(), g[rows]
    with synchronised(norm):
        norm(x.detach())
        y = norm(x)
        (y * g).sum().backward()
    assert type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    gradients = {key: value.grad for key, value in norm.named_parameters()}
    return {"y": y.detach(), "x": x.grad, **gradients, **dict(norm.named_buffers())}


def join(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    count = len(SHARES)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=count)


def normalise(rank: int, folder: str) -> None:
    join(rank, folder)
    rows = slice(sum(SHARES[:rank]), sum(SHARES[: rank + 1]))
    torch.save({name: run(name, rows) for name in NORMS}, Path(folder) / f"{rank}.pt")
    with quick_table() as quick:
        for size in (1, 1_000, 20_000):  # the last is too large for sockets
            mine = torch.arange(size, dtype=torch.float32) * (rank + 1)
            assert torch.equal(quick(mine), table(mine))
    tempfile.tempdir = folder + "/" + 60 * "x"  # no socket has so long a path
    Path(tempfile.tempdir).mkdir(exist_ok=True)
    with quick_table() as quick:
        assert quick is table
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    folder = tmp_path_factory.mktemp("norms")
    spawn(normalise, (str(folder),), nprocs=len(SHARES))  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{rank}.pt") for rank in range(len(SHARES))]


@pytest.mark.parametrize("name", NORMS)
def test_they_are_the_batch_norm_of_the_whole_batch(
    outcome: list[dict[str, dict[str, Tensor]]], name: str
) -> None:
    whole, parts = run(name, slice(None)), [part[name] for part in outcome]
    close = {"rtol": 1e-4, "atol": 1e-3 if name == "far from zero" else 1e-5}
    for key, expected in whole.items():
        if key in {"y", "x"}:
            torch.testing.assert_close(torch.cat([part[key] for part in parts]), expected, **close)
        elif key in {"weight", "bias"}:
            torch.testing.assert_close(sum(part[key] for part in parts), expected, **close)
        else:
            for part in parts:
                torch.testing.assert_close(part[key], expected, **close)


def leave(rank: int, folder: str) -> None:
    """One process of three ends while the others wait for it."""
    join(rank, folder)
    with quick_table() as quick:
        quick(torch.ones(3))
        if rank == 2:
            os._exit(0)
        time.sleep(0.1)
        with pytest.raises((GemfiError, ConnectionError)) as caught:
            quick(torch.ones(3))
        Path(folder, f"{rank}").write_text(str(caught.value))
    os._exit(0)


def test_who_waits_for_a_process_that_has_ended_is_told(tmp_path: Path) -> None:
    spawn(leave, (str(tmp_path),), nprocs=len(SHARES))  # type: ignore[no-untyped-call]
    for rank in range(2):
        assert (tmp_path / f"{rank}").read_text()
