"""A table with categories and missing cells from the file to the numbers, and leaks on the way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from gemfi.bundle import load
from gemfi.cli import main
from gemfi.runs import Run, open_model
from support.commands import Capture, printed, quiet, refused

QUICK = ["--method", "edl", "--batch-size", "16"]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs go below the test's own folder."""
    monkeypatch.setenv("GEMFI_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def people(count: int = 300, seed: int = 0) -> pd.DataFrame:
    """The city tells the answer, but for one in ten."""
    rng = np.random.default_rng(seed)
    city = rng.choice(["Oslo", "Rome", "Lima"], count)
    answer = np.where(rng.uniform(size=count) < 0.1, "maybe", np.where(city == "Rome", "no", "yes"))
    return pd.DataFrame(
        {
            "age": np.where(rng.uniform(size=count) < 0.1, np.nan, rng.normal(40, 9, count)),
            "city": np.where(rng.uniform(size=count) < 0.05, None, city),
            "owner": rng.integers(2, size=count).astype(bool),
            "answer": answer,
        }
    )


def test_categories_and_missing_cells_from_the_file_to_the_numbers(
    tmp_path: Path, capsys: Capture
) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    folder = tmp_path / "run"
    command = ["train", str(tmp_path / "people.csv"), "--out", str(folder), "--epochs", "12"]
    text = printed([*command, *QUICK], capsys)
    assert "Label: answer, the last column; --label names another." in text
    assert "Inputs: 3 columns, 1 of them categories, 2 with missing cells." in text
    printed(["evaluate", str(folder)], capsys)
    assert Run.open(folder).metrics()["test"]["id"]["accuracy"] > 80
    file = tmp_path / "people.safetensors"
    shown = printed(["bundle", str(folder), str(file), "--policy", "false_alarm=0.2"], capsys)
    assert "rows of 8 numbers from 3 columns, float32, standardised inside" in shown
    assert "city: Lima, Oslo, Rome, another value or missing" in shown
    assert printed(["show", str(file)], capsys).startswith("model       people, ")
    new = people(40, seed=1).drop(columns="answer")
    new.loc[:1, "city"] = "Cairo"
    new.loc[2, ["age", "city"]] = None
    new = new[["owner", "city", "age"]].assign(more=7)
    new.to_csv(tmp_path / "new.csv", index=False)
    asked = [str(tmp_path / "new.csv"), "--out", str(tmp_path / "out.csv")]
    for model in (folder, file):
        assert "40 inputs: " in printed(["predict", str(model), *asked], capsys)
        out = pd.read_csv(tmp_path / "out.csv")
        assert out["error"].isna().all()
        right = np.where(new["city"] == "Rome", "no", "yes")[3:]
        assert (out["label"][3:] == right).mean() > 0.8
    expected = load(file).predict(new).probs().max(dim=1).values
    np.testing.assert_allclose(out["confidence"], expected, rtol=1e-5)


@pytest.mark.slow
def test_the_graph_of_a_table_takes_the_encoded_numbers(tmp_path: Path, capsys: Capture) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    folder = quiet([str(tmp_path / "people.csv"), "--epochs", "1", *QUICK], capsys)
    data = ["--data", str(tmp_path / "people.csv")]
    text = printed(["export", str(folder), "--onnx", str(tmp_path / "people.onnx"), *data], capsys)
    assert "8 numbers: categories and missing values are encoded outside of the graph" in text
    proto = onnx.load(tmp_path / "people.onnx")
    notes = {each.key: each.value for each in proto.metadata_props}
    assert json.loads(notes["numbers"])[:3] == ["age", "age is missing", "city=Lima"]
    assert json.loads(notes["columns"])[1]["categories"] == ["Lima", "Oslo", "Rome"]
    assert "made from columns" in notes["input"]


def test_a_row_that_cannot_be_read_says_why(tmp_path: Path, capsys: Capture) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    folder = quiet([str(tmp_path / "people.csv"), "--epochs", "1", *QUICK], capsys)
    (tmp_path / "new.csv").write_text("age,city,owner\n30,Rome,perhaps\n30,Rome,\n?,?,true\n")
    assert main(["predict", str(folder), str(tmp_path / "new.csv"), "--out",
                 str(tmp_path / "out.csv")]) == 1  # fmt: skip
    assert "2 of 3 inputs could not be read" in capsys.readouterr().err
    errors = pd.read_csv(tmp_path / "out.csv")["error"].tolist()
    assert errors[0] == "line 2, column 'owner': 'perhaps' is not a finite number"
    assert errors[1].startswith("line 3, column 'owner': the cell is empty, and no row of")
    assert pd.isna(errors[2])
    (tmp_path / "new.csv").write_text("age,owner\n30,1\n")
    assert main(["predict", str(folder), str(tmp_path / "new.csv")]) == 1
    assert "has no column 'city', on which the model was trained" in capsys.readouterr().out


# -- leaks ---------------------------------------------------------------------------------------


def test_the_index_that_pandas_writes_is_not_learnt(tmp_path: Path, capsys: Capture) -> None:
    load_iris(as_frame=True).frame.to_csv(tmp_path / "iris.csv")
    command = ["train", str(tmp_path / "iris.csv"), "--epochs", "1", *QUICK]
    line = refused(command, capsys)
    assert "a column has no name ('Unnamed: 0')" in line
    assert "--drop 'Unnamed: 0', or --keep 'Unnamed: 0' if it is meant" in line
    text = printed([*command, "--drop", "Unnamed: 0"], capsys)
    assert "Inputs: 4 columns." in text
    folder = quiet([*command[1:], "--drop", "Unnamed: 0"], capsys)
    assert open_model(folder).info.feature_names is not None
    asked = printed(["predict", str(folder), str(tmp_path / "iris.csv")], capsys)
    assert "150 inputs: " in asked  # the file as it is, index and label and all


def test_what_was_seen_of_columns_is_told_three_times(tmp_path: Path, capsys: Capture) -> None:
    frame = load_iris(as_frame=True).frame.reset_index(names="id").assign(unit="cm")
    frame["hint"] = 10 * frame["target"] + np.random.default_rng(0).normal(size=150)
    frame = frame.rename(columns={"target": "kind"})[["unit", "kind", "id", "hint"]]
    frame.to_csv(tmp_path / "iris.csv", index=False)
    command = ["train", str(tmp_path / "iris.csv"), "--label", "kind", "--epochs", "1", *QUICK]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr()
    assert "Label: kind.\n" in told.out
    lines = told.err.splitlines()
    assert [line.partition(" column ")[2][:25] for line in lines] == [
        "'unit' has one value in a",
        "'id' rises from row to ro",
        "'hint' tells the label by",
    ]
    assert all(line.startswith("gemfi: warning: ") for line in lines)
    assert "no warning" not in told.out
    for text in (told.out, (tmp_path / "run" / "summary.md").read_text()):
        assert "column id" in text
        assert "--drop id" in text
        assert "column unit" in text
        assert "--drop hint" in text
    columns = Run.open(tmp_path / "run").record.facts.feature_names
    assert columns == ("id", "hint")
    known = ["--drop", "id", "unit", "--keep", "hint", "--quiet"]
    assert main([*command, *known, "--out", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().err == ""


def test_a_copy_of_the_label_is_refused(tmp_path: Path, capsys: Capture) -> None:
    frame = people().assign(code=lambda each: each["answer"].map({"yes": 1, "no": 2, "maybe": 3}))
    frame.to_csv(tmp_path / "people.csv", index=False)
    command = ["train", str(tmp_path / "people.csv"), "--label", "answer"]
    assert "people.csv: column 'code' is a copy of the label" in refused(command, capsys)


@pytest.mark.filterwarnings("default:these inputs look like they are on another scale")
def test_another_scale_is_told_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    frame = load_iris(as_frame=True).frame
    inputs = frame.columns[:4]
    frame[inputs] = (frame[inputs] - frame[inputs].mean()) / frame[inputs].std()
    frame.to_csv(tmp_path / "scaled.csv", index=False)
    load_iris(as_frame=True).frame.to_csv(tmp_path / "raw.csv")
    folder = quiet([str(tmp_path / "scaled.csv"), "--epochs", "1", *QUICK], capsys)
    assert main(["predict", str(folder), str(tmp_path / "scaled.csv"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["predict", str(folder), str(tmp_path / "raw.csv"), "--quiet"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gemfi: warning: these inputs look like they are on another scale")
