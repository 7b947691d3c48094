"""What code lacks and the function around it has: an argument of a call, a condition, a mask as factor or index.

What a function makes and never reads is likely to be what is left out.
"""

import ast
import inspect
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code, last_part
from twinalign.replay.code_lines import is_of_library
from twinalign.replay.edited_trees import with_nodes
from twinalign.replay.small_edits import Edit, expressions
from twinalign.replay.wrong_unit import paddle_spelling

_MOST_UNREAD, _MOST_PARAMETERS = 4, 16
_CHOOSING = "where", "masked_select", "masked_fill"


def left_out_arguments(code: Code, parts: Sequence[ast.AST], known: Sequence[Code]) -> Iterator[Edit]:
    """Calls with one argument more, by its keyword.

    Args:
        code: a function of the port.
        parts: what of it may be edited.
        known: the port's functions that it may call.
    """
    own, unread = _own_names(code.tree)
    for call in expressions(parts):
        if not isinstance(call, ast.Call):
            continue
        for parameter in _lacking(call, code, known)[:_MOST_PARAMETERS]:
            for name in [parameter] if parameter in own else unread[:_MOST_UNREAD]:
                given = ast.keyword(parameter, ast.Name(name, ast.Load()))
                new = ast.copy_location(ast.Call(call.func, call.args, [*call.keywords, given]), call)
                yield call, ast.fix_missing_locations(new)


def left_out_names(code: Code, parts: Sequence[ast.AST]) -> Iterator[Edit]:
    """What a function makes and never reads as one more condition, for what a comparison is about, or as a factor."""
    _, unread = _own_names(code.tree)
    members = {name: [*_members(code.tree, name)] for name in unread[:_MOST_UNREAD]}
    for node in expressions(parts) if unread else ():
        for name, added in members.items():
            for new in itertools.chain(_where_new(node, name, added), _with_name(node, name)):
                yield node, ast.fix_missing_locations(ast.copy_location(new, node))


def left_out_factors(code: Code, parts: Sequence[ast.AST]) -> Iterator[Edit]:
    """Names with a factor that another name of the function has: `logits * weight` beside `labels * weight`."""
    products = [one for one in code.nodes if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult)]
    named = [(one.left, one.right) for one in products if isinstance(one.right, ast.Name)]
    factors = list(dict.fromkeys(right.id for left, right in named if isinstance(left, ast.Name)))
    has = {id(side) for pair in named for side in pair}
    first = code.first_lines
    for node in expressions(parts):
        if not isinstance(node, ast.Name) or node.id not in first or id(node) in has:
            continue
        for name in factors[:_MOST_UNREAD]:
            if name != node.id and first.get(name, math.inf) < node.lineno:
                new = ast.BinOp(node, ast.Mult(), ast.Name(name, ast.Load()))
                yield node, ast.fix_missing_locations(ast.copy_location(new, node))


def left_out_masks(code: Code, parts: Sequence[ast.AST]) -> Iterator[Edit]:
    """What is computed of all places, of those alone that a condition of the function chooses, throughout a statement.

    `values[chosen].mean()` for `values.mean()`, beside `chosen = values > 0`; where that is made to numbers,
    `values * chosen`.
    """
    masks = dict(itertools.islice(dict(reversed([*_masks(code.tree)])).items(), _MOST_UNREAD))
    for value in _values(parts) if masks else ():
        inside = [one for one in expressions([value]) if isinstance(one, ast.Name)]
        names = list(dict.fromkeys(one.id for one in inside if one.id in _own_names(code.tree)[0]))
        for name, mask in itertools.product(names, masks):
            places = [one for one in inside if one.id == name]
            if name == mask or value.lineno <= masks[mask]:
                continue
            chosen: dict[ast.AST, ast.expr] = {one: ast.copy_location(_at(one, mask), one) for one in places}
            if len(places) > 1:
                yield value, ast.fix_missing_locations(with_nodes(value, chosen))
            yield from ((one, ast.fix_missing_locations(chosen[one])) for one in places)
    for value, (mask, line) in itertools.product(_values(parts), _masks_of_numbers(code.tree)):
        inside = [one for one in expressions([value]) if isinstance(one, ast.Name) and one.id != mask]
        for one in inside if value.lineno > line else ():
            new = ast.BinOp(one, ast.Mult(), ast.Name(mask, ast.Load()))
            yield one, ast.fix_missing_locations(ast.copy_location(new, one))


def _masks_of_numbers(tree: ast.FunctionDef) -> list[tuple[str, int]]:
    """Names of what is made of a comparison, such as `(ids != 0).astype("float32")`, with their lines."""
    return [
        (target.id, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Compare)
        for target in node.targets
        if isinstance(target, ast.Name) and any(isinstance(one, ast.Compare) for one in ast.walk(node.value))
    ]


def _at(node: ast.expr, mask: str) -> ast.expr:
    return ast.Subscript(node, ast.Name(mask, ast.Load()), ast.Load())


def _values(parts: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """What the statements of code compute."""
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)) and node.value is not None:
                yield node.value


def _masks(tree: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    """Names of comparisons, of what is said of masks, and of what chooses among places, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            inverted = isinstance(node.value, ast.UnaryOp) and isinstance(node.value.op, ast.Invert)
            if inverted or isinstance(node.value, ast.Compare):
                yield node.targets[0].id, node.lineno
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _CHOOSING and node.args:
            yield from ((one.id, 0) for one in node.args[:1] if isinstance(one, ast.Name))
        elif isinstance(node, ast.arg) and "mask" in node.arg:
            yield node.arg, 0


def _with_name(node: ast.expr, name: str) -> Iterator[ast.expr]:
    own = ast.Name(name, ast.Load())
    if isinstance(node, ast.Compare):
        indices = [one.slice for one in ast.walk(node) if isinstance(one, ast.Subscript)]
        places = [one for index in indices for one in (index.elts if isinstance(index, ast.Tuple) else [index])]
        of_places = [ast.Subscript(own, one, ast.Load()) for one in places if isinstance(one, ast.Name)]
        for one, other in itertools.combinations(of_places[:_MOST_UNREAD], 2):
            for kind in (ast.Eq(), ast.NotEq()):
                yield ast.BoolOp(ast.And(), [ast.Compare(one, [kind], [other]), node])
        yield from (ast.BoolOp(ast.And(), [one, node]) for one in of_places[:_MOST_UNREAD])
        yield ast.BinOp(node, ast.BitAnd(), own)
    elif isinstance(node, (ast.BinOp, ast.Call)):
        yield ast.BinOp(node, ast.Mult(), own)


def _members(tree: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """What a function puts into a set or a list of this name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (f"{name}.add", f"{name}.append"):
            yield from node.args[:1]


def _where_new(node: ast.expr, name: str, added: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """A condition that holds for what is not among the members of this name yet: `ok and item not in taken`."""
    for one in added if isinstance(node, ast.Compare) else ():
        yield ast.BoolOp(ast.And(), [node, ast.Compare(one, [ast.NotIn()], [ast.Name(name, ast.Load())])])


def _own_names(tree: ast.FunctionDef) -> tuple[set[str], list[str]]:
    """The names that a function is given or makes, and those of them that go into nothing, but for calls on them."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    given = [one.arg for one in (*tree.args.args, *tree.args.kwonlyargs) if one.arg != "self"]
    own = dict.fromkeys((*given, *(node.id for node in nodes if isinstance(node.ctx, ast.Store))))
    changed = {id(node.value.func.value) for node in ast.walk(tree) if _is_for_its_effect(node)}  # type: ignore[attr-defined]
    read = {node.id for node in nodes if isinstance(node.ctx, ast.Load) and id(node) not in changed}
    return set(own), [name for name in own if name not in read and name.strip("_")]


def _is_for_its_effect(node: ast.AST) -> bool:
    """Whether it is a statement such as `sizes.append(size)`."""
    called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return isinstance(called, ast.Attribute)


def _lacking(call: ast.Call, code: Code, known: Sequence[Code]) -> list[str]:
    """Parameters of the function that a call makes which it does not give; none where the function is not known."""
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return []
    names = _parameters(call.func, code, known)[len(call.args) :]
    return [name for name in names if name not in {one.arg for one in call.keywords}]


def _parameters(function: ast.expr, code: Code, known: Sequence[Code]) -> list[str]:
    path = ast.unparse(function).split(".")
    for own in known:
        if path[0] != "self" and last_part(own.name) == path[-1] and "." not in own.name:
            return [one.arg for one in (*own.tree.args.args, *own.tree.args.kwonlyargs)]
    kind, place = code.globals.get(path[0], ("", ""))
    if kind != "name" or not isinstance(function, (ast.Name, ast.Attribute)):
        return []
    if str(place).partition(".")[0] == "paddle":
        spelling = paddle_spelling()
        try:
            return [name for name in spelling.arguments_of(path[-1]) if name not in spelling.KEYWORDS.values()]
        except ValueError:  # of what is built in
            return []
    try:
        signature = inspect.signature(_of_library(str(place), path[1:]))
    except (TypeError, ValueError, LookupError, AttributeError):
        return []
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return [name for name, one in signature.parameters.items() if one.kind in kinds]


def _of_library(place: str, attributes: Sequence[str]) -> Any:
    """What a library has in this place, whose module the reference's process has imported."""
    for module, names in ((place, attributes), (place.rpartition(".")[0], [last_part(place), *attributes])):
        if (found := sys.modules.get(module)) is not None and is_of_library(getattr(found, "__file__", None)):
            for name in names:
                found = getattr(found, name)
            return found
    raise LookupError(place)
