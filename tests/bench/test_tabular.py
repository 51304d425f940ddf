"""The table model: what it refuses, how it rounds, and what it marks."""

from __future__ import annotations

import doctest
import math
import statistics
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemfi.errors import InputError
from gemfi_bench import tabular as table_module
from gemfi_bench.tabular import (
    Better,
    Cell,
    Column,
    Row,
    Table,
    Value,
    has_few_runs,
    marks,
    printed,
)


def column_of(*cells: Cell, column: Column | None = None, sections: str = "") -> Table:
    """A table of one column; the k-th letter of `sections` is the section of the k-th row."""
    names = sections or " " * len(cells)
    rows = tuple(
        Row(f"row {at}", (cell,), section=section.strip())
        for at, (cell, section) in enumerate(zip(cells, names, strict=True))
    )
    return Table("table2", "A title", (column or Column("AUPR", better="high"),), rows)


def numbers(*means: float) -> list[Value]:
    return [Value(mean) for mean in means]


# --- values ----------------------------------------------------------------------------------


def test_a_value_has_the_mean_and_the_sample_deviation_of_its_runs() -> None:
    runs = [97.02, 96.1, 97.5, 95.25]
    value = Value.of(runs, ["a", "b", "c", "d"])
    assert value.mean == pytest.approx(statistics.fmean(runs), abs=1e-12)
    assert value.std == pytest.approx(statistics.stdev(runs), abs=1e-12)
    assert (value.n, value.keys, value.flag) == (4, ("a", "b", "c", "d"), None)


def test_one_run_has_no_deviation() -> None:
    assert Value.of([3.5], ("k",)) == Value(3.5, None, 1, ("k",))


def test_a_run_without_the_number_leaves_it_undefined() -> None:
    assert math.isnan(Value.of([1.0, math.nan]).mean)
    assert Value.of([1.0, math.nan]).std is None
    assert Value.of([1.0, math.inf]) == Value(math.inf, None, 2)
    assert math.isnan(Value.of([-math.inf, math.inf]).mean)


@pytest.mark.parametrize(
    ("number", "decimals", "text"),
    [
        (99.995, 2, "100.00"),  # the double below is 99.99500000000000454747
        (0.125, 2, "0.12"),  # an exact tie goes to the even digit, as Python prints
        (-0.004, 2, "0.00"),
        (-0.0, 0, "0"),
        (-0.006, 2, "-0.01"),
        (5, 1, "5.0"),
        (-math.inf, 1, "-inf"),
    ],
)
def test_a_number_is_printed_in_one_way(number: float, decimals: int, text: str) -> None:
    assert printed(number, decimals) == text


@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_a_printed_number_is_near_and_never_a_negative_zero(number: float, decimals: int) -> None:
    text = printed(number, decimals)
    assert abs(Decimal(text) - Decimal(number)) <= Decimal(10) ** -decimals / 2
    assert not (Decimal(text) == 0 and text.startswith("-"))


# --- tables ----------------------------------------------------------------------------------


def test_each_row_has_as_many_cells_as_there_are_columns() -> None:
    columns = (Column("AUPR"), Column("AUROC"))
    with pytest.raises(InputError, match="table2: row 'EDL' has 1 cells, expected one for each of"):
        Table("table2", "", columns, (Row("EDL", (None,)),))


def test_a_section_begins_once() -> None:
    with pytest.raises(InputError, match="section 'a' begins twice; put its rows next to each"):
        column_of(None, None, None, sections="aba")
    assert list(column_of(None, None, None, sections="aab").sections()) == [
        ("a", [0, 1]),
        ("b", [2]),
    ]


# --- marks -----------------------------------------------------------------------------------


def test_the_best_and_the_second_best_are_marked() -> None:
    table = column_of(*numbers(1, 3, 2, 0))
    assert marks(table) == {(1, 0): "best", (2, 0): "second"}
    low = replace(table, columns=(Column("ECE", better="low"),))
    assert marks(low) == {(3, 0): "best", (0, 0): "second"}


def test_numbers_compete_as_printed() -> None:
    table = column_of(*numbers(99.991, 99.99, 99.94))
    assert marks(table) == {(0, 0): "best", (1, 0): "best"}  # two are best: no second
    finer = replace(table, columns=(Column("AUPR", better="high", decimals=3),))
    assert marks(finer) == {(0, 0): "best", (1, 0): "second"}


def test_all_that_tie_for_second_are_marked() -> None:
    table = column_of(*numbers(-0.001, 5, 0.001, -1))
    assert marks(table) == {(1, 0): "best", (0, 0): "second", (2, 0): "second"}


def test_only_numbers_of_columns_that_say_what_is_better_compete() -> None:
    cells = [Value(1.0), "data absent", None, True, Value(math.nan), Value(2.0)]
    assert marks(column_of(*cells)) == {(5, 0): "best", (0, 0): "second"}
    assert marks(column_of(*cells, column=Column("AUPR"))) == {}
    published = Column("AUPR", better="high", marked=False)
    assert marks(column_of(*cells, column=published)) == {}


def test_a_number_alone_is_not_best() -> None:
    assert marks(column_of(Value(1.0), None, Value(math.nan))) == {}


def test_sections_compete_apart() -> None:
    table = column_of(*numbers(1, 2, 9, 8, 7), sections="aabbc")
    assert marks(table) == {(1, 0): "best", (0, 0): "second", (2, 0): "best", (3, 0): "second"}


def test_an_infinite_number_competes_but_is_not_marked() -> None:
    column = Column("NLL", better="low")
    assert marks(column_of(Value(1.0), Value(math.inf), column=column)) == {(0, 0): "best"}


def test_what_rests_on_fewer_runs_competes_but_is_not_marked() -> None:
    """So that bold is always the best that is printed, and never luck that nobody repeated."""
    three, one = Value(2.0, n=3), Value(3.0)
    assert marks(column_of(one, three, Value(1.0, n=3))) == {(1, 0): "second"}
    assert marks(column_of(Value(1.0), three, Value(1.0, n=3))) == {
        (1, 0): "best",
        (2, 0): "second",
    }
    assert marks(column_of(one, Value(2.0))) == {(0, 0): "best", (1, 0): "second"}
    assert marks(column_of(one, three, Value(4.0), sections="aab")) == {(1, 0): "second"}
    assert has_few_runs(column_of(one, three))
    assert not has_few_runs(column_of(one, three, sections="ab"))
    assert not has_few_runs(column_of(one, three, column=Column("AUPR")))


def test_one_of_three_runs_is_few_even_where_no_row_has_more() -> None:
    """As in table13 of MNIST, most of whose arrays were gone."""
    part = Value(3.0, unseen=2)
    assert marks(column_of(part, Value(2.0))) == {}
    columns = (Column("ECE", better="high"), Column("AUROC", better="high"))
    rows = (Row("a", (Value(3.0), Value(3.0))), Row("b", (None, Value(2.0, n=3))))
    assert marks(Table("t", "", columns, (*rows, Row("c", (Value(2.0), None))))) == {
        (1, 1): "second"
    }


@given(
    st.lists(
        st.tuples(st.floats(-0.05, 0.05) | st.none(), st.sampled_from("abc")),
        max_size=8,
    ),
    st.sampled_from(["high", "low"]),
)
def test_marks_agree_with_counting_what_is_better(
    drawn: list[tuple[float | None, str]], better: Better
) -> None:
    drawn = sorted(drawn, key=lambda pair: pair[1])
    cells = [None if mean is None else Value(mean) for mean, _ in drawn]
    sections = "".join(section for _, section in drawn)
    found = marks(column_of(*cells, column=Column("x", better=better), sections=sections))
    sign = 1 if better == "high" else -1
    known = {
        at: (sign * Decimal(printed(mean, 2)), section)
        for at, (mean, section) in enumerate(drawn)
        if mean is not None
    }
    expected = {}
    for at, (mine, section) in known.items():
        others = [other for k, (other, s) in known.items() if s == section and k != at]
        ahead = sum(other > mine for other in others)
        if others and ahead < 2:  # one that two are ahead of is third
            expected[at, 0] = ("best", "second")[ahead]
    assert found == expected


def test_the_examples_in_the_docstrings_are_true() -> None:
    outcome = doctest.testmod(table_module)
    assert outcome.attempted > 0
    assert outcome.failed == 0
