"""Carries comments and blank lines of functions and classes through PaConvert, which writes code anew without them.

Before the draft each becomes a statement of its own, a string with a number; afterwards the string becomes the comment.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

import libcst as cst

_MARK = "comment of the source, number "
_MARKED = re.compile(rf"""^([ \t]*)(?:\"\"\"|"|'){_MARK}(\d+)(?:\"\"\"|"|')[ \t]*$""")
_DEFINES = re.compile(r"(\s*)(?:@|def |async def |class )")
_WIDTH = 120
_Statement = cst.BaseStatement | cst.BaseSmallStatement


class Comments:
    """The comments of one module on their way."""

    def __init__(self, source: str) -> None:
        self._texts: list[tuple[str, bool]] = []
        """Each comment, or an empty line, and whether it stood behind the code of its line."""
        module = cst.parse_module(source)
        self._head = [line.comment.value for line in module.header if line.comment]
        self._docstring = ast.get_docstring(ast.parse(source), clean=False)
        self.marked = module.with_changes(header=[]).visit(_Marking(self._texts)).code
        """The source with a string in the place of each comment."""

    def restored(self, draft: str) -> str:
        """The draft with the comments in it, and what stood at the source's head at its head."""
        lines: list[str] = []
        own_blank = False  # whether the last line is a blank one of the source's
        for line in self._with_head_first(draft).splitlines():
            marked = _MARKED.match(line)
            if not marked:
                if defines := _DEFINES.match(line):
                    _join_to_definition(lines, f"{defines[1]}#")
                if line.strip() or not own_blank:
                    lines.append(line)
                    own_blank = False
                continue
            text, behind = self._texts[int(marked[2])]
            if behind and lines and len(lines[-1]) + 2 + len(text) <= _WIDTH:
                lines[-1] += f"  {text}"
            elif text or (lines and lines[-1].strip()):
                lines.append(f"{marked[1]}{text}" if text else "")
                own_blank = not text
        return "\n".join([*self._head, *lines]) + "\n"

    def _with_head_first(self, draft: str) -> str:
        """The module's docstring and `from __future__` come first: PaConvert imports paddle before them."""
        try:
            body = ast.parse(draft).body
        except SyntaxError:
            return draft
        docstrings = [statement for statement in body if _is_text(statement, self._docstring)][:1]
        futures = [one for one in body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
        lines = draft.splitlines()
        spans = [range(one.lineno - 1, one.end_lineno or one.lineno) for one in (*docstrings, *futures)]
        first = [lines[number] for span in spans for number in span]
        taken = {number for span in spans for number in span}
        rest = "\n".join(line for number, line in enumerate(lines) if number not in taken).lstrip("\n")
        return "\n".join([*first, "", rest]) if first else rest


def _join_to_definition(lines: list[str], begins: str) -> None:
    """Move blank lines between comments, which begin like that, and the definition under them above the comments."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    first = end
    while first and lines[first - 1].startswith(begins):
        first -= 1
    if first < end < len(lines):
        blank = 0
        while first - blank and not lines[first - blank - 1].strip():
            blank += 1
        lines[first - blank :] = [*[""] * max(blank, len(lines) - end), *lines[first:end]]


def _is_text(statement: ast.stmt, text: str | None) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        and text is not None
        and statement.value.value.split() == text.split()
    )


class _Marking(cst.CSTTransformer):
    """Puts a string in the place of each comment; one inside of a statement goes before it."""

    def __init__(self, texts: list[tuple[str, bool]]) -> None:
        super().__init__()
        self._texts = texts

    def _mark(self, text: str, behind: bool = False) -> cst.SimpleStatementLine:
        self._texts.append((text, behind))
        string = cst.SimpleString(f'"{_MARK}{len(self._texts) - 1}"')
        return cst.SimpleStatementLine([cst.Expr(string)])

    def _marks(self, lines: Sequence[cst.EmptyLine]) -> list[cst.SimpleStatementLine]:
        return [self._mark(line.comment.value if line.comment else "") for line in lines]

    def _body(self, body: Sequence[_Statement], head: Sequence[cst.SimpleStatementLine] = ()) -> list[_Statement]:
        """Statements with the marks of their comments; a docstring stays the first."""
        marked: list[_Statement] = list(head)
        for number, statement in enumerate(body):
            leading = getattr(statement, "leading_lines", ())
            if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):  # PaConvert sets the blank lines around these
                leading = [line for line in leading if line.comment]
            before = self._marks(leading)
            bare = statement.with_changes(leading_lines=[]) if hasattr(statement, "leading_lines") else statement
            behind = []
            if isinstance(bare, cst.SimpleStatementLine) and bare.trailing_whitespace.comment:
                behind = [self._mark(bare.trailing_whitespace.comment.value, behind=True)]
                bare = bare.with_changes(trailing_whitespace=cst.TrailingWhitespace())
            inside = [self._mark(text) for text in _comments_inside(bare)]
            if number == 0 and _is_docstring(bare):
                marked = [bare, *marked, *before, *behind]
            else:
                marked += [*before, *inside, bare, *behind]
        return marked

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock) -> Any:
        """Comments behind the colon, before each statement, and at the block's end."""
        comment = updated_node.header.comment
        head = [self._mark(comment.value, behind=True)] if comment else []
        footer = [self._mark(line.comment.value) for line in updated_node.footer if line.comment]
        return updated_node.with_changes(
            header=cst.TrailingWhitespace(), body=[*self._body(updated_node.body, head), *footer], footer=[]
        )

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """Top-level comments; blank lines are set by PaConvert there."""
        footer = [self._mark(line.comment.value) for line in updated_node.footer if line.comment]
        return updated_node.with_changes(body=[*self._body(updated_node.body), *footer], footer=[])

    def _branch(self, node: Any) -> Any:
        """Comments above `else`, `elif`, `except` or `finally` go into its block."""
        if not node.leading_lines or not isinstance(node.body, cst.IndentedBlock):
            return node
        marks = [self._mark(line.comment.value) for line in node.leading_lines if line.comment]
        body = node.body.with_changes(body=[*marks, *node.body.body])
        return node.with_changes(leading_lines=[], body=body)

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        """Of an `elif`: one in a block gives its comments to the block."""
        orelse = updated_node.orelse
        return updated_node.with_changes(orelse=self._branch(orelse)) if isinstance(orelse, cst.If) else updated_node

    def leave_Else(self, original_node: cst.Else, updated_node: cst.Else) -> cst.Else:
        return self._branch(updated_node)

    def leave_Finally(self, original_node: cst.Finally, updated_node: cst.Finally) -> cst.Finally:
        return self._branch(updated_node)

    def leave_ExceptHandler(self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler) -> Any:
        return self._branch(updated_node)


def _is_docstring(statement: cst.CSTNode) -> bool:
    match statement:
        case cst.SimpleStatementLine([cst.Expr(cst.SimpleString() | cst.ConcatenatedString())]):
            return True
    return False


def _comments_inside(statement: cst.CSTNode) -> Iterator[str]:
    """Comments between the brackets of a statement, or of the head of one that has a block."""
    finder = _Finder(statement)
    statement.visit(finder)
    yield from finder.found


class _Finder(cst.CSTVisitor):
    def __init__(self, statement: cst.CSTNode) -> None:
        super().__init__()
        self._statement = statement
        self.found: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Comment):
            self.found.append(node.value)
        blocks = (cst.IndentedBlock, cst.Else, cst.Finally, cst.ExceptHandler)
        return not isinstance(node, blocks) and (node is self._statement or not isinstance(node, cst.If))
