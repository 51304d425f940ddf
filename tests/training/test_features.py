"""Features of many inputs: in memory or in a file, broken off and gone on with, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from gemfi import finish
from gemfi.data import Split, as_split
from gemfi.errors import InputError
from gemfi.finish import FeatureBatches
from gemfi.model import Model, build_model
from gemfi.training import features
from gemfi.training.features import Extraction, digest_of, write_tensors

WEIGHT = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))


def inputs(count: int = 23) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(0))


class Network:
    """A linear map that remembers what it was given, and stops after a number of batches."""

    def __init__(self, stop: int | None = None) -> None:
        self.sizes: list[int] = []
        self.stop = stop

    def __call__(self, x: Tensor) -> Tensor:
        if self.stop is not None and len(self.sizes) == self.stop:
            raise KeyboardInterrupt
        self.sizes.append(len(x))
        return x @ WEIGHT


def work(network: Network, **more: Any) -> Extraction:
    return Extraction(network, inputs(), 3, batch=4, progress=False, **more)


@pytest.fixture
def every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is written at once."""
    monkeypatch.setattr(features, "SAVE_SECONDS", 0.0)


def files(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir() if path.name != ".lock")


def test_in_memory_and_in_a_file_they_are_the_same(tmp_path: Path) -> None:
    expected = inputs() @ WEIGHT
    network = Network()
    found = work(network).in_memory()
    torch.testing.assert_close(found, expected)
    assert network.sizes == [4, 4, 4, 4, 4, 3]
    kept = work(Network()).cached(tmp_path / "a.safetensors")
    assert torch.equal(kept, found)
    assert not kept.requires_grad
    assert files(tmp_path) == [".safetensors"]


def test_the_second_time_nothing_is_computed(tmp_path: Path) -> None:
    first = work(Network()).cached(tmp_path / "a.safetensors")
    network = Network(stop=0)
    again = work(network).cached(tmp_path / "a.safetensors")
    assert torch.equal(again, first)
    again[0] = -1  # seen by no one else
    assert torch.equal(work(network).cached(tmp_path / "a.safetensors"), first)


@pytest.mark.usefixtures("every_batch")
def test_the_file_is_what_write_tensors_writes(tmp_path: Path) -> None:
    kept = work(Network(), name="für").cached(tmp_path / "a.safetensors")
    write_tensors(tmp_path / "b.safetensors", {"features": kept}, name="für")
    found = []
    for name in ("a", "b"):
        with safe_open(tmp_path / f"{name}.safetensors", framework="pt") as file:
            found.append((file.metadata(), file.get_tensor("features").tolist()))
    assert found[0] == found[1]
    assert found[0][0] == {"digest": digest_of({"features": kept}), "name": "für"}


@pytest.mark.usefixtures("every_batch")
@pytest.mark.parametrize("stop", [0, 1, 3, 5])
def test_what_was_broken_off_goes_on_bit_for_bit(tmp_path: Path, stop: int) -> None:
    whole = work(Network()).cached(tmp_path / "whole" / "a.safetensors")
    file = tmp_path / "a.safetensors"
    with pytest.raises(KeyboardInterrupt):
        work(Network(stop)).cached(file)
    assert files(tmp_path / "whole") == [".safetensors"]
    assert not file.exists()
    network = Network()
    assert torch.equal(work(network).cached(file), whole)
    assert network.sizes == [4, 4, 4, 4, 4, 3][stop:]
    assert file.read_bytes() == (tmp_path / "whole" / "a.safetensors").read_bytes()


def test_between_two_writings_a_polite_end_loses_nothing(tmp_path: Path) -> None:
    calls = []

    def pause() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(Network(), pause=pause).cached(tmp_path / "a.safetensors")
    network = Network()
    work(network).cached(tmp_path / "a.safetensors")
    assert network.sizes == [4, 4, 3]


BLOCK = 4 * 3 * 4  # bytes of a batch of four


@pytest.mark.usefixtures("every_batch")
@pytest.mark.parametrize(
    ("suffix", "change", "batches"),
    [
        (".part", lambda data: data[:-1], 6),  # the last block is torn
        (".part", lambda data: data[:-BLOCK], 6),  # or gone, though the journal counts it
        (".part", lambda data: data + b"more", 3),  # one that the journal does not count yet
        (".part", lambda data: data[: -2 * BLOCK] + bytes(2 * BLOCK), 6),  # holes
        (".part", lambda data: b"x" + data[1:], 6),  # another header
        (".part", lambda data: data[:0], 6),
        (".rows", lambda data: data[:-1], 6),  # the digest is torn
        (".rows", lambda data: b"8" + data[2:], 6),  # of other rows
        (".rows", lambda data: b"99" + data[2:], 6),  # more rows than there are
        (".rows", lambda data: b"0" + data[2:], 6),
        (".rows", lambda data: b"\xff" + data, 6),
        (".rows", lambda data: data[:0], 6),
    ],
)
def test_a_torn_block_is_not_used(tmp_path: Path, suffix: str, change: Any, batches: int) -> None:
    whole = work(Network()).cached(tmp_path / "whole.safetensors")
    file = tmp_path / "a.safetensors"
    with pytest.raises(KeyboardInterrupt):
        work(Network(stop=3)).cached(file)
    torn = file.with_suffix(suffix)
    torn.write_bytes(change(torn.read_bytes()))
    network = Network()
    assert torch.equal(work(network).cached(file), whole)
    assert len(network.sizes) == batches
    assert file.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


@pytest.mark.parametrize("missing", [".part", ".rows"])
@pytest.mark.usefixtures("every_batch")
def test_without_one_of_the_two_files_all_begins_anew(tmp_path: Path, missing: str) -> None:
    file = tmp_path / "a.safetensors"
    with pytest.raises(KeyboardInterrupt):
        work(Network(stop=3)).cached(file)
    file.with_suffix(missing).unlink()
    network = Network()
    work(network).cached(file)
    assert len(network.sizes) == 6
    assert files(tmp_path) == [".safetensors"]


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    for tensors in ({"features": torch.zeros(22, 3)}, {"other": torch.zeros(23, 3)}):
        write_tensors(file, tensors)
        with pytest.raises(InputError, match="does not hold the features of 23 inputs; delete it"):
            work(Network()).cached(file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"cannot read .*a\.safetensors: .*; delete it"):
        work(Network()).cached(file)


def test_mapped_features_take_no_memory_of_their_own(tmp_path: Path) -> None:
    """40 MB, of which the process holds none as its own."""

    def own() -> int:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    write_tensors(tmp_path / "a.safetensors", {"features": torch.zeros(10_000, 1000)})
    asked = Extraction(lambda x: x, torch.zeros(10_000, 1), 1000)
    asked.stored(tmp_path / "a.safetensors")  # what is loaded lazily is loaded
    before = own()
    features = asked.stored(tmp_path / "a.safetensors")
    assert features is not None
    assert float(features.sum()) == 0
    assert own() - before < 20_000  # kB


KILLED = """
import sys, time
from pathlib import Path
import torch
from gemfi.training import features
features.SAVE_SECONDS = 0.0
done = []

def network(x):
    if len(done) == 5:
        print("computing", flush=True)
        time.sleep(600)
    done.append(1)
    return x.square()

x = torch.arange(80.0).reshape(40, 2)
features.Extraction(network, x, 2, batch=4).cached(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_process_costs_what_was_not_written(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "computing\n"
        other.kill()
    sizes = []

    def network(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return x.square()

    x = torch.arange(80.0).reshape(40, 2)
    found = Extraction(network, x, 2, batch=4, progress=False).cached(file)
    assert torch.equal(found, x.square())
    assert sizes == [4] * 5


# -- batches of features of a split ---------------------------------------------------------------

BYTES = 1200 * 8 * 4  # of the features below


def made() -> tuple[Model, Split, list[int]]:
    """A model of 8 features, 1200 samples, and the sizes of the batches its backbone was given."""
    torch.manual_seed(0)
    model = build_model("gem-fi", "mlp", 3, in_features=4, width=8, depth=1).eval()
    split = as_split(torch.randn(1200, 4), torch.arange(1200) % 3, role="train")
    sizes: list[int] = []
    model.backbone.register_forward_hook(lambda _m, given, _out: sizes.append(len(given[0])))
    return model, split, sizes


@pytest.mark.parametrize(
    ("limit", "walks"), [(BYTES, 1), (BYTES - 1, 2)], ids=["kept", "computed again"]
)
def test_features_are_kept_where_they_fit(
    monkeypatch: pytest.MonkeyPatch, limit: int, walks: int
) -> None:
    monkeypatch.setattr(finish, "MEMORY_BYTES", limit)
    model, split, sizes = made()
    walked = FeatureBatches(model, split)
    first, second = list(walked), list(walked)
    assert sizes == [512, 512, 176] * walks
    for walk in (first, second):
        assert torch.equal(torch.cat([z for z, _ in walk]), model.embed(split.x))
        assert torch.equal(torch.cat([y for _, y in walk]), split.labels)


def test_statistics_are_the_same_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without validation data GEM walks through the training features twice."""
    found = []
    for limit, calls in ((BYTES, 3), (0, 6)):
        monkeypatch.setattr(finish, "MEMORY_BYTES", limit)
        model, split, sizes = made()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        model.head.fit_statistics(FeatureBatches(model, split), None)
        assert len(sizes) == calls
        found.append(model.state_dict())
        assert any(not torch.equal(found[-1][name], value) for name, value in before.items())
    kept, again = found
    assert [name for name in kept if not torch.equal(kept[name], again[name])] == []


def test_a_walk_that_is_broken_off_keeps_nothing() -> None:
    model, split, sizes = made()
    walked = FeatureBatches(model, split)
    next(iter(walked))
    assert torch.equal(torch.cat([z for z, _ in walked]), model.embed(split.x))
    assert sizes[:4] == [512, 512, 512, 176]
