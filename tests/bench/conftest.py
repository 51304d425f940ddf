"""A real benchmark in small, trained once a session, for whatever reads records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gemfi._files import hold_lock
from gemfi_bench.protocol import Contestant, Network, Protocol, Shift, Sweeps
from gemfi_bench.results import Results
from gemfi_bench.runner import Bench
from support.shelf import shelf, shrink

__all__ = ["shelf", "shrink"]

_DONE = "done"


def small_protocol() -> Protocol:
    """Two seeds and two epochs of what the tables need, one seed of every sweep."""
    return Protocol(
        name="small",
        title="digits in small",
        task="digits",
        network=Network("convnet", ("channels=16",)),
        train={"epochs": 2, "batch_size": 64, "learning_rate": 0.02},
        seeds=(0, 1),
        contestants=(
            Contestant("softmax", detectors=("all",)),
            Contestant("ensemble", assembled="softmax"),
            Contestant("edl"),
            Contestant("daedl"),
            Contestant("re-edl"),
            Contestant("gem-core"),
            Contestant("gem-mix"),
            Contestant("gem-fi"),
        ),
        sweeps=Sweeps(
            ablation=True,
            ablation_ours=True,
            fisher=(0.1, 1.0),
            kl=(1e-4, 1e-2),
            components=(2, 3),
            outliers=True,
            related=True,
            seeds=(0,),
        ),
        shift=Shift(("gaussian_noise", "contrast"), (1, 5), images=100),
        near=("digits-8-9",),
        far=("noise", "inverted", "shuffled"),
        notes=("Digits stand for the data sets of the paper.",),
    )


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small benchmark; tests leave it as it is."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # which the workers share
    folder = root / "small-bench"
    folder.mkdir(exist_ok=True)
    with hold_lock(folder / ".lock"):
        if not (folder / _DONE).exists():
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            Bench(small_protocol(), folder).work()
            torch.set_num_threads(threads)
            (folder / _DONE).touch()
    return folder


@pytest.fixture(scope="session")
def small_results(small_folder: Path) -> Results:
    """Softmax with all detectors, an ensemble, EDL, DAEDL, Re-EDL and GEM: 2 seeds; all sweeps."""
    return Results(small_folder)
