"""Places where a package asks whether a module is one of its own: in the port the modules have the port's name."""

import ast
from collections.abc import Iterator

_NAMES = ("__module__", "__name__")


def with_own_name(module: str, text: str) -> str:
    """The source with the name of the package that is running wherever a module's name is compared with the package's.

    `module` is the full name; `cls.__module__.startswith("package.")` becomes
    `cls.__module__.startswith(__name__.partition('.')[0] + '.')`. Lines keep their numbers.
    """
    package = module.partition(".")[0]
    if not any(name in text for name in _NAMES):
        return text
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    found = {place: node for node in ast.walk(ast.parse(text)) for place, node in _named(node, package)}
    for (line, column), node in sorted(found.items(), reverse=True):
        rest = str(node.value).removeprefix(package)
        own = "__name__.partition('.')[0]" + (f" + {rest!r}" if rest else "")
        lines[line - 1] = lines[line - 1][:column] + own.encode() + lines[line - 1][node.end_col_offset :]
    return b"".join(lines).decode()


def _named(node: ast.AST, package: str) -> Iterator[tuple[tuple[int, int], ast.Constant]]:
    """Texts that begin with the package's name and that a module's name is compared with, by line and column."""
    match node:
        case ast.Call(ast.Attribute(asked, "startswith"), texts):
            pass
        case ast.Compare(asked, [_], texts):
            pass
        case _:
            return
    names = {getattr(inner, "attr", getattr(inner, "id", "")) for inner in ast.walk(asked)}
    for text in texts if names & set(_NAMES) else ():
        match text:
            case ast.Constant(str(value)) if value.partition(".")[0] == package and text.lineno == text.end_lineno:
                yield (text.lineno, text.col_offset), text
