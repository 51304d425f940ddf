"""Tables: numbers and labels from CSV and parquet, and every bad cell named by line and column."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemfi.data.readers import Table, base, read_csv, read_parquet
from gemfi.errors import InputError

IRIS = "length,width,kind\n5.1,3.5,setosa\n7,3.2,versicolor\n6.3,-3e-1,setosa\n"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def labels(table: Table) -> list[int]:
    assert table.labels is not None
    assert table.labels.dtype == np.int64
    found: list[int] = table.labels.tolist()
    return found


class TestCsv:
    @pytest.mark.parametrize("label", ["kind", 2, -1])
    def test_header_and_label(self, tmp_path: Path, label: str | int) -> None:
        table = read_csv(write(tmp_path / "a.csv", IRIS), label=label)
        assert len(table) == 3
        assert table.feature_names == ("length", "width")
        np.testing.assert_array_equal(table.features, [[5.1, 3.5], [7, 3.2], [6.3, -0.3]])
        assert table.features.dtype == np.float64
        assert labels(table) == [0, 1, 0]
        assert table.class_names == ("setosa", "versicolor")

    def test_without_labels_and_with_numbers_for_names(self, tmp_path: Path) -> None:
        table = read_csv(write(tmp_path / "a.csv", "0,1,2\n1,2,5\n3,4,6\n"))
        assert table.feature_names == ("0", "1", "2")
        assert table.labels is None
        np.testing.assert_array_equal(table.features, [[1, 2, 5], [3, 4, 6]])
        table = read_csv(tmp_path / "a.csv", label=0)
        assert table.class_names == ("1", "3")
        np.testing.assert_array_equal(table.features, [[2, 5], [4, 6]])

    def test_dialects(self, tmp_path: Path) -> None:
        text = '\ufeff"a, b"; y ;c\r\n 1 ;"x;\ny"; 2\r\n\r\n3; z ;4'
        table = read_csv(write(tmp_path / "a.csv", text), label="y", delimiter=";")
        assert table.feature_names == ("a, b", "c")
        assert table.class_names == ("x;\ny", "z")
        np.testing.assert_array_equal(table.features, [[1, 2], [3, 4]])

    @pytest.mark.parametrize(
        ("values", "classes"),
        [
            (["10", "9", "-1", "9"], ("-1", "9", "10")),
            (["10", "9", "x"], ("10", "9", "x")),
            (["1.5", "1", "1.25"], ("1", "1.25", "1.5")),
            (["True", "False"], ("False", "True")),
            (["ñ", "日本", "a b"], ("a b", "ñ", "日本")),
        ],
    )
    def test_classes_are_sorted(
        self, tmp_path: Path, values: list[str], classes: tuple[str, ...]
    ) -> None:
        text = "y,x\n" + "".join(f"{value},0\n" for value in values)
        table = read_csv(write(tmp_path / "a.csv", text), label="y")
        assert table.class_names == classes
        assert [classes[label] for label in labels(table)] == values

    def test_classes_of_another_table(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", "y,x\nc,1\na,2\n")
        assert labels(read_csv(path, label="y", class_names=["a", "b", "c"])) == [2, 0]
        with pytest.raises(InputError, match=r"a\.csv, line 2: label 'c' is not a class \(a, b\)"):
            read_csv(path, label="y", class_names=["a", "b"])
        with pytest.raises(InputError, match="class_names must differ"):
            read_csv(path, label="y", class_names=["a", "c", "a"])

    @given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 3))))
    def test_numbers_are_exact(
        self, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, int]]
    ) -> None:
        rows = [*rows, (0.1, 0)]
        path = tmp_path_factory.getbasetemp() / "exact.csv"
        write(path, "x,y\n" + "".join(f"{x!r},{y}\n" for x, y in rows))
        table = read_csv(path, label="y")
        assert table.features[:, 0].tolist() == [x for x, _ in rows]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "x,y,z\n" + 10 * "1,a,2\n" + "1,b,oops\n",
                r"line 12, column 'z': 'oops' is not a finite number, as the others",
            ),
            ("x,y,z\n1,a,1e999\n", r"line 2, column 'z': '1e999' is not a finite"),
            ("x,y,z\n1,a,1_000\n", r"line 2, column 'z': '1_000' is not a finite"),
            ("x,y,z\n1,,2\n", r"line 2, column 'y': the label is empty"),
            ("x,y,z\n1,a,2\n1,a\n", r"line 3: 2 cells, but the header has 3"),
            ("x,y,z\n1,a,2,4\n", r"line 2: 4 cells, but the header has 3"),
            ('x,y,z\n1,"a\n\n",2\n1,a\n', r"line 5: 2 cells"),
            ("x,y,x\n1,a,2\n", "more than one column is named 'x'"),
            ("x,y,z\n", "has a header, but no rows"),
            ("\n\n", "has no rows"),
            ("", "is empty"),
            ("x,z\n1,2\n", "has no column 'y'; it has: x, z"),
            ("y\n1\n", "has no column but the label 'y'"),
            ('x,y,z\n1,"a\n', "line 2: unexpected end of data"),
            (b"x,y,z\n1,\xff,2\n", "offset 8 is not UTF-8"),
            ("x,y,z\n1," + "a" * 200_000 + ",2\n", "line 2: field larger than field limit"),
        ],
    )
    def test_bad_files(self, tmp_path: Path, text: str | bytes, message: str) -> None:
        path = write(tmp_path / "bad.csv", text)
        with pytest.raises(InputError, match=message) as caught:
            read_csv(path, label="y")
        assert str(path) in str(caught.value)

    def test_words_and_missing_cells(self, tmp_path: Path) -> None:
        text = "x,w,b,y\n1,red, True ,a\n,7,false,b\nNA,?,NULL,b\n"
        table = read_csv(write(tmp_path / "a.csv", text), label="y")
        np.testing.assert_array_equal(table.columns["x"], [1, np.nan, np.nan])
        assert table.columns["w"].tolist() == ["red", "7", None]
        np.testing.assert_array_equal(table.columns["b"], [1, 0, np.nan])
        assert table.label_name == "y"
        with pytest.raises(InputError, match="column 'x' has missing cells: Columns"):
            _ = table.features

    def test_a_column_without_a_name_has_the_one_of_pandas(self, tmp_path: Path) -> None:
        table = read_csv(write(tmp_path / "a.csv", ",x,y\n0,5,a\n1,6,b\n"), label="y")
        assert table.feature_names == ("Unnamed: 0", "x")

    def test_arguments(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", IRIS)
        with pytest.raises(InputError, match="has 3 columns, so there is no column 3"):
            read_csv(path, label=3)
        with pytest.raises(InputError, match="delimiter must be one character, got ''"):
            read_csv(path, delimiter="")
        with pytest.raises(InputError, match="cannot read"):
            read_csv(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("1 0 1.0", r"labels '1' \(line 2\) and '1\.0' \(line 4\) are the same number; write them"),
        ("0 -0 1", r"'0' \(line 2\) and '-0' \(line 3\)"),
        ("a 10 10 1e1", r"'10' \(line 3\) and '1e1' \(line 5\)"),
    ],
)
def test_a_number_that_is_written_in_two_ways(tmp_path: Path, column: str, said: str) -> None:
    rows = "".join(f"5,{label}\n" for label in column.split())
    path = write(tmp_path / "a.csv", f"x,y\n{rows}")
    with pytest.raises(InputError, match=said) as caught:
        read_csv(path, label="y")
    assert str(path) in str(caught.value)


def test_numbers_that_only_a_float_takes_for_the_same(tmp_path: Path) -> None:
    large = ("9007199254740992", "9007199254740993")
    path = write(tmp_path / "a.csv", f"x,y\n1,{large[1]}\n2,{large[0]}\n3,1e-{'9' * 30}\n")
    assert set(read_csv(path, label="y").class_names or ()) == {*large, f"1e-{'9' * 30}"}


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="reading parquet needs pyarrow: pip install pyarrow"):
        read_parquet(tmp_path / "a.parquet")


def test_an_old_pyarrow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("pyarrow")
    old.__version__ = "14.0.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", old)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", ModuleType("pyarrow.parquet"))
    with pytest.raises(InputError, match=r"pyarrow 14\.0\.0 can be made to unpickle"):
        read_parquet(tmp_path / "a.parquet")


if importlib.util.find_spec("pyarrow"):  # optional even for developers: no extra brings it

    class TestParquet:
        def write(self, path: Path, **columns: Any) -> Path:
            import pyarrow as pa  # noqa: PLC0415 - optional
            from pyarrow import parquet  # noqa: PLC0415 - optional

            parquet.write_table(pa.table(columns), path)
            return path

        def test_columns(self, tmp_path: Path) -> None:
            path = self.write(
                tmp_path / "a.parquet", x=[1.5, 2, 3], y=[10, 9, 10], b=[True, False, True]
            )
            table = read_parquet(path, label="y")
            assert table.feature_names == ("x", "b")
            np.testing.assert_array_equal(table.features, [[1.5, 1], [2, 0], [3, 1]])
            assert table.class_names == ("9", "10")
            assert labels(table) == [1, 0, 1]
            assert read_parquet(path).labels is None

        def test_words_and_missing_cells(self, tmp_path: Path) -> None:
            path = self.write(tmp_path / "a.parquet", x=[1, None], w=["red ", None], y=["a", "b"])
            table = read_parquet(path, label="y")
            np.testing.assert_array_equal(table.columns["x"], [1, np.nan])
            assert table.columns["w"].tolist() == ["red", None]

        def test_bad_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
            path = tmp_path / "a.parquet"
            cases: dict[str, dict[str, Any]] = {
                "row 1, column 'x': 'inf' is not a finite": {
                    "x": [1, float("inf")],
                    "y": ["a", "b"],
                },
                "column 'x': .* is neither numbers nor text": {"x": [[1], [2]], "y": ["a", "b"]},
                "row 0, column 'y': the label is empty": {"x": [1, 2], "y": [None, "b"]},
                "has no column 'y'; it has: x": {"x": [1]},
                "has no rows": {"x": [], "y": []},
            }
            for message, columns in cases.items():
                self.write(path, **columns)
                with pytest.raises(InputError, match=message) as caught:
                    read_parquet(path, label="y")
                assert str(path) in str(caught.value)
            self.write(path, x=[1, 2], y=["unlikely", "b"])
            whole = path.read_bytes()
            path.write_bytes(whole.replace(b"unlikely", b"\xff" * 8))
            with pytest.raises(InputError, match=r"cannot read .* as parquet: .*(?i:utf-?8)"):
                read_parquet(path, label="y")
            path.write_bytes(whole)
            monkeypatch.setattr(base, "MAX_BYTES", 31)
            with pytest.raises(InputError, match="claims 4 cells"):
                read_parquet(path, label="y")
            path.write_bytes(whole[:-9])
            with pytest.raises(InputError, match=r"cannot read .* as parquet"):
                read_parquet(path)
            with pytest.raises(InputError, match=r"cannot read .* as parquet"):
                read_parquet(tmp_path / "none.parquet")


def test_a_first_row_of_data_is_not_taken_for_names(tmp_path: Path) -> None:
    path = tmp_path / "bare.csv"
    path.write_text("5.1,3.5,setosa\n4.9,3.0,setosa\n7.0,3.2,other\n")
    with pytest.raises(InputError, match=r"first row \(5.1, 3.5\) looks like data"):
        read_csv(path, label=-1)
    path.write_text("0,1,kind\n5.1,3.5,setosa\n4.9,3.0,other\n")  # as pandas names columns
    assert read_csv(path, label=-1).feature_names == ("0", "1")
