"""`gemfi predict --ray`: the rows of a cluster are those of one process."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import fs, parquet

from gemfi import cluster
from gemfi.bundle import bundled
from gemfi.cli import main
from gemfi.data.columns import Columns
from gemfi.data.readers.arrays import stream_array
from gemfi.data.readers.base import ROWS
from gemfi.data.readers.remote import RemoteFile, list_remote
from gemfi.data.readers.tables import split_row_groups, stream_parquet
from gemfi.errors import InputError
from gemfi.runs import make_spec, train_run
from gemfi.runs.spec import OwnData
from gemfi.scoring import find_inputs, score_files, split_inputs
from support.ray_cluster import ray_cluster

FILES, EACH = 9, 400  # parquet files, and rows of each
DEADLINE = 400.0  # seconds after which a command has failed

# A worker that kills itself, once, when it has handed out the first piece of a part.
MORTAL = """
import os, signal, sys
from gemfi import scoring
from gemfi.cli import main

class Mortal(scoring.Scorer):
    def __call__(self, part):
        for rows in super().__call__(part):
            yield rows
            if part.files[0].name == "4.parquet":
                try:
                    os.close(os.open(os.environ["TMPDIR"] + "/killed", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)

scoring.Scorer = Mortal
sys.exit(main(sys.argv[1:]))
"""


# A command that takes itself for a client outside the cluster, as ray:// makes it one.
OUTSIDE = """
import sys
from ray.util import client
from gemfi.cli import main
client.ray.is_connected = lambda: True
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def rays() -> Iterator[tuple[str, dict[str, str]]]:
    with ray_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table, and beside it a folder of parquet files, some rows of which are broken."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    kind = np.arange(240) % 2
    x = rng.normal(3 * kind[:, None], 1, size=(240, 2))
    rows = [f"{a},{b},{'ab'[k]}" for (a, b), k in zip(x, kind, strict=True)]
    (folder / "data.csv").write_text("\n".join(["width,height,kind", *rows]))
    own, path = OwnData(label="kind"), str(folder / "data.csv")
    task = own.task(path)
    spec = make_spec(path, "gem-fi", task, train={"epochs": 1}, own=own)
    train_run(spec, folder / "run", progress=False, task=task)
    (folder / "rows").mkdir()
    for number in range(FILES):
        x = rng.normal(size=(EACH, 2))
        x[7] = np.inf
        names = [f"row {number}-{row}" for row in range(EACH)]
        columns = {"id": names, "height": x[:, 0], "width": x[:, 1]}
        parquet.write_table(pa.table(columns), folder / "rows" / f"{number}.parquet")
    (folder / "rows" / "5.parquet").write_bytes(b"PAR1 but no more")
    return folder


def predict(
    arguments: list[str], environment: dict[str, str], code: str | None = None, expected: int = 0
) -> str:
    """What a command writes to standard error."""
    start = ["-m", "gemfi"] if code is None else ["-c", code]
    done = subprocess.run(
        [sys.executable, *start, "predict", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=DEADLINE,
    )
    assert done.returncode == expected, done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_and_repeats_nothing(
    rays: tuple[str, dict[str, str]], table: Path, tmp_path: Path
) -> None:
    """The file of a cluster is that of one process to the byte, in order, unread inputs and all."""
    address, environment = rays
    plain, out = tmp_path / "plain.csv", tmp_path / "out.csv"
    inputs = [str(table / "run"), str(table / "rows"), "--probs", "--quiet", "--out"]
    said = predict([*inputs, str(plain)], environment, expected=1)
    again = predict([*inputs, str(out), "--ray", address], environment, MORTAL, expected=1)
    assert Path(environment["TMPDIR"], "killed").exists()
    assert out.read_bytes() == plain.read_bytes()
    assert len(out.read_bytes().splitlines()) == 1 + (FILES - 1) * EACH + 1
    assert again.splitlines()[-1].replace("out.csv", "plain.csv") == said.strip()


@pytest.mark.slow
def test_rows_by_key(rays: tuple[str, dict[str, str]], table: Path, tmp_path: Path) -> None:
    address, environment = rays
    plain, out = tmp_path / "plain.csv", tmp_path / "out.csv"
    inputs = [str(table / "run"), str(table / "rows"), "--quiet", "--out"]
    predict([*inputs, str(plain)], environment, expected=1)
    arguments = [*inputs, str(out), "--ray", address, "--key", "id"]
    predict(arguments, environment, expected=1)
    with plain.open(newline="") as file:
        expected = list(csv.DictReader(file))
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {row.pop("input"): row for row in rows}
    assert len(found) == len(rows) == len(expected)
    for row in expected:
        path, _, position = row.pop("input").partition("[")
        key = f"row {Path(path).stem}-{position[:-1]}" if position else path
        assert found[key] == row


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["given", "client", "local"])
def test_images_and_arrays(kind: str, rays: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    """On a cluster that is there, as from outside it, and on one that the command starts."""
    address, environment = rays
    pixels = np.random.default_rng(0).integers(0, 256, (300, 28, 28), np.uint8)
    (tmp_path / "images").mkdir()
    for index, each in enumerate(pixels):
        Image.fromarray(each).save(tmp_path / "images" / f"{index:03}.png")
    (tmp_path / "images" / "123.png").write_bytes(b"no image")
    np.save(tmp_path / "x.npy", pixels[:50])
    np.savez(tmp_path / "x.npz", images=pixels[50:90])
    inputs = [(tmp_path / name).as_uri() for name in ("images", "x.npy")]
    inputs = ["mnist-gem-fi", *inputs, str(tmp_path / "x.npz"), "--quiet", "--out"]
    predict([*inputs, str(tmp_path / "plain.csv")], environment, expected=1)
    address = "local" if kind == "local" else address
    code = OUTSIDE if kind == "client" else None
    predict([*inputs, str(tmp_path / "out.csv"), "--ray", address], environment, code, expected=1)
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 300 + 50 + 40
    assert rows[0]["input"] == (tmp_path / "images" / "000.png").as_uri()
    assert [row["input"] for row in rows if row["error"]] == [
        (tmp_path / "images" / "123.png").as_uri()
    ]


def test_an_address_where_nobody_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 28, 28), np.uint8))
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        for given in (address, f"ray://{address}", "auto"):
            arguments = ["predict", "mnist-gem-fi", str(tmp_path / "x.npy"), "--quiet"]
            assert main([*arguments, "--ray", given]) == 2
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            assert f"{address}: nobody answers there" in error


@pytest.mark.parametrize("address", ["nonsense", "ray://host", "http://host:1", "host:70000"])
def test_what_is_no_address(address: str) -> None:
    with (
        pytest.raises(InputError, match="expected auto, local, host:port or ray://host:port"),
        cluster.connected(address),
    ):
        pass


@pytest.mark.parametrize(
    ("device", "cpus", "share", "room"),
    [
        ("cpu", 1, {"num_cpus": 1}, 6),
        ("cpu", 3, {"num_cpus": 3}, 1),
        ("auto", 1, {"num_cpus": 1, "num_gpus": 1}, 2),
        ("cuda", 3, {"num_cpus": 3, "num_gpus": 1}, 1),
    ],
)
def test_what_a_worker_takes(device: str, cpus: int, share: dict[str, int], room: int) -> None:
    machines = [{"CPU": 4.0, "GPU": 2.0}, {"CPU": 2.0}, {"memory": 1.0}]
    nodes = [{"Alive": True, "Resources": each} for each in machines]
    gone = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
    ray = SimpleNamespace(nodes=lambda: [*nodes, gone])
    assert cluster.share_of(ray, device, cpus) == (share, room)


def test_a_worker_that_no_machine_has_room_for() -> None:
    ray = SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": {"CPU": 4.0}}] * 2)
    with pytest.raises(InputError, match="no machine of the cluster has 5 CPU for a worker"):
        cluster.share_of(ray, "auto", 5)
    with pytest.raises(InputError, match="has 1 CPU and 1 GPU for a worker"):
        cluster.share_of(ray, "cuda:0")


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(InputError, match=r"--ray needs ray: pip install '\.\[ray\]'"),
        cluster.connected("local"),
    ):
        pass


def test_a_key_is_for_a_cluster_and_for_parquet(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 28, 28), np.uint8))
    files = find_inputs([tmp_path / "x.npy"])
    with pytest.raises(InputError, match="without a cluster rows are in the order of the inputs"):
        score_files(bundled(), files, key="input")
    with pytest.raises(InputError, match=r"x\.npy has no column 'id': that is for parquet"):
        list(split_inputs(files, bundled(), "id"))


# -- parts of inputs -------------------------------------------------------------------------------


def test_parts_of_an_array_are_the_whole(tmp_path: Path) -> None:
    x = np.arange(3 * 16 * ROWS, dtype=np.float32).reshape(-1, 2)  # a part and a half
    np.save(tmp_path / "x.npy", x)
    run = bundled()
    object.__setattr__(run.info, "sample_shape", (2,))
    parts = list(split_inputs(find_inputs([tmp_path / "x.npy"]), run))
    assert [part.span for part in parts] == [(0, 16 * ROWS), (16 * ROWS, 24 * ROWS)]
    pieces = [piece for part in parts for piece in stream_array(part.files[0], ROWS, part.span)]
    whole = list(stream_array(tmp_path / "x.npy", ROWS))
    assert [piece.names for piece in pieces] == [piece.names for piece in whole]
    np.testing.assert_array_equal(np.concatenate([piece.x for piece in pieces]), x)


def test_parts_of_parquet_are_the_whole(tmp_path: Path) -> None:
    path, cells = tmp_path / "x.parquet", np.arange(100.0)
    parquet.write_table(pa.table({"a": cells, "id": cells}), path, row_group_size=7)
    spans = split_row_groups(path, 20)
    assert spans == [(0, 3), (3, 6), (6, 9), (9, 12), (12, 15)]
    columns = Columns.of_numbers(["a"])
    pieces = [piece for span in spans for piece in stream_parquet(path, columns, 1, span)]
    names = [name for piece in pieces for name in piece.names]
    assert names == [f"{path}[{row}]" for row in range(100)]
    np.testing.assert_array_equal(np.concatenate([piece.x for piece in pieces])[:, 0], cells)
    for known in (columns, None):
        keyed = next(stream_parquet(path, known, 1, (3, 6), "id"))
        assert keyed.names == [str(float(row)) for row in range(21, 42)]
        np.testing.assert_array_equal(keyed.x[:, 0], cells[21:42])
    with pytest.raises(InputError, match="has no column 'name', which shall name its rows"):
        list(stream_parquet(path, columns, 1, None, "name"))


def test_files_that_are_elsewhere(tmp_path: Path) -> None:
    for name in ("b/2.parquet", "b/.hidden.parquet", "a.parquet", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    address = tmp_path.as_uri()
    found = find_inputs([address])
    assert [str(file) for file in found] == [f"{address}/a.parquet", f"{address}/b/2.parquet"]
    assert find_inputs([f"{address}/a.parquet"]) == found[:1]
    assert list_remote(f"{address}/b/2.parquet") == (found[1:], False)
    bucket = RemoteFile(fs.LocalFileSystem(), os.fspath(tmp_path / "a.txt"), "s3://bucket/a.txt")
    assert (bucket.name, bucket.suffix, str(bucket)) == ("a.txt", ".txt", "s3://bucket/a.txt")
    assert bucket.fetched().read() == b"12345"
    with pytest.raises(InputError, match=r"gone does not exist"):
        find_inputs([f"{address}/gone"])
    with pytest.raises(InputError, match=r"cannot read nowhere://at all"):
        find_inputs(["nowhere://at all"])
    with pytest.raises(InputError, match=r"an input is an image"):
        find_inputs([f"{address}/a.txt"])
