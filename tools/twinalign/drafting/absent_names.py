"""Names of torch that the draft left: the port says what is missing where it is used, not where it is imported."""

import libcst as cst

from twinalign.drafting.rewriting import with_import

ABSENT = "Absent"


def without_torch(source: str, above: str) -> tuple[str, bool]:
    """A drafted module in which every dotted name `torch.…` that is left is an object that raises when it is called.

    `above` are the dots that lead from the module to the port's package. The second value tells whether there were any.
    A module that does not parse stays as it is.
    """
    try:
        drafted = cst.parse_module(source)
    except cst.ParserSyntaxError:
        return source, False
    transformer = _Absent()
    module = drafted.visit(transformer)
    if not transformer.found:
        return source, False
    return with_import(module, f"from {above} import shims").code, True


class _Absent(cst.CSTTransformer):
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return not _of_torch(node)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        if not _of_torch(original_node):
            return updated_node
        self.found = True
        code = cst.Module([]).code_for_node(original_node.with_changes(lpar=[], rpar=[]))
        name = "".join(code.split())  # the draft breaks its long lines anywhere
        return cst.parse_expression(f'shims.{ABSENT}("{name}")')

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False


def _of_torch(node: cst.BaseExpression) -> bool:
    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, cst.Name) and node.value == "torch"
