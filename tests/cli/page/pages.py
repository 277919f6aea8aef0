"""Pages as a parser of HTML sees them, and texts that break out of a page that does not escape them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Final

HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}</style>",
    "</title></svg><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "--><script>alert(1)</script><!--",
    "{{ 7 * 7 }}{% include 'x' %}",
    "javascript:alert(1)",
    "$\\frac{1}{2}$",
    "\u202egnirts\u202c\x00\x1b[31m\ud800",
)
AS_OF_MS: Final = 1_795_686_028_233
_VOID: Final = {"meta", "link", "input", "br", "img", "hr", "source"}


@dataclass
class Element:
    """An element: its tag, its attributes, and the text in it and its children."""

    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str | None = None, **attributes: str) -> list[Element]:
        """Elements below it, in order; `class_` is one of the classes that they have."""
        found = []
        for child in self.children:
            own = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
            if (tag is None or child.tag == tag) and all(
                value in (child.attributes.get(name) or "").split() for name, value in own.items()
            ):
                found.append(child)
            found += child.all(tag, **attributes)
        return found

    def one(self, tag: str | None = None, **attributes: str) -> Element:
        """The only such element."""
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def words(self) -> str:
        """Its text and that of its children, blanks as one."""
        return " ".join(f"{self.text} {' '.join(child.words for child in self.children)}".split())

    @property
    def shape(self) -> Any:
        """Its tag and the names of its attributes, and the same of its children."""
        return self.tag, sorted(self.attributes), [child.shape for child in self.children]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self._open[-1].children.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> ends <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1].tag == "":
            assert not data.strip(), data
        self._open[-1].text += data


def parsed(text: str) -> Element:
    """The page as a tree; every element is closed, in order."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader._open == [reader.root]
    return reader.root.one("html")


def rows_of(table: Element) -> list[list[str]]:
    """The texts of a table's cells, row by row, without its head."""
    return [
        [cell.words for cell in row.children if cell.tag in ("th", "td")]
        for body in table.all("tbody")
        for row in body.all("tr")
    ]


def check_closed(text: str) -> None:
    """A page asks for nothing from elsewhere, and runs and styles nothing but its own, which its policy names."""
    page = parsed(text)
    policy = page.one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    assert policy is not None
    for kind in ("script", "style"):
        own = page.one(kind)
        digest = base64.b64encode(hashlib.sha256(own.text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
        assert own.attributes == {}
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"unsafe|https?:|\*", policy)
    for element in page.all():
        assert element.tag not in ("iframe", "object", "embed", "base", "img", "image"), element.tag
        for name, value in element.attributes.items():
            assert not name.startswith("on"), name
            assert name not in ("style", "src", "srcset", "action", "formaction", "xlink:href"), name
            if name == "href":
                assert value is not None
                assert value.startswith("#") or value == "data:,"


def poisoned(value: Any, text: str, *, spare: Callable[[str], bool]) -> Any:
    """A document with a text in the place of every one in it, but for the values of keys that `spare` names."""
    if isinstance(value, Mapping):
        return {
            key: each if spare(key) and isinstance(each, str) else poisoned(each, text, spare=spare)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(poisoned(each, text, spare=spare) for each in value)
    return text if isinstance(value, str) else value
