"""The renderings: each read back by a strict reader of its own, and against the table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings

from gemfi_bench import formats
from gemfi_bench.latex import latex
from gemfi_bench.tabular import Column, Row, Table, Value
from support.tables import SAMPLE, assert_rows, flags, one_line, shown_cell, shown_head, tables

# --- CSV: read back by the csv module --------------------------------------------------------


def records(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(formats.csv(table)), strict=True))


def test_csv_has_a_line_for_each_cell_then_the_title_and_the_notes() -> None:
    assert formats.csv(SAMPLE).startswith(
        "label,row,section,group,column,mean,std,low,high,n,text,flag,keys\n"
        "table2,EDL,,MNIST → KMNIST,Alea.,97.021,0.804,,,3,97.02 ± 0.80,,k1 k2\n"
        "table2,EDL,,MNIST → KMNIST,Epis.,,,,,,,,\n"
        "table2,EDL,,,NLL,0.25,,,,3,0.250,,\n"
        "table2,EDL,,,one pass,,,,,,true,,\n"
        "table2,I-EDL,,MNIST → KMNIST,Alea.,98.34,,,,3,98.34,,\n"
        "table2,I-EDL,,MNIST → KMNIST,Epis.,,,,,,data absent,,\n"
    )
    found = records(SAMPLE)
    assert len(found) == 5 * 4 + 3
    assert [one["text"] for one in found if not one["row"]] == [SAMPLE.title, *SAMPLE.notes]
    flagged = [one for one in found if one["flag"]]
    assert [(one["section"], one["mean"]) for one in flagged] == [
        ("Published", "-1.5"),
        ("Published", "0.1"),
    ]


@settings(max_examples=40)
@given(tables())
def test_csv_keeps_every_number_exactly(table: Table) -> None:
    found = iter(records(table))
    for row in table.rows:
        for cell, column in zip(row.cells, table.columns, strict=True):
            one = next(found)
            assert one["row"] == one_line(row.name)
            assert one["section"] == one_line(row.section)
            assert one["group"] == one_line(column.group)
            assert one["column"] == one_line(column.name)
            assert not one["mean"].startswith("-0.0") or float(one["mean"])
            if isinstance(cell, Value):
                assert float(one["mean"]) == cell.mean
                assert (float(one["std"]) if one["std"] else None) == cell.std
                assert one["flag"] == one_line(cell.flag or "")
                assert one["text"] == shown_cell(cell, column)
            else:
                words = {True: "true", False: "false", None: ""}
                expected = one_line(cell) if isinstance(cell, str) else words[cell]
                assert (one["text"], one["mean"], one["n"]) == (expected, "", "")
    assert [one["text"] for one in found] == [
        one_line(text) for text in (table.title, *table.notes)
    ]


@pytest.mark.parametrize(
    ("form", "best"),
    [
        (formats.markdown, "**{}**"),
        (latex, r"\textbf{{{}}}"),
        (formats.html, 'class="best"><strong>{}</strong>'),
    ],
)
def test_a_row_of_fewer_runs_is_bold_in_no_form(form: Callable[[Table], str], best: str) -> None:
    def rendered(runs: int) -> str:
        rows = [Row("a", (Value(99.0, n=3),)), Row("b", (Value(99.5, n=runs),))]
        return form(Table("t", "", (Column("AUPR", better="high"),), tuple(rows)))

    assert best.format("99.50") in rendered(3)
    assert best.format("99.50") not in rendered(1)
    assert best.format("99.00") not in rendered(1)


# --- Markdown: read back by the rules of GitHub's tables --------------------------------------


def markdown_cells(line: str) -> list[str]:
    """The cells of a row, split at pipes that no backslash precedes."""
    cells = re.findall(r"((?:\\.|[^\\|])*)\|", line)
    assert line == "".join(f"{cell}|" for cell in cells)
    assert cells[0] == ""
    return [cell.strip() for cell in cells[1:]]


MARKDOWN = re.compile(
    r"\\(?P<sign>[!-/:-@\[-`{-~])"
    r"|(?P<mark><sup>[a-z]+</sup>|</?ins>|<br>|\*\*?)"
    r"|(?P<raw>[^\\`*_\[\]<>|~$&#])"
)


def unmarked(text: str) -> str:
    """What a text shows; fails on a mark that no table has."""
    assert MARKDOWN.sub("", text) == ""
    return "".join(found["sign"] or found["raw"] or "" for found in MARKDOWN.finditer(text))


def test_markdown_of_the_sample() -> None:
    assert formats.markdown(SAMPLE) == (
        "### AUPR of OOD detection (`table2`)\n"
        "\n"
        "| Method | MNIST → KMNIST<br>Alea. ↑ | MNIST → KMNIST<br>Epis. ↑ | NLL ↓ | one pass |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| EDL | 97.02 ± 0.80 | – | <ins>0.250</ins> | ✓ |\n"
        "| I-EDL | <ins>98.34</ins> | data absent | ∞ | ✗ |\n"
        "| **GEM-FI** | **99.95** | – | **0.000** | ✓ |\n"
        "| *Published* |  |  |  |  |\n"
        "| GEM-FI | 99.95 ± 0.00 | −1.50<sup>a</sup> | – | – |\n"
        "| DAEDL | – | – | 0.100<sup>a</sup> | – |\n"
        "\n"
        "- <sup>a</sup> impossible: \\< 0\n"
        "- ID is positive.\n"
        "- 5 seeds \\& more.\n"
    )


@settings(max_examples=40)
@given(tables())
def test_markdown_keeps_every_name_in_its_cell(table: Table) -> None:
    lines = formats.markdown(table).splitlines()
    body = [markdown_cells(line) for line in lines if line.startswith("|")]
    assert {len(cells) for cells in body} == {len(table.columns) + 1}
    assert set("".join(body[1])) <= set("-:")
    head, *rows = [[unmarked(cell) for cell in cells] for cells in (body[0], *body[2:])]
    assert head == [
        one_line(table.stub),
        *(one_line(c.group) + shown_head(c) for c in table.columns),
    ]
    assert_rows(rows, table)
    remarks = [unmarked(line[2:]).strip() for line in lines if line.startswith("- ")]
    assert remarks == [*flags(table), *map(one_line, table.notes)]


@pytest.mark.parametrize(
    ("note", "line"),
    [
        ("- no list", "- \\- no list"),
        ("1. no list", "- 1\\. no list"),
        ("# no heading", "- \\# no heading"),
        ("a_b * c\nd", "- a\\_b \\* c d"),
        ("2 sets", "- 2 sets"),
    ],
)
def test_a_note_in_markdown_is_text(note: str, line: str) -> None:
    assert formats.markdown(replace(SAMPLE, notes=(note,))).splitlines()[-1] == line


# --- HTML: read back by a parser that refuses what is not closed ------------------------------


@dataclass
class Element:
    name: str
    attributes: dict[str, str]
    inside: list[Element | str] = field(default_factory=list)

    @property
    def children(self) -> list[Element]:
        return [one for one in self.inside if isinstance(one, Element)]

    def all(self, name: str) -> list[Element]:
        inner = [found for child in self.children for found in child.all(name)]
        return [self, *inner] if self.name == name else inner

    def text_without(self, name: str) -> str:
        """The text, but for that in elements of a name."""
        if self.name == name:
            return ""
        return "".join(
            one if isinstance(one, str) else one.text_without(name) for one in self.inside
        )

    @property
    def text(self) -> str:
        return self.text_without("no such element")


class Reader(HTMLParser):
    """A tree of elements."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open = [Element("root", {})]
        self.feed(source)
        self.close()
        assert [element.name for element in self.open] == ["root"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(element)
        self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)

    def handle_comment(self, data: str) -> None:
        pytest.fail(f"a comment: {data}")


def figure(table: Table) -> Element:
    (found,) = Reader(formats.html(table)).open[0].children
    assert found.name == "figure"
    return found


def grid(rows: Sequence[Element], width: int) -> list[list[str]]:
    """The texts of rows of cells over as many columns and rows as they span."""
    cells: dict[tuple[int, int], str] = {}
    for at, row in enumerate(rows):
        for cell in row.children:
            free = next(column for column in range(width + 1) if (at, column) not in cells)
            for down in range(int(cell.attributes.get("rowspan", 1))):
                for right in range(int(cell.attributes.get("colspan", 1))):
                    assert (at + down, free + right) not in cells
                    cells[at + down, free + right] = cell.text
    assert set(cells) == {(at, column) for at in range(len(rows)) for column in range(width)}
    return [[cells[at, column] for column in range(width)] for at in range(len(rows))]


def test_html_has_heads_over_their_columns() -> None:
    (head,) = figure(SAMPLE).all("thead")
    assert grid(head.all("tr"), 5) == [
        ["Method", "MNIST → KMNIST", "MNIST → KMNIST", "NLL ↓", "one pass"],
        ["Method", "Alea. ↑", "Epis. ↑", "NLL ↓", "one pass"],
    ]
    numbered = [th for th in head.all("th") if "data-column" in th.attributes]
    found = {int(th.attributes["data-column"]): th.text for th in numbered}
    assert found == {0: "Method", 1: "Alea. ↑", 2: "Epis. ↑", 3: "NLL ↓", 4: "one pass"}
    (plain,) = figure(replace(SAMPLE, columns=tuple(map(Column, "abcd")))).all("thead")
    assert grid(plain.all("tr"), 5) == [["Method", "a", "b", "c", "d"]]


def test_html_of_the_sample() -> None:
    found = figure(SAMPLE)
    assert found.attributes == {"class": "table", "id": "table2"}
    assert [caption.text for caption in found.all("figcaption")] == [SAMPLE.title]
    ours, published = found.all("tbody")
    rows = ours.all("tr")
    assert [row.attributes.get("data-method") for row in rows] == ["edl", "i-edl", "gem-fi"]
    assert [row.attributes.get("class") for row in rows] == [None, None, "ours"]
    cells = [[cell.attributes for cell in row.all("td")] for row in rows]
    assert cells[0][0] == {"data-value": "97.021", "data-keys": "k1 k2"}
    assert cells[0][1] == {"class": "undefined"}
    assert cells[0][3] == {"data-value": "1", "class": "yes"}
    assert cells[1][0] == {"data-value": "98.34", "class": "second"}
    assert cells[1][1] == {"class": "text"}
    assert cells[1][3] == {"data-value": "0", "class": "no"}
    assert cells[2][0] == {"data-value": "99.949", "class": "best"}
    assert cells[2][1] == {"class": "undefined"}
    section = published.all("tr")[0]
    assert (section.attributes, section.text) == ({"class": "section"}, "Published")
    flagged = found.all("abbr")
    assert [(abbr.text, abbr.attributes["title"]) for abbr in flagged] == [
        ("a", "impossible: < 0")
    ] * 2
    assert [item.text for item in found.all("li")] == ["a impossible: < 0", *SAMPLE.notes]


@settings(max_examples=40)
@given(tables())
def test_html_shows_every_name_in_its_cell(table: Table) -> None:
    found = figure(table)
    (head,) = found.all("thead")
    heads = grid(head.all("tr"), len(table.columns) + 1)
    assert heads[-1] == [one_line(table.stub), *map(shown_head, table.columns)]
    if len(heads) == 2:
        assert heads[0][1:] == [one_line(col.group) or shown_head(col) for col in table.columns]
    rows = []
    for row in (tr for body in found.all("tbody") for tr in body.all("tr")):
        cells = [cell.text_without("sup") for cell in row.children]
        rows.append(cells + [""] * (len(table.columns) + 1 - len(cells)))
    assert_rows(rows, table)
    remarks = [item.text_without("sup").strip() for item in found.all("li")]
    assert remarks == [*flags(table), *map(one_line, table.notes)]


def test_html_takes_no_text_for_markup() -> None:
    text = """<b class='x'>&amp;"</b>"""
    row = Row(text, (Value(1.0, keys=('"<k>&',), flag=text), text), text, section=text)
    columns = (Column(text, text), Column(text))
    found = figure(Table("t", text, columns, (row,), text, (text,)))
    assert found.all("b") == []
    section, line = found.all("tbody")[0].all("tr")
    assert section.text == text
    assert (line.attributes["data-method"], line.all("th")[0].text) == (text, text)
    assert [cell.attributes.get("data-keys") for cell in line.all("td")] == ['"<k>&', None]
    assert line.all("td")[1].text == text
    assert [abbr.attributes["title"] for abbr in found.all("abbr")] == [text]
    assert [item.text for item in found.all("li")] == [f"a {text}", text]
    assert found.all("figcaption")[0].text == text
    assert {th.text for th in found.all("thead")[0].all("th")} == {text}


def test_html_says_which_columns_hold_words() -> None:
    rows = (
        Row("a", ("short", "long " * 10, "data absent", None)),
        Row("b", (None, "short", Value(1.0), None)),
    )
    found = figure(Table("t", "", tuple(map(Column, "wxyz")), rows))
    heads = found.all("thead")[0].all("th")
    assert [th.attributes.get("class") for th in heads] == [
        None,
        "words",
        "words prose",
        None,
        None,
    ]
    classes = [td.attributes.get("class") for td in found.all("td")]
    assert classes == [
        *("text words", "text words prose", "text", "undefined"),
        *("undefined words", "text words prose", None, "undefined"),
    ]


# --- all four --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [formats.csv, formats.html, latex, formats.markdown])
def test_no_form_shows_a_negative_zero(form: Callable[[Table], str]) -> None:
    for mean in (-0.0, -0.004):
        shown = form(Table("t", "", (Column("c"),), (Row("r", (Value(mean, 0.0),)),)))
        assert "0.00 ± 0.00" in re.sub(r"<[^>]*>", "", shown.replace(r"$\pm$", "±"))
        assert "−0" not in shown
        assert "-0.0," not in shown
        assert '"-0.0"' not in shown


def test_flags_are_lettered_beyond_the_alphabet() -> None:
    rows = tuple(Row(f"r{at}", (Value(1.0, flag=f"flag {at}"),)) for at in range(28))
    found = formats.markdown(Table("t", "", (Column("c"),), rows))
    for letter, at in (("a", 0), ("z", 25), ("aa", 26), ("ab", 27)):
        assert f"| r{at} | 1.00<sup>{letter}</sup> |" in found
        assert f"- <sup>{letter}</sup> flag {at}\n" in found


def test_a_table_may_be_empty() -> None:
    empty = Table("t", "nothing", (), ())
    assert formats.markdown(empty) == "### nothing (`t`)\n\n| Method |\n| --- |\n"
    assert figure(empty).all("td") == []
    assert [one["column"] for one in records(empty)] == ["title"]
