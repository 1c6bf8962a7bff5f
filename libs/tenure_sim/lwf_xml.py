"""Reads XML into plain elements that know the line they stand on.

Nothing but elements, attributes and nesting is kept: the lease workload format has no text. A
document that declares entities is refused: no trace needs them, and they can grow without bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from tenure_core.errors import Invalid, Violation

_WHOLE_MAX: Final = 2**40


@dataclass(slots=True)
class Element:
    """One element: its tag, its attributes, what it contains, and its line in the file."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> Iterator[Element]:
        """Return the children of a tag, in order."""
        return (child for child in self.children if child.tag == tag)

    def one(self, tag: str) -> Element | None:
        """Return the first child of a tag, None when there is none."""
        return next(self.all(tag), None)

    def need(self, tag: str) -> Element:
        """Return the first child of a tag. Raises BadElement when there is none."""
        child = self.one(tag)
        if child is None:
            raise BadElement(self.line, f"<{self.tag}> has no <{tag}>")
        return child

    def get(self, name: str) -> str:
        """Return an attribute. Raises BadElement when it is not given."""
        value = self.attributes.get(name)
        if value is None:
            raise BadElement(self.line, f"<{self.tag}> has no attribute {name!r}")
        return value

    def whole(self, name: str, least: int = 0) -> int:
        """Return an attribute that is a whole number of at least `least`."""
        text = self.get(name)
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= _WHOLE_MAX:
            raise BadElement(
                self.line,
                f"{name} of <{self.tag}> is a whole number from {least}, not {text[:40]!r}",
            )
        return number


class BadElement(Exception):
    """An element does not say what it should: on which line, and what is wrong."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def parse_xml(name: str, text: bytes) -> Element:
    """Return the root element. Raises Invalid with the line for what is not well-formed."""
    parser = expat.ParserCreate()
    stack: list[Element] = [Element("", {}, 0)]

    def opened(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def closed(_: str) -> None:
        stack.pop()

    def declared(*_: object) -> None:
        raise BadElement(parser.CurrentLineNumber, "a trace declares no entities")

    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.EntityDeclHandler = declared
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise refused(name, error.lineno, f"this is no XML: {message}") from None
    except BadElement as error:
        raise refused(name, error.line, error.reason) from None
    return stack[0].children[0]


def refused(name: str, line: int, reason: str) -> Invalid:
    """Return the error for a file that cannot be read because of one line."""
    return Invalid([Violation(f"{name}:{line}", "BAD_TRACE_LINE", reason)], "BAD_TRACE")
