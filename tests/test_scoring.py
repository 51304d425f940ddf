"""Files through a model: every format, broken ones, and the files that are written."""

from __future__ import annotations

import csv
import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from gemfi.bundle import Bundle
from gemfi.cli import main
from gemfi.data import digits
from gemfi.data.readers.base import ROWS
from gemfi.decisions import Goal
from gemfi.errors import InputError
from gemfi.runs import fit_policy, make_spec, open_model, train_run
from gemfi.runs.spec import OwnData
from gemfi.scores import SCORES
from gemfi.scoring import score_files, stream_inputs


@pytest.fixture(scope="module")
def images(images_run: Path) -> Bundle:
    return open_model(images_run)


@pytest.fixture(scope="module")
def table(table_run: Path) -> Bundle:
    return open_model(table_run)


@pytest.fixture(scope="module")
def images_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the digits."""
    task = digits()
    spec = make_spec("digits", "gem-fi", task, options=("channels=8",), train={"epochs": 2})
    folder = tmp_path_factory.mktemp("runs") / "digits"
    train_run(spec, folder, progress=False, task=task)
    return folder


@pytest.fixture(scope="module")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a table with the columns width, height and kind."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    with (folder / "data.csv").open("w") as file:
        file.write("width,height,kind\n")
        for row in range(240):
            kind = row % 2
            x = rng.normal(3 * kind, 1, size=2)
            file.write(f"{x[0]},{x[1]},{'ab'[kind]}\n")
    own = OwnData(label="kind")
    path = str(folder / "data.csv")
    task = own.task(path)
    spec = make_spec(path, "edl", task, train={"epochs": 2}, own=own)
    train_run(spec, folder / "run", progress=False, task=task)
    return folder / "run"


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_what_the_model_believes(images: Bundle, tmp_path: Path) -> None:
    x = digits().test.x[:7]
    np.save(tmp_path / "x.npy", x.numpy())
    scored = score_files(images, [tmp_path / "x.npy"], tmp_path / "out.csv", probs=True)
    belief = images.model.predict(x)
    rows = read_csv(tmp_path / "out.csv")
    assert scored.count == len(rows) == 7
    assert [row["input"] for row in rows[:2]] == [f"{tmp_path}/x.npy[0]", f"{tmp_path}/x.npy[1]"]
    names = images.info.class_names
    assert [row["label"] for row in rows] == [names[each] for each in belief.labels().tolist()]
    for score in ("entropy", "evidence", "energy", "unfamiliarity", "mutual_information"):
        found = [float(row[score]) for row in rows]
        assert found == pytest.approx(SCORES[score](belief).tolist(), rel=1e-6)
    probs = [[float(row[f"prob_{name}"]) for name in names] for row in rows]
    assert np.array(probs) == pytest.approx(belief.probs().numpy(), rel=1e-6, abs=1e-12)
    assert scored.labels.total() == 7


def test_every_format_gives_the_same(images: Bundle, tmp_path: Path) -> None:
    x = digits().test.x[:5].numpy()
    np.save(tmp_path / "x.npy", x)
    for ending in ("csv", "jsonl", "parquet"):
        score_files(images, [tmp_path / "x.npy"], tmp_path / f"out.{ending}")
    table = read_csv(tmp_path / "out.csv")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    columns = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    for row, line, record in zip(table, lines, columns, strict=True):
        assert float(row["entropy"]) == line["entropy"] == record["entropy"]
        assert row["label"] == line["label"] == record["label"]
        assert "error" not in line
        assert record["error"] is None
        assert row["error"] == ""


def test_archives_arrays_and_images_are_read_alike(images: Bundle, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), np.uint8)
    np.savez_compressed(tmp_path / "x.npz", images=pixels)
    np.save(tmp_path / "x.npy", pixels)
    (tmp_path / "folder" / "deeper").mkdir(parents=True)
    for index, each in enumerate(pixels):
        Image.fromarray(each).save(tmp_path / "folder" / "deeper" / f"{index}.png")
    places = [tmp_path / "x.npz", tmp_path / "x.npy", tmp_path / "folder"]
    first = [score_files(images, [each]).first for each in places]
    for rows in first[1:]:
        assert [row[1:] for row in rows] == [row[1:] for row in first[0]]


def test_pieces_are_joined_in_order(images: Bundle, tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(size=(ROWS + 5, 1, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    scored = score_files(images, [tmp_path / "x.npy"], tmp_path / "out.csv")
    rows = read_csv(tmp_path / "out.csv")
    assert scored.count == len(rows) == ROWS + 5
    assert rows[-1]["input"].endswith(f"[{ROWS + 4}]")
    last = score_files(images, [_saved(tmp_path / "last.npy", x[-3:])]).first
    assert [row[1] for row in last] == [row["label"] for row in rows[-3:]]


def _saved(path: Path, x: np.ndarray) -> Path:
    np.save(path, x)
    return path


def assert_alike(rows: list[list[object]], opened: Bundle, x: np.ndarray, folder: Path) -> None:
    """The rows of the same inputs in an array, up to rounding in batches of another size."""
    expected = score_files(opened, [_saved(folder / "expected.npy", x)]).first
    assert [row[1] for row in rows] == [row[1] for row in expected]
    for row, other in zip(rows, expected, strict=True):
        assert row[2:-1] == pytest.approx(other[2:-1], rel=1e-4, abs=1e-7)


def test_what_cannot_be_read_has_a_row_that_says_why(images: Bundle, tmp_path: Path) -> None:
    good = np.zeros((2, 8, 8), np.uint8)
    (tmp_path / "folder").mkdir()
    Image.fromarray(good[0]).save(tmp_path / "folder" / "a.png")
    (tmp_path / "folder" / "b.png").write_bytes(b"\x89PNG no")
    np.savez(tmp_path / "cut.npz", x=np.zeros((50, 1, 8, 8), np.float32))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:900])
    np.save(tmp_path / "other.npy", np.zeros((2, 5), np.float32))
    holes = np.zeros((3, 1, 8, 8), np.float32)
    holes[1, 0, 2, 2] = np.nan
    np.save(tmp_path / "holes.npy", holes)
    inputs = [tmp_path / each for each in ("folder", "cut.npz", "other.npy", "holes.npy")]
    scored = score_files(images, inputs, tmp_path / "out.csv", policy=fit_policy(images, Goal()))
    rows = read_csv(tmp_path / "out.csv")
    assert scored.failed == 4
    assert scored.count == len(rows) == 7
    assert scored.verdicts.total() == 3
    errors = {Path(row["input"]).name: row["error"] for row in rows if row["error"]}
    assert "not a whole image" in errors["b.png"]
    assert "cut.npz" in errors["cut.npz"]
    assert "inputs have shape (5,)" in errors["other.npy"]
    assert errors["holes.npy[1]"].startswith("not finite: NaN, infinity, or")
    bad = next(row for row in rows if row["input"].endswith("b.png"))
    assert bad["label"] == bad["verdict"] == bad["entropy"] == ""


def test_tables_are_read_by_the_names_of_their_columns(table: Bundle, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("height,extra,width\n0.5,x,-1\n4,x,3\n1,x\n2,x,wide\n")
    rows = score_files(table, [tmp_path / "a.csv"]).first
    assert_alike(rows[:2], table, np.array([[-1, 0.5], [3.0, 4]]), tmp_path)
    assert rows[0][0] == f"{tmp_path}/a.csv:2"
    assert rows[2][-1] == "line 4: 2 cells, but the header has 3"
    assert rows[3][-1] == "line 5, column 'width': 'wide' is not a finite number"
    (tmp_path / "b.csv").write_text("height,extra\n0.5,1\n")
    assert "no column 'width'" in score_files(table, [tmp_path / "b.csv"]).first[0][-1]


def test_parquet_tables(table: Bundle, tmp_path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415

    columns = {"height": [0.5, 4.0, None], "kind": ["a", "b", "a"], "width": [-1, 3, 2]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    rows = score_files(table, [tmp_path / "a.parquet"]).first
    assert_alike(rows[:2], table, np.array([[-1, 0.5], [3.0, 4]]), tmp_path)
    assert rows[2][-1].startswith("column 'height': the cell is empty, and no row of the training")


def test_nothing_is_left_behind_by_a_run_that_was_stopped(
    images: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 1, 8, 8), np.float32))
    (tmp_path / "out.csv").write_text("before")

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gemfi.scoring._rows", stopped)
    with pytest.raises(KeyboardInterrupt):
        score_files(images, [tmp_path / "x.npy"], tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.csv", "x.npy"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.npy", "does not exist"),
        ("notes.txt", "an input is an image"),
        ("empty", "holds no images"),
    ],
)
def test_other_inputs_are_refused_at_once(
    images: Bundle, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        score_files(images, [tmp_path / name], tmp_path / "out.csv")


def test_outputs_are_checked_before_the_work(images: Bundle, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 1, 8, 8), np.float32))
    for out, message in (
        ("out.xls", "must end in .csv, .jsonl, .parquet"),
        ("none/out.csv", "its folder does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            score_files(images, [tmp_path / "x.npy"], tmp_path / out)


def test_images_are_not_for_tables(table: Bundle, tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.csv").write_text("width,height\n1,2\n")
    scored = score_files(table, [tmp_path / "a.png", tmp_path / "b.csv"])
    assert (scored.count, scored.failed) == (2, 1)
    assert "an image, but" in scored.first[0][-1]
    assert "takes inputs of shape (2,)" in scored.first[0][-1]


def test_an_image_of_another_format_does_not_end_the_run(images: Bundle, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "folder" / "a.png")
    Image.new("L", (8, 8)).save(tmp_path / "folder" / "b.gif")
    (tmp_path / "folder" / ".c.png").write_bytes(b"hidden")
    scored = score_files(images, [tmp_path / "folder"])
    assert [Path(row[0]).name for row in scored.first] == ["a.png", "b.gif"]
    assert scored.failed == 1
    assert "not a whole image" in scored.first[1][-1]


def test_pixels_of_another_scale_have_an_error_and_others_are_read(tmp_path: Path) -> None:
    model = open_model("mnist-gem-fi")
    pixels = np.random.default_rng(0).integers(2, 256, (3, 28, 28))
    alike = [pixels.astype(np.uint8), pixels, pixels.astype(np.int16), pixels / 255]
    first = [score_files(model, [_saved(tmp_path / "x.npy", each)]).first for each in alike]
    for rows in first[1:]:
        for row, other in zip(rows, first[0], strict=True):
            assert row[1] == other[1]
            assert row[2:-1] == pytest.approx(other[2:-1], rel=1e-4)
    wrong = pixels / 255
    wrong[1], wrong[2, 0, 0] = pixels[1], np.nan
    scored = score_files(model, [_saved(tmp_path / "x.npy", wrong)])
    assert [row[-1][:13] for row in scored.first] == ["", "pixels reach ", "not finite: N"]
    assert scored.first[0][2:-1] == pytest.approx(first[3][0][2:-1], rel=1e-4)
    outside = score_files(model, [_saved(tmp_path / "x.npy", pixels - 300)])
    assert outside.labels.total() + outside.failed == 3


@pytest.mark.parametrize("goal", [None, Goal(false_alarm=0.2)])
def test_a_row_that_the_model_cannot_judge_does_not_end_the_run(
    table: Bundle, tmp_path: Path, goal: Goal | None
) -> None:
    (tmp_path / "a.csv").write_text("width,height\n1,2\n3e38,-3e38\n1e300,1\n-1,0\n3e38,3e38\n")
    policy = None if goal is None else fit_policy(table, goal)
    rows = score_files(table, [tmp_path / "a.csv"], policy=policy).first
    assert [bool(row[-1]) for row in rows] == [False, True, True, False, True]
    assert rows[1][-1].startswith("the model cannot judge it: ")
    assert rows[2][-1].endswith("too large for float32")
    assert all(math.isfinite(value) for row in (rows[0], rows[3]) for value in row[2:-1:2] if
               isinstance(value, float))  # fmt: skip
    assert rows[1][1:-1] == [None] * (len(rows[1]) - 2)


def test_an_output_does_not_replace_an_input(table: Bundle, tmp_path: Path) -> None:
    data = tmp_path / "a.csv"
    data.write_text("width,height\n1,2\n")
    (tmp_path / "link.csv").symlink_to(data)
    for out in (data, tmp_path / "." / "a.csv", tmp_path / "link.csv"):
        with pytest.raises(InputError, match=r"--out .* is one of the inputs"):
            score_files(table, [data], out)
    assert data.read_text() == "width,height\n1,2\n"


def test_large_inputs_come_in_small_pieces(
    images: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemfi.scoring._NUMBERS", 3 * 64 + 5)
    file = _saved(tmp_path / "x.npy", np.zeros((7, 1, 8, 8), np.float32))
    assert [len(piece.names) for piece, _ in stream_inputs([file], images)] == [3, 3, 1]


# ---------------------------------------------------------------- the command


def test_the_command_decides(
    images_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.concatenate([digits().test.x[:4].numpy(), np.full((1, 1, 8, 8), 40, np.float32)])
    np.save(tmp_path / "x.npy", x)
    code = main(["predict", str(images_run), f"{tmp_path}/x.npy", "--policy", "false_alarm=0.1"])
    text = capsys.readouterr().out
    assert code == 0
    assert "at most 10% of known inputs" in text
    assert text.splitlines()[-1].startswith("5 inputs: ")
    assert "unfamiliar" in text.splitlines()[-3]  # the last row, which is no digit


def test_the_command_tells_what_failed(
    images_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    out = tmp_path / "out.jsonl"
    code = main(["predict", str(images_run), f"{tmp_path}/a.png", "--out", str(out)])
    printed = capsys.readouterr()
    assert code == 1
    assert f"1 of 1 inputs could not be read; {out} says why" in printed.err
    assert "not a whole image" in json.loads(out.read_text())["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-model", "x.npy"], "no model no-model: give the folder of a run"),
        (["mnist-gem-fi", "x.npy"], "x.npy does not exist"),
        (["mnist-gem-fi", "x.npy", "--policy", "alarm=1"], "unknown 'alarm'"),
    ],
)
def test_bad_commands_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_policy_needs_its_data(
    table_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    place = table_run.with_name("data.csv")
    moved = place.rename(place.with_name("moved.csv"))
    try:
        code = main(["predict", str(table_run), f"{tmp_path}/x.npy", "--policy", "false_alarm=0.2"])
    finally:
        moved.rename(place)
    assert code == 2
    assert "a policy needs calibration data" in capsys.readouterr().err


def test_files_are_looked_for_before_a_policy_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = importlib.import_module("gemfi.cli.predict")
    monkeypatch.setattr(command, "fit_policy", None)
    file = _saved(tmp_path / "x.npy", np.zeros((1, 28, 28), np.uint8))
    for more in ([f"{tmp_path}/none.npy"], [str(file), "--out", f"{tmp_path}/none/out.csv"]):
        assert main(["predict", "mnist-gem-fi", *more, "--policy", "false_alarm=0.05"]) == 2
        assert "does not exist" in capsys.readouterr().err
