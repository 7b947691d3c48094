"""Where the code of the port and that of the reference differ: functions paired, and their statements aligned."""

import ast
import dataclasses
import functools
import textwrap
from collections.abc import Container, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from twinalign.replay.code_text import AS_WRITTEN, LONGEST, shortened, shortened_both
from twinalign.replay.constants import differ, plain_values
from twinalign.replay.likeness import partners_in_order, words_of, words_of_values
from twinalign.replay.opened_blocks import header, inner, loop_like, opened

LEAST_ALIKE = 0.4
"""Functions of other names are partners from this share of equal words on."""
_FIELDS = ("body", "orelse", "finalbody")
_OF_ONE_SIDE = "_of_one_side"
"""Attribute of a statement that `if framework == ...` leaves to one side."""


@dataclasses.dataclass(eq=False)
class Code:
    """A function of either side: its tree, its file and the names that it takes from its module."""

    tree: ast.FunctionDef
    file: str
    name: str
    globals: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Parameters that had one plain value in all calls → that value."""
    is_plain: bool = False
    """Whether it is a method of a class that extends no other, or of a layer that holds no tensor."""
    extends: str = ""
    """The name of the class of paddle's that a method's class extends, if it is one that `paddle_spelling` has."""
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Those of a method's object that are plain values."""
    layers: Mapping[str, tuple[str, Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    """Those of a method's object that hold no tensor → the name of their class, and their plain attributes."""
    of_arrays: bool = False
    """Whether it computes with numpy's arrays."""
    makes_no_graph: bool = False
    """Whether `no_grad` decorates it."""
    has_run: bool = True
    """Whether it is more than a name in the code that ran."""
    functions: Sequence[Any] = ()
    """The reference's function objects of this code: one for each time that a class inside a function was made."""

    # A search asks for these hundreds of times of each function, and walking a tree takes milliseconds.
    @functools.cached_property
    def words(self) -> list[str]:
        return [word for statement in self.tree.body for word in words_of(statement)]

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Its names, and those of attributes."""
        return frozenset(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Name, ast.Attribute))
        )

    @functools.cached_property
    def named(self) -> frozenset[str]:
        """These, and the last parts of what they are names for."""
        imported = {last_part(node.name) for node in ast.walk(self.tree) if isinstance(node, ast.alias)}
        return self.names | imported | {last_part(str(value)) for _, value in self.globals.values()}

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @functools.cached_property
    def of_one_side(self) -> frozenset[int]:
        """id of each node in what `if framework == ...` leaves to this side alone."""
        marked = [node for node in self.nodes if hasattr(node, _OF_ONE_SIDE)]
        return frozenset(id(one) for node in marked for one in ast.walk(node))

    @functools.cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @functools.cached_property
    def modules(self) -> dict[str, str]:
        """Module → the name that the function's own module has for it."""
        held = {name: value for one in self.functions for name, value in one.__globals__.items()}
        return {value.__name__: name for name, value in held.items() if isinstance(value, ModuleType)}

    @functools.cached_property
    def named_things(self) -> dict[str, str]:
        """Name that it reads from its module, of a module or of what has its place in one → that place."""
        return {name: str(found[1]) for name, found in self.globals.items() if found[0] == "name"}

    @functools.cached_property
    def first_lines(self) -> dict[str, int]:
        """Name → the first line that gives it a value; of a parameter, 0."""
        given = {one.arg: 0 for one in self.nodes if isinstance(one, ast.arg)}
        stored = [one for one in self.nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        return {one.id: one.lineno for one in sorted(stored, key=lambda one: -one.lineno)} | given

    @functools.cached_property
    def loops(self) -> list[range]:
        """The lines of each loop."""
        found = [one for one in self.nodes if isinstance(one, (ast.For, ast.While))]
        return [range(one.lineno, (one.end_lineno or one.lineno) + 1) for one in found]


Place = tuple[int, str]
"""id of a node of the reference's tree, and what is done: `instead`, `before`, `behind`, or a block is `opened`."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A part of the reference's code, and what the port has in its place; either may be missing."""

    theirs: Code
    ours: Code
    place: Place
    old: ast.AST | None
    new: ast.AST | None

    @property
    def lines_of_port(self) -> list[tuple[str, int, int]]:
        """File, first and last line of what the port has here; none where it lacks something."""
        numbers = _numbers_of(self.new)
        return [(self.ours.file, numbers[0], numbers[-1])] if numbers else []

    @property
    def has_same_words(self) -> bool:
        """Whether both sides write the same, so that it is the last to be why."""
        return words_of(self.old) == words_of(self.new)

    @property
    def reads_other_values_alike(self) -> bool:
        """Whether both sides compute the same with values that one of them calls its own: `self.beta` for `beta`."""
        return not self.has_same_words and words_of_values(self.old) == words_of_values(self.new)

    @property
    def smallest(self) -> tuple[ast.AST, ast.AST]:
        """The smallest parts of both sides that differ, where both have something."""
        assert self.old is not None
        assert self.new is not None
        statement = inner(self.new)
        if statement is self.new or statement is None or words_of(statement) == words_of(self.old):
            return _smallest(self.old, self.new)
        return _smallest(self.old, statement)

    @property
    def text(self) -> str:
        """The smallest parts that differ, with their lines."""
        if self.old is None or self.new is None:
            code, node = (self.ours, self.new) if self.old is None else (self.theirs, self.old)
            side = "the port alone has" if self.old is None else "the port lacks"
            return f"{side} `{shortened(node)}`, {line_of(code, node)}"
        if self.has_same_words:
            where = f"{line_of(self.ours, self.new)} and {line_of(self.theirs, self.old)}{self._constants}"
            return f"`{shortened(self.new)}` gives something else than it does in the reference, {where}"
        old, new = self.smallest
        before, after = shortened_both(new, old)
        return (
            f"`{before}` in place of `{after}`, "
            f"{line_of(self.ours, new, self.new)} and {line_of(self.theirs, old, self.old)}{self._constants}"
        )

    @property
    def _constants(self) -> str:
        """In words, constants that both sides read here under one name, with another value each."""
        held = self.theirs.functions[0].__globals__ if self.theirs.functions else {}
        names = {node.id for node in ast.walk(self.new or ast.Pass()) if isinstance(node, ast.Name)}
        ours = {name: value for name, value in plain_values(self.ours.globals).items() if name in names & held.keys()}
        other = [
            f"`{name}` is `{one!r}` in place of `{held[name]!r}`"
            for name, one in ours.items()
            if differ(one, held[name])
        ]
        return f", where {' and '.join(other)}" if other else ""


def parsed(source: str, file: str, line: int, name: str, side: str, **more: Any) -> Code | None:
    """The code of a function as `side` runs it, None if the text is no function."""
    try:
        tree = ast.parse(textwrap.dedent(source)).body[0]
    except (SyntaxError, IndexError, ValueError):
        return None
    if not isinstance(tree, ast.FunctionDef):
        return None
    ast.increment_lineno(tree, line - 1)
    more["makes_no_graph"] = any("no_grad" in ast.unparse(one) for one in tree.decorator_list)
    tree.decorator_list, tree.body, tree.returns = [], _of_side(tree.body, side), None
    for argument in ast.walk(tree.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None  # it may name what only a type checker imports
    return Code(tree, file, name, **more)


def _of_side(body: Sequence[ast.stmt], side: str) -> list[ast.stmt]:
    """Statements without texts in quotes, and without what `if framework == ...` leaves out on this side."""
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        taken = _branch(statement, side)
        if taken is None:
            for field in _FIELDS:
                if inside := getattr(statement, field, None):
                    setattr(statement, field, _of_side(inside, side))
        for one in taken or ():
            setattr(one, _OF_ONE_SIDE, True)
        found += [statement] if taken is None else taken
        if found and isinstance(found[-1], (ast.Return, ast.Raise)):
            break
    return found or [ast.Pass()]


def _branch(statement: ast.stmt, side: str) -> list[ast.stmt] | None:
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return None
    test = statement.test
    right = test.comparators[0]
    if not (isinstance(test.left, ast.Name) and isinstance(right, ast.Constant) and right.value in ("torch", "paddle")):
        return None
    holds = (right.value == side) == isinstance(test.ops[0], (ast.Eq, ast.Is))
    return _of_side(statement.body if holds else statement.orelse, side) if holds or statement.orelse else []


def own_attribute(node: ast.AST) -> str | None:
    """`f` of `self.f`; None for anything else."""
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if is_own and isinstance(node, ast.Attribute) else None


def last_part(name: str) -> str:
    """The name of a function or method without those of what it stands in."""
    return name.rpartition(".")[2]


def line_of(code: Code, *nodes: ast.AST | None) -> str:
    """Words for the line in which a node stands, or another one where it has none."""
    numbers = next((found for node in nodes if (found := _numbers_of(node))), [code.tree.lineno])
    return f"line {numbers[0]} of {code.file}"


def _numbers_of(node: ast.AST | None) -> list[int]:
    """The first and the last line of a node, or of the statements in one that stands for several."""
    inside = node.body if isinstance(node, ast.Module) else [node]
    placed = [one for one in inside if isinstance(one, (ast.expr, ast.stmt))]
    return [placed[0].lineno, placed[-1].end_lineno or placed[-1].lineno] if placed else []


def differences(theirs: Code, ours: Code) -> list[Difference]:
    """Where two functions differ, statement by statement; those whose words are the same come last."""
    ours = dataclasses.replace(ours, tree=_renamed(theirs, ours))
    found = list(_aligned(theirs, ours, theirs.tree, theirs.tree.body, ours.tree.body))
    defaults = zip(reversed(theirs.tree.args.defaults), reversed(ours.tree.args.defaults), strict=False)
    for old, new in defaults:
        if words_of(old) != words_of(new):
            found.append(Difference(theirs, ours, (id(old), "instead"), old, new))
    given = set(_parameters(ours.tree)) - set(_parameters(theirs.tree))
    found = [one for one in found if one.new is not None or not _unpacks(one.old, given)]
    return sorted(found, key=lambda one: one.has_same_words)


def _unpacks(statement: ast.AST | None, given: Container[str]) -> bool:
    """Whether the reference only takes apart what the port is given one by one: `h, w = size`."""
    return isinstance(statement, ast.Assign) and all(name in given for name in _targets(statement))


def _renamed(theirs: Code, ours: Code) -> ast.FunctionDef:
    """The port's function with the reference's names where parameters or aligned assignments have others.

    A parameter that only the port's function has stands for the plain value that it was given, or for its default.
    """
    mine, others = _parameters(ours.tree), _parameters(theirs.tree)
    own = [name for name in mine if name not in others]
    lacking = [name for name in others if name not in mine and name != "self"]
    if len(own) != len(lacking):  # a height and a width for a size
        own = [name for name in own if name not in ours.arguments]
    pairs = list(zip(own, lacking, strict=False))
    for one in _aligned(theirs, ours, theirs.tree, theirs.tree.body, ours.tree.body):
        old, new = one.old, inner(one.new)
        if isinstance(old, ast.Assign) and isinstance(new, ast.Assign):
            targets = _targets(new), _targets(old)
            pairs += zip(*targets, strict=True) if len(targets[0]) == len(targets[1]) else []
    known = {node.id for node in ast.walk(theirs.tree) if isinstance(node, ast.Name)} | set(_parameters(theirs.tree))
    # What the port makes may have the name of a parameter that it does not take: of a weight, say, its term.
    free = set(others) - set(mine)
    names: dict[str, str] = {}
    for name, other in pairs:
        if name != other and (name not in known or name in free):
            names.setdefault(name, other)
    plain = {**_defaults(ours.tree), **{name: ast.Constant(value) for name, value in ours.arguments.items()}}
    changed = {
        node.id for node in ast.walk(ours.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    constants = {name: value for name, value in plain.items() if name not in (*names, *known, *changed)}
    if "self" not in others:  # a layer's method for a function
        constants |= {f"self.{name}": ast.Constant(value) for name, value in ours.attributes.items()}
    return with_names(ours.tree, names, constants)


def _defaults(tree: ast.FunctionDef) -> dict[str, ast.Constant]:
    """Parameters that have a plain value by default."""
    pairs = [*zip(_parameters(tree)[-len(tree.args.defaults) :], tree.args.defaults, strict=False)]
    pairs += [(one.arg, value) for one, value in zip(tree.args.kwonlyargs, tree.args.kw_defaults, strict=True) if value]
    return {name: value for name, value in pairs if isinstance(value, ast.Constant)}


def with_names(
    tree: ast.FunctionDef, names: Mapping[str, str], constants: Mapping[str, ast.Constant]
) -> ast.FunctionDef:
    """A function with other names, and plain values for some, or for `self.NAME`; each notes what was written."""
    if not names and not constants:
        return tree

    def renamed(node: Any) -> Any:
        if isinstance(node, list):
            return [renamed(item) for item in node]
        if not isinstance(node, ast.AST):
            return node
        name = node.id if isinstance(node, ast.Name) else f"self.{own_attribute(node)}"
        if name in constants and isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            constant = ast.copy_location(ast.Constant(constants[name].value), node)
            setattr(constant, AS_WRITTEN, node)
            return constant
        made = type(node)(**{field: renamed(value) for field, value in ast.iter_fields(node)})
        ast.copy_location(made, node)
        setattr(made, AS_WRITTEN, node)
        if isinstance(made, ast.Name):
            made.id = names.get(made.id, made.id)
        elif isinstance(made, ast.arg):
            made.arg = names.get(made.arg, made.arg)
        return made

    found: ast.FunctionDef = renamed(tree)
    return found


def _parameters(tree: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*tree.args.posonlyargs, *tree.args.args)]


def _targets(statement: ast.Assign) -> list[str]:
    return [node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _aligned(
    theirs: Code, ours: Code, parent: ast.AST, old: Sequence[ast.stmt], new: Sequence[ast.stmt]
) -> Iterator[Difference]:
    """Differences of two runs of statements that stand in each other's place, and of those inside them."""
    left = right = 0
    old, new, blocks = opened(old, new)
    yield from (Difference(theirs, ours, (id(block), "opened"), header(block), None) for block in blocks)
    pairs = partners_in_order([words_of(one) for one in old], [words_of(inner(one)) for one in new])
    for at, to in [*pairs, (len(old), len(new))]:
        anchor = (id(old[at]), "before") if at < len(old) else (id(parent), "behind")
        if at - left == to - right:  # as many without a likeness on either side: they stand in each other's place
            for one, two in zip(old[left:at], new[right:to], strict=True):
                yield from _paired(theirs, ours, one, two)
        else:
            yield from (Difference(theirs, ours, (id(one), "instead"), one, None) for one in old[left:at])
            if added := list(new[right:to]):
                block = added[0] if len(added) == 1 else ast.copy_location(ast.Module(added, []), added[0])
                yield Difference(theirs, ours, anchor, None, block)
        if at < len(old) and to < len(new):
            yield from _paired(theirs, ours, old[at], new[to])
        left, right = at + 1, to + 1


def _paired(theirs: Code, ours: Code, old: ast.stmt, new: ast.stmt) -> Iterator[Difference]:
    old, new = loop_like(old, new), loop_like(new, old)
    fields = [field for field in _FIELDS if getattr(old, field, None) or getattr(new, field, None)]
    if type(old) is not type(new) or not fields or new is not inner(new) or _is_given_others(old, new):
        yield Difference(theirs, ours, (id(old), "instead"), old, new)
        return
    for field in ("test", "iter"):
        if (head := getattr(old, field, None)) is not None:
            yield Difference(theirs, ours, (id(head), "instead"), head, getattr(new, field))
    for field in fields:
        yield from _aligned(theirs, ours, old, getattr(old, field, []), getattr(new, field, []))


def _is_given_others(old: ast.stmt, new: ast.stmt) -> bool:
    """Whether loops give their bodies other numbers of names, as with `enumerate`: then neither runs the other's."""
    sizes = [len(list(ast.walk(one.target))) for one in (old, new) if isinstance(one, ast.For)]
    return len(set(sizes)) > 1


def _smallest(old: ast.AST, new: ast.AST) -> tuple[ast.AST, ast.AST]:
    """The smallest parts in which two pieces of code differ: expressions, no bare names of functions."""
    ours, theirs = (list(ast.iter_child_nodes(node)) for node in (new, old))
    if type(old) is type(new) and [type(one) for one in ours if not isinstance(one, ast.expr)] == [
        type(one) for one in theirs if not isinstance(one, ast.expr)
    ]:
        if len(ours) != len(theirs):
            return old, new
        different = [(one, two) for one, two in zip(theirs, ours, strict=True) if words_of(one) != words_of(two)]
        if len(different) == 1 and all(isinstance(node, ast.keyword) for node in different[0]):
            return different[0] if len({getattr(node, "arg", "") for node in different[0]}) == 1 else (old, new)
        # A bare number, name or slice says nothing without what it stands in, unless that is cut off.
        bare = () if len(ast.unparse(old)) > LONGEST else (ast.Constant, ast.Name, ast.Slice)
        if len(different) == 1 and all(
            isinstance(node, ast.expr) and not isinstance(node, bare) for node in different[0]
        ):
            called = isinstance(old, ast.Call) and different[0][0] is old.func
            plain = {
                name: value for name, value in ast.iter_fields(old) if isinstance(value, str) and name != "type_comment"
            }
            if not called and plain == {name: getattr(new, name) for name in plain}:
                return _smallest(*different[0])
    return old, new
