"""Columns that give the label away are told by name, and ordinary ones are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from gemfi.data.leaks import checked_columns
from gemfi.data.own import OwnData
from gemfi.errors import InputError

RNG = np.random.default_rng(0)
LABELS = np.repeat([0, 1, 2], 50)
GOOD = {
    "x": RNG.normal(size=150),
    "w": np.array(["a", "b", "c"], dtype=object)[RNG.integers(3, size=150)],
}


def check(labels: np.ndarray = LABELS, drop: Any = (), keep: Any = (), **columns: Any) -> Any:
    table = GOOD | {name: np.asarray(cells) for name, cells in columns.items()}
    return checked_columns(table, labels, np.arange(len(labels)), drop=drop, keep=keep)


def names(found: Any) -> list[str]:
    return [each.column for each in found[1]]


def test_ordinary_columns_pass() -> None:
    columns, warnings = check()
    assert list(columns) == ["x", "w"]
    assert warnings == ()


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__"])
def test_a_nameless_column_is_refused(name: str) -> None:
    cells = RNG.permutation(150).astype(float)
    with pytest.raises(InputError, match=f"a column has no name .*--drop '?{name}'?, or --keep"):
        check(**{name: cells})
    assert list(check(drop=[name], **{name: cells})[0]) == ["x", "w"]
    assert list(check(keep=[name], **{name: cells})[0]) == ["x", "w", name]


@pytest.mark.parametrize(
    "copy",
    [LABELS * 2.5 - 1, np.array(["u", "v", None], dtype=object)[LABELS]],
    ids=["numbers", "words"],
)
def test_a_copy_of_the_label_is_refused(copy: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"column 'code' is a copy of the label: .*--drop code"):
        check(code=copy)
    assert names(check(code=copy, keep=["code"])) == []


def test_names_of_rows_are_refused() -> None:
    ids = np.array([f"id-{row}" for row in RNG.permutation(150)], dtype=object)
    with pytest.raises(
        InputError, match=r"column 'who' has 150 values in 150 rows: .*names of rows"
    ):
        check(who=ids)


@pytest.mark.parametrize(
    "cells", [np.full(150, 7.0), np.full(150, "z", dtype=object), np.full(150, np.nan)]
)
def test_a_constant_column_is_left_out(cells: np.ndarray) -> None:
    found = check(same=cells)
    assert list(found[0]) == ["x", "w"]
    assert names(found) == ["same"]
    assert "has one value in all training rows, and was left out" in str(found[1][0])
    assert "same" in check(same=cells, keep=["same"])[0]


@pytest.mark.parametrize(("sign", "way"), [(1, "rises"), (-1, "falls")])
def test_a_strictly_monotone_column_is_warned_about(sign: int, way: str) -> None:
    labels = RNG.permutation(LABELS)
    cells = sign * np.cumsum(RNG.uniform(0.1, 1, size=150))
    (warning,) = check(labels, time=cells)[1]
    assert str(warning) == (
        f"column 'time' {way} from row to row, as row numbers and times do; if new rows will not "
        "have it, leave it out with --drop time"
    )
    cells[80] = cells[79]
    assert names(check(labels, time=cells)) == []
    assert names(check(labels, time=cells, keep=["time"])) == []


def test_a_column_that_tells_the_label_by_itself_is_warned_about() -> None:
    noisy = LABELS * 10 + RNG.normal(size=150)
    (warning,) = check(noisy=noisy)[1]
    assert "tells the label by itself, in 100.0 % of rows" in str(warning)
    assert warning.share == 1
    values = np.array(["a", "b", "c", "d", "e", "f"], dtype=object)[
        2 * LABELS + RNG.integers(2, size=150)
    ]
    assert names(check(many=values)) == ["many"]
    half = np.where(RNG.uniform(size=150) < 0.1, RNG.permutation(noisy), noisy)
    assert names(check(half=half)) == []  # nine in ten are no leak


def test_a_rare_class_needs_more_than_the_majority() -> None:
    """99.3 % are right without any column."""
    labels = np.zeros(900, int)
    labels[::150] = 1
    table = {"x": RNG.normal(size=900)}
    assert checked_columns(table, labels, np.arange(900))[1] == ()


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
def test_real_tables_have_no_warning(load: Any) -> None:
    frame, y = load(return_X_y=True, as_frame=True)
    table = {name: frame[name].to_numpy() for name in frame}
    assert checked_columns(table, y.to_numpy(), np.arange(len(y)))[1] == ()


def test_options_that_name_nothing() -> None:
    with pytest.raises(
        InputError, match="there is no column 'z' to learn from; there are 'x', 'w'"
    ):
        check(drop=["z"])
    with pytest.raises(InputError, match="column 'x' cannot be dropped and kept"):
        check(drop=["x"], keep=["x"])
    with pytest.raises(InputError, match="no column is left to learn from"):
        check(drop=["x", "w"])


def test_the_file_that_pandas_writes_with_its_index(tmp_path: Path) -> None:
    """It is sorted by class, so that its row numbers tell the label."""
    frame = load_iris(as_frame=True).frame
    frame.to_csv(tmp_path / "iris.csv")
    with pytest.raises(InputError, match=r"iris\.csv: a column has no name \('Unnamed: 0'\)"):
        OwnData().task(tmp_path / "iris.csv")
    task = OwnData(drop=("Unnamed: 0",)).task(tmp_path / "iris.csv")
    assert task.columns is not None
    assert task.columns.names == tuple(frame.columns[:-1])
    assert (task.label_name, task.warnings) == ("target", ())
    kept = OwnData(keep=("Unnamed: 0",)).task(tmp_path / "iris.csv")
    assert kept.train.x.shape[1] == 5
    named = frame.reset_index()
    named.to_csv(tmp_path / "named.csv", index=False)
    warnings = OwnData().task(tmp_path / "named.csv").warnings
    assert [str(each)[:21] for each in warnings] == ["column 'index' rises "]


def test_categories_come_from_the_training_part(tmp_path: Path) -> None:
    x = RNG.normal(size=200)
    frame = pd.DataFrame(
        {
            "x": np.where(x < -1, np.nan, x),
            "w": RNG.choice(list("abc"), 200),
            "y": RNG.integers(2, size=200),
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[:9].assign(w="new").to_csv(tmp_path / "far.csv", index=False)
    task = OwnData(ood_test=(str(tmp_path / "far.csv"),)).task(tmp_path / "a.csv")
    assert task.columns is not None
    assert task.columns.outputs == ("x", "x is missing", "w=a", "w=b", "w=c", "w=(other)")
    present = task.train.x[task.train.x[:, 1] == 0, 0]
    assert task.columns.columns[0].fill == pytest.approx(float(present.median()), abs=0.05)
    assert task.normalisation is not None
    assert task.normalisation.mean[1:] == (0, 0, 0, 0, 0)
    assert task.normalisation.std[1:] == (1, 1, 1, 1, 1)
    assert (
        task.ood_test["far.csv"].x[:, 2:] == task.ood_test["far.csv"].x.new_tensor([0, 0, 0, 1])
    ).all()
