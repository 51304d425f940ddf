"""Columns as numbers: categories, missing values, and what a bundle may say of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemfi._config import from_plain, to_plain
from gemfi.data.columns import LONGEST, MOST_CATEGORIES, Column, Columns, frame_cells, to_numbers
from gemfi.errors import InputError


def words(*values: str | None) -> np.ndarray:
    return np.array(values, dtype=object)


TABLE = {
    "age": np.array([1.0, np.nan, 3.0, 8.0]),
    "size": np.array([1.0, 2.0, 3.0, 4.0]),
    "city": words("Rome", "Oslo", None, "Rome"),
}


def test_numbers_categories_and_missing_cells() -> None:
    columns = Columns.fit(TABLE)
    x, errors = columns.encode(TABLE)
    assert columns.outputs == (
        "age",
        "age is missing",
        "size",
        "city=Rome",
        "city=(other)",  # Oslo too, which one row is too few for
        "city=(missing)",
    )
    assert errors == {}
    assert x.tolist() == [
        [1, 0, 1, 1, 0, 0],
        [3, 1, 2, 0, 1, 0],
        [3, 0, 3, 0, 0, 1],
        [8, 0, 4, 1, 0, 0],
    ]
    assert columns.indicators.tolist() == [False, True, False, True, True, True]
    assert not columns.is_plain
    mean, std = columns.unscaled(np.full(6, 5.0), np.full(6, 7.0))
    assert mean.tolist() == [5, 0, 5, 0, 0, 0]
    assert std.tolist() == [7, 1, 7, 1, 1, 1]


def test_medians_and_categories_are_of_the_training_rows() -> None:
    columns = Columns.fit(TABLE | {"city": words("Rome", "Rome", "Oslo", "Oslo")}, [0, 1, 2])
    age, _, city = columns.columns
    assert (age.fill, age.missing) == (2, True)  # of 1 and 3
    assert city.categories == ("Rome",)
    later = Columns.fit({"age": TABLE["age"]}, [0, 2, 3])
    assert later.columns[0] == Column("age", missing=True, fill=3.0)  # some row lacks it


def test_values_that_training_did_not_have() -> None:
    columns = Columns.fit({"size": TABLE["size"], "city": words("a", "a", "b", "b")})
    x, errors = columns.encode({"size": ["5", "", "x"], "city": ["c", None, " b "]})
    assert errors == {
        1: "column 'size': the cell is empty, and no row of the training data had an empty one",
        2: "column 'size': 'x' is not a finite number",
    }
    assert x.tolist() == [[5, 0, 0, 1], [0] * 4, [0] * 4]
    x, errors = columns.encode({"size": [5, 5], "city": [None, " b "]})
    assert x.tolist() == [[5, 0, 0, 1], [5, 0, 1, 0]]  # missing is a value like any other new one
    with pytest.raises(InputError, match="line 8, column 'size': 'x' is not a finite number"):
        columns.encode_all({"size": ["x"], "city": ["a"]}, lambda row: f"line {row + 8}")
    with pytest.raises(InputError, match="there is no column 'city'"):
        columns.encode_all({"size": np.ones(1)}, str)


def test_medians_for_what_no_training_row_lacked() -> None:
    columns = Columns.fit({"a": TABLE["size"], "b": TABLE["age"]})
    table = {"a": np.array([np.nan, 1]), "b": np.array([np.nan, 1])}
    found, names = columns.filled(table)
    assert names == ["a"]
    assert columns.encode(found)[0].tolist() == [[2.5, 3, 1], [1, 1, 0]]
    assert columns.filled({"a": words("x", None), "b": table["b"]})[1] == []  # an error, as before


def test_the_most_frequent_values_have_a_number_of_their_own() -> None:
    many = [f"v{index:03}" for index in range(MOST_CATEGORIES + 5) for _ in range(2)]
    column = Columns.fit({"x": words(*many, "v104", "rare", "x" * (LONGEST + 1), "x" * 201)})
    assert len(column.columns[0].categories) <= MOST_CATEGORIES
    assert "v104" in column.columns[0].categories
    assert "rare" not in column.columns[0].categories


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", " 2.5 ", "-3e2"], [1, 2.5, -300]),
        (["", "NA", "n/a", "NaN", "null", "?", None], [np.nan] * 7),
        (["True", "FALSE", True, False], [1, 0, 1, 0]),
        (["1_000", "inf", "x", "1e999", 10**400, [1]], [np.inf] * 6),
        (np.array([1, 2], np.int8), [1, 2]),
    ],
)
def test_cells_as_numbers(cells: Any, expected: list[float]) -> None:
    values, errors = to_numbers(cells)
    np.testing.assert_array_equal(values, expected)
    assert list(errors) == np.flatnonzero(np.isinf(expected)).tolist()


@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6) | st.none(), st.sampled_from(["a", "b", "c", None])),
        min_size=1,
    )
)
def test_text_numbers_and_frames_become_the_same(rows: list[tuple[Any, Any]]) -> None:
    numbers, texts = zip(*rows, strict=True)
    frame = pd.DataFrame(
        {"n": pd.Series(numbers, dtype=float), "t": pd.Series(texts, dtype=object)}
    )
    columns = Columns.fit(frame_cells(frame) | {"t": words(*texts)})
    as_texts = {"n": ["" if v is None else repr(v) for v in numbers], "t": [v or "" for v in texts]}
    expected = columns.encode({"n": list(numbers), "t": list(texts)})
    for given_cells in (as_texts, frame_cells(frame) | {"t": words(*texts)}):
        found = columns.encode(given_cells)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1] == expected[1] == {}
    assert expected[0].shape == (len(rows), len(columns.outputs))


def test_frames() -> None:
    frame = pd.DataFrame(
        {
            "i": pd.array([1, None, 3], dtype="Int64"),
            "b": [True, False, True],
            "s": pd.array(["x", None, "y"], dtype="string"),
            "c": pd.Categorical([1, 2, 1]),
            "o": [1, 2.5, None],
            7: ["u", "v", "w"],
        }
    )
    cells = frame_cells(frame)
    np.testing.assert_array_equal(cells["i"], [1, np.nan, 3])
    assert cells["b"].tolist() == [1, 0, 1]
    assert cells["s"].tolist() == ["x", None, "y"]
    assert cells["c"].tolist() == ["1", "2", "1"]
    np.testing.assert_array_equal(cells["o"], [1, 2.5, np.nan])
    assert cells["7"].tolist() == ["u", "v", "w"]
    with pytest.raises(InputError, match="column 'when' is of datetime64"):
        frame_cells(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}))
    with pytest.raises(InputError, match="more than one column 'a'"):
        frame_cells(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_plain_values_and_back() -> None:
    columns = Columns.fit(TABLE)
    plain = json.loads(json.dumps(to_plain(columns)))
    assert from_plain(Columns, plain, "header.columns") == columns
    assert Columns.of_numbers("ab").is_plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "the name of a column has 1 to 200 characters, got 0"),
        ({"name": "x" * 201}, "the name of a column has 1 to 200 characters"),
        ({"fill": float("nan")}, "fill must be a finite number"),
        ({"fill": 1e300}, "fill must be a finite number"),
        ({"categories": ["a"]}, "numbers have no categories"),
        ({"kind": "category", "categories": ["a", "a"]}, "categories must differ"),
        ({"kind": "category", "categories": [str(i) for i in range(101)]}, "be 100 at most"),
        ({"kind": "category", "categories": ["x" * 201]}, "a category has 1 to 200 characters"),
        ({"kind": "date"}, "expected one of number, category"),
        ({"categories": [3]}, "expected a text"),
        ({"missing": 1}, "expected true or false"),
    ],
)
def test_columns_of_a_stranger(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_plain(Columns, {"columns": [{"name": "a", **change}]}, "header.columns")


def test_columns_that_differ_by_nothing() -> None:
    with pytest.raises(InputError, match="more than one column is named 'a'"):
        Columns.of_numbers(["a", "b", "a"])
    with pytest.raises(InputError, match="1 to 100,000 columns, got 0"):
        Columns(())


def test_what_a_cell_is_in_words() -> None:
    told = [each.words() for each in Columns.fit(TABLE).columns]
    assert told == ["a number or missing", "a number", "Rome, another value or missing"]
