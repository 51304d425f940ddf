"""A page of HTML as a tree, read strictly: every element is closed, in order, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "input"}


@dataclass
class Element:
    """An element with its attributes and, in order, its texts and elements."""

    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    inside: list[Element | str] = field(default_factory=list)

    def __getitem__(self, attribute: str) -> str:
        return self.attributes[attribute]

    def get(self, attribute: str) -> str:
        return self.attributes.get(attribute, "")

    @property
    def classes(self) -> set[str]:
        return set(self.get("class").split())

    @property
    def text(self) -> str:
        parts = (each if isinstance(each, str) else each.text for each in self.inside)
        return "".join(parts)

    def walk(self) -> Iterator[Element]:
        """This element and all below it, in the order of the page."""
        yield self
        for each in self.inside:
            if isinstance(each, Element):
                yield from each.walk()

    def all(self, name: str = "", *classes: str, **attributes: str) -> list[Element]:
        """The elements below with that name, those classes and attributes; `_` stands for `-`."""
        wanted = {key.replace("_", "-"): value for key, value in attributes.items()}
        return [
            each
            for each in self.walk()
            if (not name or each.name == name)
            and set(classes) <= each.classes
            and wanted.items() <= each.attributes.items()
        ]

    def one(self, name: str = "", *classes: str, **attributes: str) -> Element:
        (found,) = self.all(name, *classes, **attributes)
        return found


class _Reader(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.open = [Element("root")]
        self.feed(source)
        self.close()
        assert [each.name for each in self.open] == ["root"], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of <{tag}> is given twice"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def read(source: str) -> Element:
    """The tree of a page or of a fragment."""
    return _Reader(source).open[0]
