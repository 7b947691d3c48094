"""Edits of source text by LibCST, which keeps formatting and comments."""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

Span = tuple[int, int, int, int]
"""First line (from 1), first column (from 0), last line, column behind the end; columns in characters."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """Another text for a piece of a file.

    Attributes:
        file: real path.
        span: of the piece.
        before, after: its text, as it is and as it is to be.
    """

    file: str
    span: Span
    before: str
    after: str

    @property
    def line(self) -> int:
        return self.span[0]

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.line,
            "span": list(self.span),
            "before": self.before,
            "after": self.after,
        }


def read_source(path: str) -> str:
    """The text of a source file with its line endings as they are; raises ValueError if it is not UTF-8."""
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


@functools.lru_cache(maxsize=32)
def source_of(file: str, text: str) -> "Source":
    """The parsed file; the same one for the same text, because parsing takes long."""
    return Source(file, text)


class Source:
    """A parsed file whose calls can be looked up by their position; raises ValueError where it cannot be parsed."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        try:
            wrapper = MetadataWrapper(cst.parse_module(text))
        except cst.ParserSyntaxError as error:
            raise ValueError(f"{file}: {error}") from error
        self._module = wrapper.module
        self.positions = wrapper.resolve(PositionProvider)
        self._lines = text.split("\n")
        self._by_type: dict[type, list[Any]] = {}
        self._by_line: dict[int, list[cst.CSTNode]] = {}
        for node, place in self.positions.items():
            self._by_type.setdefault(type(node), []).append(node)
            self._by_line.setdefault(place.start.line, []).append(node)

    def of_type(self, *kinds: type) -> list[Any]:
        """The nodes of these classes."""
        return [node for kind, nodes in self._by_type.items() if issubclass(kind, kinds) for node in nodes]

    def span(self, node: cst.CSTNode) -> Span:
        where = self.positions[node]
        return where.start.line, where.start.column, where.end.line, where.end.column

    def calls(self, first: int, last: int) -> Iterator[cst.Call]:
        """The calls that begin within these lines, in the order of the text."""
        return iter(sorted((c for c in self.of_type(cst.Call) if first <= self.span(c)[0] <= last), key=self.span))

    def within(self, lines: Sequence[int]) -> Iterator[cst.CSTNode]:
        """What begins in these lines, line by line in the order given, the innermost last."""
        for line in dict.fromkeys(lines):
            yield from sorted(self._by_line.get(line, ()), key=lambda node: self.span(node)[:2])

    def call_at(self, place: Sequence[int]) -> cst.Call | None:
        """The call at `[line, column, end line, end column]`, columns in bytes as Python counts them."""
        line, column, end_line, end_column = place
        lines = self._lines
        wanted = (line, _characters(lines[line - 1], column), end_line, _characters(lines[end_line - 1], end_column))
        return next((call for call in self.calls(line, line) if self.span(call) == wanted), None)

    def function_at(self, line: int) -> str:
        """Name of the function whose `def`, or first decorator, stands in this line; empty without one."""
        for node in self.of_type(cst.FunctionDef):
            first = min(self.span(part)[0] for part in (node, *node.decorators))
            if line in (first, self.span(node)[0]):
                return str(node.name.value)
        return ""

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line of a node."""
        first, _, last, _ = self.span(node)
        return first, last

    def text_of(self, node: cst.CSTNode) -> str:
        """What stands at the node's place, without the brackets around it."""
        return self.text_at(self.span(node))

    def text_at(self, span: Span) -> str:
        """What stands in a piece of the file."""
        first, column, last, end = span
        lines = self._lines[first - 1 : last]
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][column:]
        return "\n".join(lines)

    def edit(self, old: cst.CSTNode, new: cst.CSTNode) -> Edit | None:
        """The edit that puts `new` in the place of `old`; None if both have one text."""
        if getattr(old, "lpar", ()) and hasattr(new, "lpar"):  # these brackets stay
            new = new.with_changes(lpar=[], rpar=[])
        # The code of a part of a module lacks the indentation of the block that it stands in.
        before, after = self.text_of(old), self._module.code_for_node(new).replace("\n", f"\n{self._indentation(old)}")
        return Edit(self.file, self.span(old), before, after) if before != after else None

    def without(self, statement: cst.BaseSmallStatement) -> Edit | None:
        """The edit that takes a statement away: its lines, or where its block has no other statement, `pass` for it."""
        first, last = self.lines(statement)
        lines = [one for one in self.of_type(cst.SimpleStatementLine) if statement in one.body]
        blocks = [one for one in self.of_type(cst.IndentedBlock) if lines and lines[0] in one.body]
        if not blocks or len(lines[0].body) > 1 or len(blocks[0].body) == 1 or last == len(self._lines):
            return self.edit(statement, cst.Pass())
        span = (first, 0, last + 1, 0)
        return Edit(self.file, span, self.text_at(span), "")

    def _indentation(self, node: cst.CSTNode) -> str:
        """White space before the statement that a node belongs to."""
        line = self.span(node)[0]
        starts = [
            self.span(one)[0]
            for one in self.of_type(cst.SimpleStatementLine, cst.BaseCompoundStatement)
            if self.span(one)[0] <= line <= self.span(one)[2]
        ]
        first = self._lines[max(starts, default=line) - 1]
        return first[: len(first) - len(first.lstrip())]

    def statements(self, line: int) -> Iterator[cst.Assign | cst.Return]:
        """The assignments and returns of this line."""
        for node in self.of_type(cst.Assign, cst.Return):
            if self.span(node)[0] <= line <= self.span(node)[2]:
                yield node

    def returns(self, first: int, last: int) -> Iterator[cst.Return]:
        """The returns that begin within these lines."""
        for node in self.of_type(cst.Return):
            if first <= self.span(node)[0] <= last:
                yield node


def _characters(line: str, column: int) -> int:
    return len(line.encode()[:column].decode(errors="replace"))


def name_of(call: cst.Call) -> str:
    """The last part of what is called: `gelu` for `F.gelu(x)`."""
    called = call.func
    if isinstance(called, cst.Attribute):
        return called.attr.value
    return called.value if isinstance(called, cst.Name) else ""


def with_arguments(call: cst.Call, values: Mapping[str, Any], parameters: Sequence[str]) -> cst.Call:
    """The call with other values of some arguments, each where it is given already, else as a keyword at the end.

    Values are numbers, texts or lists, or expressions. `parameters` are the names of the function's parameters in
    order, for what is given by position.
    """
    arguments = list(call.args)
    for name, value in values.items():
        written = value
        if not isinstance(value, cst.BaseExpression):
            written = cst.parse_expression(re.sub(r"e-0(?=\d\b)", "e-", repr(value)))
        at = next((i for i, a in enumerate(arguments) if a.keyword is not None and a.keyword.value == name), None)
        if at is None and name in parameters:
            place = parameters.index(name)
            positional = [a for a in arguments if a.keyword is None and not a.star]
            at = place if place < len(positional) and positional == arguments[: len(positional)] else None
        if at is not None:
            arguments[at] = arguments[at].with_changes(value=written)
            continue
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        arguments = _appended(arguments, cst.Arg(keyword=cst.Name(name), value=written, equal=equal))
    return call.with_changes(args=arguments)


def _appended(arguments: Sequence[cst.Arg], added: cst.Arg) -> list[cst.Arg]:
    """The arguments and one more, which takes over what stands between the last one and the bracket."""
    if not arguments:
        return [added]
    *others, last = arguments
    added = added.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    between = others[-1].comma if others else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    last = last.with_changes(comma=between, whitespace_after_arg=cst.SimpleWhitespace(""))
    return [*others, last, added]


def called_otherwise(call: cst.Call, name: str) -> cst.Call:
    """The same call of another function or class of the same module, its arguments but the first left out."""
    func = call.func
    other = func.with_changes(attr=cst.Name(name)) if isinstance(func, cst.Attribute) else cst.Name(name)
    return call.with_changes(func=other)


def applied(text: str, edits: Sequence[Edit]) -> str:
    """The text with all edits made, which must not overlap; raises ValueError where one does not fit the text."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    for edit in sorted(set(edits), key=lambda one: one.span, reverse=True):
        first, column, last, end = edit.span
        begin, finish = starts[first - 1] + column, starts[last - 1] + end
        if text[begin:finish] != edit.before:
            raise ValueError(f"{edit.file}:{edit.line}: the text is not {edit.before!r}")
        text = text[:begin] + edit.after + text[finish:]
    return text


def overlap(one: Edit, other: Edit) -> bool:
    """Whether two different edits touch the same text."""
    apart = one.span[2:] <= other.span[:2] or other.span[2:] <= one.span[:2]
    return one.file == other.file and one != other and not apart
