"""Applies the rules of repair to a module that is still torch's, by LibCST: formatting and comments stay."""

import dataclasses
import re
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider, QualifiedNameSource

from twinalign.drafting import rules

_LOOKS = ("hasattr", "dir", "getattr")
_IN_FULL = (
    *("torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils"),
    *("torch.optim", "torch.fft", "torch.linalg"),
)
_MODULES = {"torch": "paddle", "torch.nn": "paddle.nn", "torch.nn.functional": "paddle.nn.functional"}
_CLASSES = {"torch.nn.Module": "paddle.nn.Layer", "torch.Tensor": "paddle.Tensor"}
"""What PaConvert leaves where a method is taken of the class, as in `nn.Module.__init__(self)`."""


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that was changed beside the draft."""

    file: str
    text: str
    why: str


def rewritten(file: str, source: str, above: str) -> tuple[str, list[Change], set[str]]:
    """The source of a module after the rules, what was changed, and the names that it takes from the shims.

    `above` are the dots that lead from the module to the port's package.
    """
    wrapper = MetadataWrapper(cst.parse_module(source))
    transformer = _Rewriter(file)
    module = wrapper.visit(transformer)
    if transformer.in_full:
        module = with_import(module, "import torch")
    if transformer.shims:
        module = with_import(module, f"from {above} import shims")
    return module.code, list(dict.fromkeys(transformer.changes)), transformer.shims


class _Rewriter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (QualifiedNameProvider,)

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file
        self.changes: list[Change] = []
        self.in_full = False
        """Whether a module of torch was written in full: what PaConvert leaves of it is known by that."""
        self.shims: set[str] = set()
        self._shims = {rule.pattern: rule for rule in rules.SHIMS}
        self._other_names = {rule.pattern: rule for rule in rules.NAMES}
        self._values = {rule.pattern: rule for rule in rules.VALUES}
        self._methods = {rule.pattern: rule for rule in rules.METHODS}
        self._attributes = {rule.pattern: rule for rule in rules.ATTRIBUTES}
        self._lists = {rule.pattern: rule for rule in rules.LISTS}
        self._calls: dict[cst.BaseExpression, cst.Call] = {}
        self._of_parts: set[cst.BaseExpression] = set()
        """Calls of methods that stand as statements and change part of a tensor."""

    def _names(self, node: cst.CSTNode) -> set[str]:
        """Full names of what a dotted name stands for; what a call or an index gave has none."""
        if not _is_dotted(node):
            return set()
        found = self.get_metadata(QualifiedNameProvider, node, set())
        return {_public(name.name) for name in found if name.source is QualifiedNameSource.IMPORT}

    def _note(self, text: str, why: str) -> None:
        self.changes.append(Change(self._file, text, why))

    def _shim_of(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        for name in self._names(node):
            rule = self._shims.get(name)
            if rule is not None and self._fits(rule, node):
                self.shims.add(rule.replacement)
                self._note(f"{name} → shims.{rule.replacement}", rule.why)
                return _shim(rule.replacement)
        return None

    def _other_name(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        for name in self._names(node):
            if name in self._other_names:
                rule = self._other_names[name]
                self._note(f"{name} → {rule.replacement}", rule.why)
                return cst.parse_expression(rule.replacement)
        return self._shim_of(node)

    def _fits(self, rule: rules.Rule, function: cst.BaseExpression) -> bool:
        call = self._calls.get(function)
        return call is None or _matches(rule, call)

    def visit_Expr(self, node: cst.Expr) -> None:
        match node.value:
            case cst.Call(cst.Attribute(cst.Subscript(), cst.Name(method))) if method.endswith("_"):
                self._of_parts.add(node.value)

    def visit_Call(self, node: cst.Call) -> None:
        self._calls[node.func] = node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        rule = self._attributes.get(original_node.attr.value)
        if rule is not None and original_node not in self._calls and not self._names(original_node):
            self.shims.add(rule.replacement)
            self._note(f".{rule.pattern} → shims.{rule.replacement}(…)", rule.why)
            return cst.Call(_shim(rule.replacement), [cst.Arg(updated_node.value)])
        for name in self._names(original_node.value) & _CLASSES.keys():
            self._note(f"{name}.{original_node.attr.value} → {_CLASSES[name]}", "a method of paddle's class")
            return updated_node.with_changes(value=cst.parse_expression(_CLASSES[name]))
        return self._other_name(original_node) or updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        for name in self._names(original_node):
            if name in _IN_FULL and name != original_node.value:
                self.in_full = True
                return cst.parse_expression(name)
        return self._other_name(original_node) or updated_node

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.BaseExpression:
        for rule in rules.STRINGS:
            if original_node.raw_value == rule.pattern:
                self._note(f"{original_node.value} → {rule.replacement}", rule.why)
                return updated_node.with_changes(value=rule.replacement)
        return updated_node

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        for name in self._names(original_node.annotation):
            if name in _MODULES:
                return updated_node.with_changes(annotation=cst.parse_expression(_MODULES[name]))
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        written = cst.Module([]).code_for_node(original_node)
        for name in self._names(original_node.func) or {""}:
            for known in (name, f"{name}({written.partition('(')[2]}", written):
                if known in self._values:
                    self._note(
                        f"{known.partition('(')[0]}() → {self._values[known].replacement}", self._values[known].why
                    )
                    return cst.parse_expression(self._values[known].replacement)
        if isinstance(original_node.func, cst.Name) and original_node.func.value in _LOOKS and original_node.args:
            for name in self._names(original_node.args[0].value):
                if name in _MODULES:
                    self._note(
                        f"{original_node.func.value}({name}, …) asks paddle", "what torch has says nothing of paddle"
                    )
                    first = updated_node.args[0].with_changes(value=cst.parse_expression(_MODULES[name]))
                    return updated_node.with_changes(args=[first, *updated_node.args[1:]])
        for name in self._names(original_node.func):
            for rule in rules.KEYWORDS:
                kept = [argument for argument in updated_node.args if not _is_keyword(argument, rule.replacement)]
                if name.startswith(rule.pattern) and len(kept) < len(updated_node.args):
                    self._note(f"{name}({rule.replacement}=…) without it", rule.why)
                    last = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                    return updated_node.with_changes(args=[*kept[:-1], last])
        if (of := self._list_of(original_node)) is not None:
            self._note(f"next(….{of.pattern}()) → next(iter(….{of.pattern}()))", of.why)
            first = updated_node.args[0].with_changes(
                value=cst.Call(cst.Name("iter"), [cst.Arg(updated_node.args[0].value)])
            )
            return updated_node.with_changes(args=[first, *updated_node.args[1:]])
        function = updated_node.func
        if original_node in self._of_parts:
            return updated_node
        if isinstance(function, cst.Attribute) and not self._names(original_node.func):
            method = self._methods.get(function.attr.value)
            if method is not None and self._fits(method, original_node.func) and not _is_own_or_text(function.value):
                self.shims.add(method.replacement)
                self._note(f".{method.pattern}(…) → shims.{method.replacement}(…)", method.why)
                return updated_node.with_changes(
                    func=_shim(method.replacement), args=[cst.Arg(function.value), *updated_node.args]
                )
        return updated_node

    def _list_of(self, node: cst.Call) -> rules.Rule | None:
        match node:
            case cst.Call(cst.Name("next"), [cst.Arg(cst.Call(cst.Attribute(_, cst.Name(method)))), *_]):
                return self._lists.get(method)
        return None

    def leave_Decorator(
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> cst.Decorator | cst.RemovalSentinel:
        expression = original_node.decorator
        function = expression.func if isinstance(expression, cst.Call) else expression
        for name in self._names(function):
            for rule in rules.DECORATORS:
                if name.startswith(rule.pattern):
                    self._note(f"@{name} taken away", rule.why)
                    return cst.RemoveFromParent()
        return updated_node

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        for name in self._names(original_node.value):
            for rule in rules.ANNOTATIONS:
                if name == rule.pattern and isinstance(updated_node.slice[0].slice, cst.Index):
                    self._note(f"{name}[…] → …", rule.why)
                    return updated_node.slice[0].slice.value
        return updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        (first, *_) = original_node.body
        if isinstance(first, cst.Assign) and (registered := self._registered_buffer(first, updated_node.body[0])):
            self._note("x.name = torch.nn.Buffer(…) → x.register_buffer", "paddle has no class for buffers")
            return updated_node.with_changes(body=[registered])
        if isinstance(first, cst.Expr) and isinstance(first.value, cst.Call):
            assigned = self._assigned_part(updated_node.body[0])
            if assigned is not None:
                self._note("x[…].method_() → x[…] = …", "paddle's index gives a copy where torch's gives a view")
                return updated_node.with_changes(body=[assigned])
            for name in self._names(first.value.func):
                for rule in rules.STATEMENTS:
                    if name == rule.pattern:
                        self._note(f"{name}(…) taken away", rule.why)
                        return updated_node.with_changes(body=[cst.Pass()])
        return updated_node

    def _assigned_part(self, statement: cst.BaseSmallStatement) -> cst.Assign | None:
        """`x[…] = value` for a method that changes `x[…]` in place."""
        match statement:
            case cst.Expr(cst.Call(cst.Attribute(cst.Subscript() as part, cst.Name(method)), arguments) as call):
                pass
            case _:
                return None
        if not method.endswith("_") or method.endswith("__"):
            return None
        value: cst.BaseExpression
        name = method.removesuffix("_")
        if method == "zero_":
            value = cst.Integer("0")
        elif method in ("fill_", "copy_") and arguments:
            value = arguments[0].value
        elif (rule := self._methods.get(name)) is not None and _matches(rule, call):
            self.shims.add(rule.replacement)
            value = cst.Call(_shim(rule.replacement), [cst.Arg(part), *arguments])
        else:
            value = cst.Call(cst.Attribute(part, cst.Name(name)), arguments)
        return cst.Assign([cst.AssignTarget(part)], value)

    def _registered_buffer(self, original: cst.Assign, updated: cst.BaseSmallStatement) -> cst.Expr | None:
        value = original.value
        if not (isinstance(value, cst.Call) and "torch.nn.Buffer" in self._names(value.func)):
            return None
        match updated:
            case cst.Assign([cst.AssignTarget(cst.Attribute(owner, cst.Name(name)))], cst.Call() as call):
                given = [cst.Arg(cst.SimpleString(f'"{name}"')), *call.args]
                return cst.Expr(cst.Call(cst.Attribute(owner, cst.Name("register_buffer")), given))
        return None

    def leave_StarredDictElement(
        self, original_node: cst.StarredDictElement, updated_node: cst.StarredDictElement
    ) -> cst.StarredDictElement:
        if isinstance(updated_node.value, (cst.BooleanOperation, cst.IfExp)):
            self._note("{**(a or b)} → {**dict(a or b)}", "PaConvert loses the brackets")
            bare = updated_node.value.with_changes(lpar=[], rpar=[])
            return updated_node.with_changes(value=cst.Call(cst.Name("dict"), [cst.Arg(bare)]))
        return updated_node

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        """`if …: from torch.x import Y` becomes an assignment: PaConvert forgets imports that are not at the top."""
        body = [_assigned_imports(statement) for statement in updated_node.body.body]
        return updated_node.with_changes(body=updated_node.body.with_changes(body=body))

    def leave_Try(self, original_node: cst.Try, updated_node: cst.Try) -> Any:
        """`try: from torch import x` with another way for a torch without it: paddle is one without it."""
        code = [cst.Module([]).code_for_node(statement).strip() for statement in original_node.body.body]
        handlers = [
            h for h in updated_node.handlers if h.type is None or "Import" in cst.Module([]).code_for_node(h.type)
        ]
        if all(line.startswith(("from torch", "import torch")) for line in code) and handlers:
            self._note(f"{code[0]}: the way without it is taken", "paddle is no torch")
            return cst.FlattenSentinel(handlers[0].body.body)
        return updated_node

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False


def _is_dotted(node: cst.CSTNode) -> bool:
    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, cst.Name)


def _is_own_or_text(node: cst.BaseExpression) -> bool:
    """`self` or `super()`, whose methods are the class's own, or a text."""
    match node:
        case cst.SimpleString() | cst.Name("self") | cst.Call(cst.Name("super")):
            return True
    return False


def _matches(rule: rules.Rule, call: cst.Call) -> bool:
    return not rule.when or re.search(rule.when, _arguments(call)) is not None


def _arguments(call: cst.Call) -> str:
    return ", ".join(
        cst.Module([]).code_for_node(argument.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for argument in call.args
    )


def _assigned_imports(statement: cst.BaseStatement | cst.BaseSmallStatement) -> Any:
    match statement:
        case cst.SimpleStatementLine([cst.ImportFrom(module, names)]) if module is not None and not isinstance(
            names, cst.ImportStar
        ):
            place = cst.Module([]).code_for_node(module)
        case _:
            return statement
    if place.partition(".")[0] != "torch":
        return statement
    bound = [(alias.evaluated_alias or alias.evaluated_name, alias.evaluated_name) for alias in names]
    text = "; ".join(f"{name} = {place}.{of}" for name, of in bound)
    return cst.ensure_type(cst.parse_statement(text), cst.SimpleStatementLine)


def _is_keyword(argument: cst.Arg, name: str) -> bool:
    return argument.keyword is not None and argument.keyword.value == name


def _shim(name: str) -> cst.Attribute:
    return cst.Attribute(cst.Name("shims"), cst.Name(name))


def _public(name: str) -> str:
    """`torch.nn.Linear` whatever module it was imported from."""
    return name.replace("torch.nn.modules.", "torch.nn.") if name.count(".") == 3 else name


def with_import(module: cst.Module, line: str) -> cst.Module:
    """The module with one more import behind its docstring and `from __future__`."""
    body = list(module.body)
    at = 0
    for number, statement in enumerate(body):
        text = cst.Module([statement]).code.strip()
        if (number == 0 and text.startswith(('"""', "'''", 'r"""', '"', "'"))) or text.startswith("from __future__"):
            at = number + 1
    body.insert(at, cst.parse_statement(line))
    return module.with_changes(body=body)
