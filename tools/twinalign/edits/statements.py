"""The statements of a function, or of a file outside its functions, and their words in paddle's spelling."""

import functools
import re
from collections.abc import Container, Mapping, Sequence

import libcst as cst

from twinalign.edits.source import Edit, Source, applied, source_of

Exchanged = cst.BaseExpression | cst.BaseSmallStatement
Statement = Exchanged | cst.Param
Lines = tuple[int, int]
"""First and last; (0, 0) for what stands in no function."""

_SPELLED = {
    "torch": "paddle",
    "dim": "axis",
    "eps": "epsilon",
    "bias": "bias_attr",
    "lr": "learning_rate",
    "optim": "optimizer",
    "SiLU": "Silu",
    "cat": "concat",
    "permute": "transpose",
    "clamp": "clip",
}
TORCH_ALONE = {"tensor": "to_tensor", "as_tensor": "to_tensor"}
"""Functions of torch whose names stand for other things where no module is before them."""
_TORCH_ALONE = re.compile(rf"\btorch\.({'|'.join(TORCH_ALONE)})\b")
_KEYWORDS_ALONE = frozenset({"bias", "lr"})
"""Names that mean something else where they are no keyword."""
WITH_LISTS = {"permute": "transpose", "reshape": "reshape", "view": "reshape", "expand": "expand", "repeat": "tile"}
"""Methods of torch that take several numbers where paddle's, of this name, takes a list of them."""
_OF_DIMENSIONS = re.compile(r"([A-Z]\w*[a-z])([123])d")
_WORD = re.compile(r"[A-Za-z_]\w*|\d[\d.e+-]*|[^\s\w]")
_TEST = re.compile(r"""framework\s*(==|!=)\s*["'](torch|paddle)["']""")


@functools.lru_cache(maxsize=512)
def statements(source: Source, lines: Lines, framework: str) -> list[Statement]:
    """What is exchanged as a whole in these lines, in the order of the text, without texts in quotes.

    Simple statements, the expressions of `for`, `if` and `while`, and parameters that have a default; of a function
    that asks for its `framework` those that run in this one.
    """
    nodes: list[Statement] = [
        node
        for node in source.of_type(cst.BaseSmallStatement)
        if not isinstance(node, cst.Import | cst.ImportFrom) and not _is_quoted(node)
    ]
    nodes += [node.test for node in source.of_type(cst.If, cst.While)]
    nodes += [node.iter for node in source.of_type(cst.For)]
    nodes += [node for node in source.of_type(cst.Param) if node.default is not None]
    left_out = list(_lines_of_other(source, framework))
    if lines == (0, 0):
        left_out += [source.lines(node) for node in source.of_type(cst.FunctionDef)]
        lines = (1, source.text.count("\n") + 1)
    found = [
        node
        for node in nodes
        if _is_in(source.span(node)[0], lines)
        and not any(_is_in(source.span(node)[0], outside) for outside in left_out)
    ]
    return sorted(found, key=source.span)


def _is_quoted(node: cst.BaseSmallStatement) -> bool:
    return isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString | cst.ConcatenatedString)


def _is_in(line: int, lines: Lines) -> bool:
    return lines[0] <= line <= lines[1]


@functools.lru_cache(maxsize=64)
def _lines_of_other(source: Source, framework: str) -> list[Lines]:
    """Lines that a test of `framework` keeps from running in this one."""
    blocks = [source.lines(node) for node in source.of_type(cst.IndentedBlock)]
    found: list[Lines] = []
    for node in source.of_type(cst.If):
        asked = _TEST.fullmatch(source.text_of(node.test))
        if asked is None:
            continue
        ours = (asked[1] == "==") == (asked[2] == framework)
        first, last = source.lines(node)
        if node.orelse is not None:
            found.append(source.lines(node.orelse if ours else node.body))
        elif not ours:
            found.append(source.lines(node.body))
        elif isinstance(node.body.body[-1], cst.SimpleStatementLine) and isinstance(
            node.body.body[-1].body[-1], cst.Return | cst.Raise
        ):
            around = [block for block in blocks if block[0] <= first and last <= block[1]]
            found.append((last + 1, min((block[1] for block in around), default=last)))
    return found


def words(source: Source, node: cst.CSTNode) -> list[str]:
    """A node's words, those of torch spelled as in paddle; `inplace` is left out, which means nothing there."""
    parts = [node.name, node.default] if isinstance(node, cst.Param) else [node]  # a parameter's span is its name alone
    text = " ".join(source.text_of(part) for part in parts if part is not None)
    text = re.sub(r",?\s*inplace\s*=\s*True", "", text)
    text = _TORCH_ALONE.sub(lambda found: f"torch.{TORCH_ALONE[found[1]]}", text)
    found = _WORD.findall(text)
    return [
        spelled(word, keyword=after == "=" and before in ("(", ","))
        for before, word, after in zip(["", *found], found, [*found[1:], ""], strict=False)
    ]


def spelled(word: str, keyword: bool) -> str:
    """A name of torch's as paddle spells it; others as they are."""
    if word in _KEYWORDS_ALONE and not keyword:
        return word
    return _SPELLED.get(word) or _OF_DIMENSIONS.sub(r"\1\2D", word)


@functools.lru_cache(maxsize=64)
def with_lists(reference: Source, port: Source) -> Source:
    """The reference with lists of sizes and of axes, `x.view([b, -1])`, if the port writes lists; each line stays."""
    if not any(_takes_list(call) for call in port.of_type(cst.Call)):
        return reference
    edits = []
    for call in reference.of_type(cst.Call):
        name = call.func.attr if isinstance(call.func, cst.Attribute) else None
        listed = WITH_LISTS.get(name.value) if name is not None else None
        if listed is None or name is None or not _is_of_numbers(call):
            continue
        span, first, last = (reference.span(node) for node in (name, call.args[0], call.args[-1]))
        edits.append(Edit(reference.file, span, name.value, listed))
        edits.append(Edit(reference.file, (*first[:2], *first[:2]), "", "["))
        edits.append(Edit(reference.file, (*last[2:], *last[2:]), "", "]"))
    return source_of(reference.file, applied(reference.text, edits)) if edits else reference


def _takes_list(call: cst.Call) -> bool:
    return (
        isinstance(call.func, cst.Attribute)
        and call.func.attr.value in WITH_LISTS.values()
        and any(isinstance(argument.value, cst.List) for argument in call.args)
    )


def _is_of_numbers(call: cst.Call) -> bool:
    """Whether a method is called with numbers, one by one; a layer or a module's function takes a tensor."""
    values = [argument.value for argument in call.args if argument.keyword is None and not argument.star]
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    is_function = isinstance(owner, cst.Name) and owner.value in ("torch", "F", "self")
    listed = any(isinstance(value, cst.List | cst.Tuple) for value in values)
    return 0 < len(values) == len(call.args) and not is_function and not listed


def in_paddle(node: cst.CSTNode, reference: Source, port: Source) -> cst.CSTNode:
    """A node of the reference with the commonest names as paddle spells them, and functions as the port calls them."""
    # LibCST's matchers take many times as long.
    found = node.visit(_PaddleSpelling(_modules(reference), _functions(port)))
    return found if isinstance(found, cst.CSTNode) else node


@functools.lru_cache(maxsize=64)
def _modules(source: Source) -> frozenset[str]:
    """The names that a file imports."""
    found = set()
    for node in source.of_type(cst.Import, cst.ImportFrom):
        for alias in node.names if not isinstance(node.names, cst.ImportStar) else ():
            found.add(source.text_of(alias.asname.name if alias.asname else alias.name).partition(".")[0])
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def _functions(source: Source) -> dict[str, str]:
    """Name of a module's function or class -> how the file calls it: `softmax` -> `F.softmax`."""
    calls = {source.text_of(call.func) for call in source.of_type(cst.Call) if isinstance(call.func, cst.Attribute)}
    return {text.rpartition(".")[2]: text for text in sorted(calls) if text.partition(".")[0] in _modules(source)}


class _PaddleSpelling(cst.CSTTransformer):
    def __init__(self, modules: Container[str], functions: Mapping[str, str]) -> None:
        super().__init__()
        self._modules, self._functions = modules, functions

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        root = original_node.func
        while isinstance(root, cst.Attribute):
            root = root.value
        func = updated_node.func
        name = func.attr.value if isinstance(func, cst.Attribute) else ""
        known = self._functions.get(TORCH_ALONE.get(name, name))
        if known is None or not isinstance(root, cst.Name) or root.value not in self._modules:
            return updated_node
        return updated_node.with_changes(func=cst.parse_expression(known))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        match updated_node:  # paddle returns values alone
            case cst.Attribute(
                value=cst.Call(func=cst.Attribute(attr=cst.Name("sort" | "max" | "min") as name) as func) as call,
                attr=cst.Name("values" | "indices" as part),
            ):
                alone = name if part == "values" else cst.Name(f"arg{name.value}")
                return call.with_changes(func=func.with_changes(attr=alone))
        return updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=spelled(updated_node.value, keyword=False))

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        keyword = updated_node.keyword
        if keyword is None:
            return updated_node
        return updated_node.with_changes(keyword=cst.Name(spelled(keyword.value, keyword=True)))

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        match updated_node:
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Attribute(attr=cst.Name("requires_grad")) as target)],
                value=cst.Name("False"),
            ):
                stopped = target.with_changes(attr=cst.Name("stop_gradient"))
                return updated_node.with_changes(targets=[cst.AssignTarget(stopped)], value=cst.Name("True"))
        return updated_node


def code_of(nodes: Sequence[cst.CSTNode], between: str, reference: Source, port: Source) -> str:
    """The text of nodes of the reference as the port would have it."""
    return between.join(cst.Module([]).code_for_node(in_paddle(node, reference, port)).strip() for node in nodes)
