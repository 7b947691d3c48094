"""What the source of a native port says of its values: shims, classes that are asked for, device and dtype, truths."""

import libcst as cst

from twinalign.drafting import native_rules
from twinalign.drafting.native_calls import code, dotted
from twinalign.drafting.native_rules import AttributeRule

_TRUE, _FALSE = ("True", "not False"), ("False", "not True")
_IGNORED = {"'device'", '"device"', "'dtype'", '"dtype"'}


def shim_of(node: cst.CSTNode) -> str | None:
    """`Name` of `shims.Name`."""
    match node:
        case cst.Attribute(cst.Name("shims"), cst.Name(name)):
            return name
    return None


def class_of(test: cst.BaseExpression) -> tuple[str, str] | None:
    """The variable and the shim of `isinstance(variable, shims.Class)`."""
    match test:
        case cst.Call(cst.Name("isinstance"), [cst.Arg(cst.Name(name)), cst.Arg(asked)]):
            shim = shim_of(asked)
            return None if shim is None else (name, shim)
    return None


class _Reads(cst.CSTVisitor):
    """What is read of a variable and has a rule for its class."""

    def __init__(self, name: str, shim: str) -> None:
        self._name, self._shim = name, shim
        self.found: dict[cst.CSTNode, AttributeRule] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        if not isinstance(node, (cst.Attribute, cst.Call, cst.Subscript)):
            return True
        variable, _, read = code(node).partition(".")
        rule = native_rules.ATTRIBUTES.get((self._shim, read))
        if variable != self._name or rule is None:
            return True
        self.found[node] = rule
        return False


def reads_of_class(body: cst.CSTNode, name: str, shim: str) -> dict[cst.CSTNode, AttributeRule]:
    """What the body reads of the variable `name`, of that class, that has a rule."""
    reads = _Reads(name, shim)
    body.visit(reads)
    return reads.found


class _Dictionaries(cst.CSTVisitor):
    """Names that are assigned a dictionary of device and dtype, and those that are assigned anything else."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.others: set[str] = set()

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            name = dotted(target.target)
            if isinstance(node.value, cst.Dict) and node.value.elements and all(map(_is_place, node.value.elements)):
                self.places.append(name)
            else:
                self.others.add(name)


def _is_place(element: cst.BaseDictElement) -> bool:
    return isinstance(element, cst.DictElement) and code(element.key) in _IGNORED


def dictionaries_of_places(function: cst.FunctionDef) -> set[str]:
    """Variables that hold `{"device": …, "dtype": …}` and nothing else."""
    visitor = _Dictionaries()
    function.body.visit(visitor)
    return set(visitor.places) - visitor.others


def without_truths(test: cst.BaseExpression) -> cst.BaseExpression:
    """Without what changes nothing: what is true in a conjunction, and what is false in a disjunction."""
    if not isinstance(test, cst.BooleanOperation):
        return test
    left, right = without_truths(test.left), without_truths(test.right)
    nothing = _TRUE if isinstance(test.operator, cst.And) else _FALSE
    if code(right) in nothing:
        return left
    if code(left) in nothing:
        return right
    return test if left is test.left and right is test.right else test.with_changes(left=left, right=right)
