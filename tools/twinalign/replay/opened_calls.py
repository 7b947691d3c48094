"""Functions that one side calls once and the other side writes out in place, written out as well.

One side's `forward` calls `encode` and `decode`, the other's has their statements: only when both are written out do
these stand beside each other.
"""

import ast
import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twinalign.replay.aligned_code import Code, last_part, own_attribute, with_names

_LEAST = 2
"""A function of fewer statements is a formula with a name: the lines that call it stand beside the other side's."""
_UNLIKE = (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await)


def calls_opened(codes: Sequence[Code], others: Sequence[Code], pairs: Sequence[tuple[Code, Code]]) -> list[Code]:
    """The functions of one side, with those in place of their only call that have no partner on the other side.

    Args:
        codes: all functions of one side.
        others: those of the other side; what they call by its name, be it a layer, stands beside the call of it.
        pairs: functions of this side with those of the other side that may be their partners.
    """
    partners = [two for _, two in pairs]
    kept = {
        id(own)
        for own, other in pairs
        if last_part(own.name) == last_part(other.name) or _is_part(own, codes) == _is_part(other, partners)
    }
    called = {name for code in others for name in map(_called, code.calls)}
    found = list(codes)
    for helper in codes:
        callers = [code for code in found if code.name != helper.name and _calls(code, helper)]
        if (
            id(helper) in kept
            or last_part(helper.name) in called
            or len(callers) != 1
            or len(_calls(callers[0], helper)) != 1
        ):
            continue
        # What was written out in the helper by now is a part of it.
        current = next(code for code in found if code.name == helper.name and code.file == helper.file)
        made = _with_body_of(callers[0], current)
        if made is not None:
            found = [made if code is callers[0] else code for code in found if code is not current]
    return found


def _is_part(code: Code, others: Sequence[Code]) -> bool:
    """Whether another function calls this one."""
    return any(other is not code and _calls(other, code) for other in others)


def _calls(caller: Code, helper: Code) -> list[ast.Call]:
    """Calls of a function by its name, or of a method of the same object."""
    name, is_method = last_part(helper.name), "." in helper.name
    if is_method and caller.name.rpartition(".")[0] != helper.name.rpartition(".")[0]:
        return []
    calls = (node for node in caller.calls if _called(node) == name)
    return [one for one in calls if isinstance(one.func, ast.Attribute) == is_method]


def _called(node: ast.AST) -> str | None:
    """The name of the function, or of the method of the same object, that a node calls; None if it calls neither."""
    if not isinstance(node, ast.Call):
        return None
    return node.func.id if isinstance(node.func, ast.Name) else own_attribute(node.func)


def _with_body_of(caller: Code, helper: Code) -> Code | None:
    """The caller with a helper's statements in place of its only call of it; None where that is another program."""
    (call,) = _calls(caller, helper)
    tree, last = helper.tree, helper.tree.body[-1]
    inside = [node for node in ast.walk(tree) if node is not tree]
    returns = [node for node in inside if isinstance(node, ast.Return)]
    if len(tree.body) < _LEAST or returns != [last] or not isinstance(last, ast.Return) or last.value is None:
        return None
    if any(isinstance(node, _UNLIKE) for node in inside) or helper.makes_no_graph != caller.makes_no_graph:
        return None
    if caller.file != helper.file or any(one.__code__.co_freevars for one in helper.functions):
        return None
    given = _given(call, helper)
    if given is None:
        return None
    writer = _Writer(caller.tree, call, helper, given)
    made = writer.write(copy.deepcopy(caller.tree, {id(call): call}))
    if not writer.is_done:
        return None
    return dataclasses.replace(
        caller,
        tree=made,
        globals={**helper.globals, **caller.globals},
        arguments={**helper.arguments, **caller.arguments},
        attributes={**helper.attributes, **caller.attributes},
    )


def _given(call: ast.Call, helper: Code) -> dict[str, ast.expr] | None:
    """What a call gives each parameter, defaults included; None where that cannot be read off."""
    arguments = helper.tree.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    names = names[1:] if "." in helper.name else names
    if arguments.vararg or arguments.kwarg or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    if len(call.args) > len(names) or any(one.arg is None for one in call.keywords):
        return None
    given = dict(zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True))
    given |= {one.arg: value for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value}
    given |= dict(zip(names, call.args, strict=False))
    given |= {str(one.arg): one.value for one in call.keywords}
    known = {*names, *(one.arg for one in arguments.kwonlyargs)}
    return given if given.keys() == known else None


class _Writer:
    """Puts a helper's statements before the statement that calls it, which then reads what they return."""

    def __init__(self, caller: ast.FunctionDef, call: ast.Call, helper: Code, given: Mapping[str, ast.expr]) -> None:
        self._call, self._given = call, given
        self.is_done = False
        tree, read = helper.tree, _read_by_others(caller, call)
        own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        # What is handed on under its own name needs none, as long as the helper does not give it another value.
        kept = {name for name, value in given.items() if getattr(value, "id", None) == name and name not in own}
        handed = _names(*given.values())
        taken = read | handed | kept
        names = {name: f"{name}_of_{last_part(helper.name)}" for name in (own | given.keys()) - kept if name in taken}
        self._tree = with_names(tree, names, {})
        self._parameters = {names.get(name, name): value for name, value in given.items() if name not in kept}

    def write(self, node: Any) -> Any:
        for field in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, field, None), list):
                setattr(node, field, [made for one in block for made in self._written(one)])
        return node

    def _written(self, statement: ast.stmt) -> Iterable[ast.stmt]:
        if not any(node is self._call for node in ast.walk(statement)):
            return [statement]
        if _is_in_block(statement, self._call):
            return [self.write(statement)]
        if not _runs_once(statement, self._call):
            return [statement]
        self.is_done = True
        begin = [
            ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), statement)
            for name, value in self._parameters.items()
        ]
        *body, last = self._tree.body
        assert isinstance(last, ast.Return)
        assert last.value is not None
        end = _in_place(statement, self._call, last.value)
        return [*(ast.fix_missing_locations(one) for one in begin), *body, *end]


def _read_by_others(caller: ast.FunctionDef, call: ast.Call) -> set[str]:
    """Names whose values from before a call the caller may read behind it."""
    holding = [node for node in ast.walk(caller) if any(one is call for one in ast.walk(node))]
    inside = set(map(id, ast.walk(call)))
    loaded = [
        node
        for node in ast.walk(caller)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in inside
    ]
    if any(isinstance(node, (ast.For, ast.While)) for node in holding):
        return {node.id for node in loaded}
    assigned = {name for node in holding if isinstance(node, ast.Assign) for name in _names(*node.targets)}
    return {node.id for node in loaded if node.lineno >= call.lineno} - assigned


def _is_in_block(statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a call stands in one of the statements inside another one, not in its head."""
    blocks = (getattr(statement, field, []) for field in ("body", "orelse", "finalbody"))
    return any(node is call for block in blocks for one in block for node in ast.walk(one))


def _runs_once(statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a statement makes the call in any case, and once."""
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)):
        return False
    unsure = (ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    return not any(
        isinstance(node, unsure) and any(one is call for one in ast.walk(node)) for node in ast.walk(statement)
    )


def _in_place(statement: ast.stmt, call: ast.Call, value: ast.expr) -> list[ast.stmt]:
    """The statement with what the helper returns in place of the call; one for each part where parts are assigned."""
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0]
        targets, values = (one.elts if isinstance(one, ast.Tuple) else [one] for one in (target, value))
        if len(targets) == len(values) and _may_follow_each_other(targets, values):
            pairs = zip(targets, values, strict=True)
            return [
                ast.copy_location(ast.Assign([one], part), part)
                for one, part in pairs
                if not isinstance(one, ast.Name) or getattr(part, "id", None) != one.id
            ]
    exchanged: ast.stmt = _Exchanger(call, value).visit(statement)
    return [exchanged]


def _may_follow_each_other(targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> bool:
    """Whether no value reads what an earlier assignment has changed."""
    changed = set[str]()
    for target, value in zip(targets, values, strict=True):
        if not isinstance(target, ast.Name) or not _names(value).isdisjoint(changed):
            return False
        changed.add(target.id)
    return True


def _names(*nodes: ast.AST) -> set[str]:
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


class _Exchanger(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)
