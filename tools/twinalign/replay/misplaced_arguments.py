"""Arguments of a call in each other's place, or another variable given to a layer.

`attention(query, total, weights)` calls `forward(self, query, weights, total)`: what is exchanged may be mended in the
call or in the function, and the names of the parameters say it is the call.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence

from twinalign.replay.aligned_code import Code
from twinalign.replay.helper_edits import HelperEdit
from twinalign.replay.running_functions import Ran

_OF_LAYERS = "forward"


def misplaced_arguments(codes: Sequence[Code]) -> Iterator[HelperEdit]:
    """Calls with two arguments exchanged, one of which has the name of the other's parameter, and not of its own."""
    for code in codes:
        for call in (node for node in ast.walk(code.tree) if isinstance(node, ast.Call)):
            for parameters in _parameters(call, codes):
                for at, argument in enumerate(call.args):
                    name = argument.id if isinstance(argument, ast.Name) else ""
                    place = parameters.index(name) if name in parameters else at
                    if place != at and place < len(call.args) and getattr(call.args[place], "id", "") != name:
                        given = list(call.args)
                        given[at], given[place] = given[place], given[at]
                        made = ast.copy_location(ast.Call(call.func, given, call.keywords), call)
                        yield HelperEdit(code, call, made)


def other_arguments(codes: Sequence[Code], far: Mapping[int, int], ran: Ran) -> Iterator[HelperEdit]:
    """Calls that are given wrong values, each with another name of the function for one that it is given.

    `far`: of `distances`, from the wrong values.
    """
    for code in codes:
        for call in code.calls:
            for argument in (*call.args, *(one.value for one in call.keywords)):
                if not isinstance(argument, ast.Name) or far.get(id(argument)) != 0:
                    continue
                for name in code.first_lines:
                    other = ast.copy_location(ast.Name(name, ast.Load()), argument)
                    if name not in (argument.id, "self") and ran.may_stand(code, argument, other):
                        yield HelperEdit(code, argument, other)


def _parameters(call: ast.Call, codes: Sequence[Code]) -> Iterator[list[str]]:
    """Names of the parameters that a call's arguments may be for, in order."""
    if isinstance(call.func, ast.Name):
        names = {call.func.id}
    elif isinstance(call.func, ast.Attribute):
        names = {call.func.attr, _OF_LAYERS}
    else:
        return
    for code in codes:
        if code.tree.name in names:
            yield [one.arg for one in code.tree.args.args if one.arg != "self"]
