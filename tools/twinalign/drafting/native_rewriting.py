"""Applies the rules of the native style to a drafted module, by LibCST: formatting and comments stay."""

import dataclasses
import functools
import re
from collections.abc import Collection, Mapping

import libcst as cst

from twinalign.drafting import native_rules
from twinalign.drafting.native_calls import (
    called,
    code,
    dotted,
    ended,
    method_text,
    native_arguments,
    statement_text,
    word,
)
from twinalign.drafting.native_rules import AttributeRule, CallRule, KeywordRule
from twinalign.drafting.native_values import class_of, dictionaries_of_places, reads_of_class, shim_of, without_truths

_IMPORT = re.compile(r"^from \.+ import shims\n", re.MULTILINE)
_SCRIPTING = "torch asks whether it is scripting, which paddle does not"
_PLACES = "they are None: paddle's default device and type hold"
_CHECKS = ("isinstance", "issubclass")


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """All places of a file that one rule rewrites."""

    file: str
    text: str
    why: str


@dataclasses.dataclass
class Rewritten:
    """A package after some of the rewrites.

    Attributes:
        files: path → source, without the shims.
        done: those that were asked for and have a place, in the order of the rules' kinds.
        shims: what the files still take from the shims, with the file.
    """

    files: dict[str, str]
    done: list[Rewrite]
    shims: list[tuple[str, str]]


def rewritten(files: Mapping[str, str], wanted: Collection[Rewrite] | None = None) -> Rewritten:
    """The modules of a port in paddle's own terms; all rewrites by default.

    A check of classes (`isinstance`) asks for paddle's class as soon as any file builds it, and for both where the
    shim is no subclass of it and still built.
    """
    of_file = {path: None if wanted is None else frozenset(one for one in wanted if one.file == path) for path in files}
    nothing: frozenset[str] = frozenset()
    first = {path: _visited(path, text, of_file[path], nothing, nothing) for path, text in files.items()}
    built = frozenset(shim for one in first.values() for shim in one.built)
    left = frozenset(shim for one in first.values() for shim in one.left)
    found = Rewritten({}, [], [])
    for path, text in files.items():
        one = _visited(path, text, of_file[path], built, left) if first[path].asks else first[path]
        found.files[path] = one.code
        found.done += one.done
        found.shims += [(path, shim) for shim in sorted(one.named)]
    found.done = sorted(dict.fromkeys(found.done), key=lambda rewrite: rewrite.text.startswith("shims."))
    return found


@functools.lru_cache(maxsize=512)  # trials change some files of many
def _visited(
    path: str, text: str, wanted: frozenset[Rewrite] | None, built: frozenset[str], left: frozenset[str]
) -> "_Native":
    native = _Native(path, wanted, built, left)
    module = _parsed(text).visit(native)
    native.named = {str(shim_of(node)) for node in _shims_in(module)}
    native.code = _with_imports(module.code, native)
    return native


_parsed = functools.lru_cache(maxsize=512)(cst.parse_module)


def _with_imports(text: str, native: "_Native") -> str:
    found = _IMPORT.search(text)
    if found is None:
        return text
    line = found.group() if native.named else ""
    if not re.search(r"^import paddle$", text, re.MULTILINE) and native.done:
        line = f"import paddle\n{line}"
    return text[: found.start()] + line + text[found.end() :]


class _Native(cst.CSTTransformer):
    """One pass over a module; `built` and `left`: shims that any file builds as paddle's class, and as themselves."""

    def __init__(
        self, file: str, wanted: Collection[Rewrite] | None, built: frozenset[str], left: frozenset[str]
    ) -> None:
        super().__init__()
        self._file, self._wanted = file, wanted
        self._all_built, self._all_left = built, left
        self.done: list[Rewrite] = []
        self.built: set[str] = set()
        self.left: set[str] = set()
        self.named: set[str] = set()
        self.asks: set[cst.CSTNode] = set()
        """Shims that checks and annotations name."""
        self.code = ""
        self._stays: set[cst.CSTNode] = set()
        self._statements: set[cst.CSTNode] = set()
        self._of_class: dict[cst.CSTNode, AttributeRule] = {}
        self._imported: set[str] = set()
        self._defined: set[str] = set()
        self._ignored: list[set[str]] = []

    def _does(self, text: str, why: str) -> bool:
        rewrite = Rewrite(self._file, text, why)
        if self._wanted is not None and rewrite not in self._wanted:
            return False
        self.done.append(rewrite)
        return True

    def visit_Import(self, node: cst.Import) -> bool:
        self._imported |= {alias.evaluated_alias or alias.evaluated_name.partition(".")[0] for alias in node.names}
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if not isinstance(node.names, cst.ImportStar):
            self._imported |= {alias.evaluated_alias or alias.evaluated_name for alias in node.names}
        return False

    def visit_Module(self, node: cst.Module) -> None:
        defined = [one for one in node.body if isinstance(one, (cst.FunctionDef, cst.ClassDef))]
        self._defined = {one.name.value for one in defined}

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._stays |= {base.value for base in node.bases if shim_of(base.value) is not None}

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._ignored.append(dictionaries_of_places(node))

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        unused = {
            name
            for name in self._ignored.pop()
            if _times_named(updated_node, name) == 1 < _times_named(original_node, name)
        }
        body = updated_node.body
        kept = [line for line in body.body if not (isinstance(line, cst.SimpleStatementLine) and _binds(line, unused))]
        return (
            updated_node.with_changes(body=body.with_changes(body=kept)) if len(kept) < len(body.body) else updated_node
        )

    def visit_If(self, node: cst.If) -> None:
        if (of_class := class_of(node.test)) is not None:
            self._of_class |= reads_of_class(node.body, *of_class)

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        test = without_truths(updated_node.test)
        if test is updated_node.test or not self._does("and not False taken away", _SCRIPTING):
            return updated_node
        return updated_node.with_changes(test=test)

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self.asks |= _shims_in(node)

    def visit_Expr(self, node: cst.Expr) -> None:
        self._statements.add(node.value)

    def visit_Call(self, node: cst.Call) -> None:
        function, _ = called(node)
        if shim_of(function) is not None:
            self._stays.add(function)
        if isinstance(node.func, cst.Name) and node.func.value in _CHECKS and len(node.args) == 2:
            self.asks |= _shims_in(node.args[1])

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        shim = shim_of(original_node)
        if (text := self._read_of_class(original_node)) is not None:
            return cst.parse_expression(text)
        if shim is None:
            rule = native_rules.NAMES.get(dotted(original_node))
            if rule is not None and self._does(f"{rule.name} → {rule.native}", rule.why):
                return cst.parse_expression(rule.native)
            return updated_node
        call = native_rules.CALLS.get(shim)
        if original_node in self.asks:
            return self._asked(shim, call, updated_node)
        if original_node in self._stays:
            return updated_node
        # Who calls it does not add what the rule adds.
        if call is not None and not call.absent and self._does(f"shims.{shim} as a value → {call.native}", call.why):
            self.built.add(shim)
            return cst.parse_expression(call.native)
        self.left.add(shim)
        return updated_node

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        text = self._read_of_class(original_node)
        return updated_node if text is None else cst.parse_expression(text)

    def _read_of_class(self, node: cst.BaseExpression) -> str | None:
        rule = self._of_class.get(node)
        if rule is None or (native_rules.CALLS[rule.shim].apart and rule.shim in self._all_left):
            return None
        wanted = self._does(f".{rule.read} of a {rule.shim} → {rule.becomes.removeprefix('{self}')}", rule.why)
        return rule.becomes.replace("{self}", code(node).partition(".")[0]) if wanted else None

    def _asked(self, shim: str, rule: CallRule | None, node: cst.Attribute) -> cst.BaseExpression:
        if rule is None or shim not in self._all_built:
            return node
        both = rule.apart and shim in self._all_left
        return cst.parse_expression(f"({rule.native}, shims.{shim})" if both else rule.native)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self.left |= {shim for base in original_node.bases if (shim := shim_of(base.value)) is not None}
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if (read := self._read_of_class(original_node)) is not None:
            return cst.parse_expression(read)
        shim = shim_of(called(original_node)[0])
        if shim in native_rules.STATEMENTS and original_node in self._statements:
            statement = native_rules.STATEMENTS[shim]
            text = statement_text(statement, updated_node)
            if text is not None and self._does(f"shims.{shim}(…) → {statement.becomes}", statement.why):
                return cst.parse_expression(text)
        if shim is not None:
            return self._native_call(shim, updated_node)
        if dotted(original_node.func).partition(".")[0] not in {"", *self._imported, *self._defined}:
            updated_node = self._without_constants(updated_node)
        updated_node = self._without_places(updated_node)
        for rule in native_rules.KEYWORDS:
            updated_node = self._renamed(rule, original_node, updated_node)
        if isinstance(original_node.func, cst.Attribute) and not self._is_imported(original_node.func.value):
            for method in native_rules.METHODS:
                text = method_text(method, updated_node)
                if text is not None and self._does(f".{method.name}({', '.join(method.arguments)})", method.why):
                    return cst.parse_expression(text)
        return updated_node

    def _is_imported(self, receiver: cst.BaseExpression) -> bool:
        return (
            dotted(receiver).partition(".")[0] in self._imported
            or isinstance(receiver, cst.SimpleString)
            or (isinstance(receiver, cst.Call) and dotted(receiver.func) == "super")
        )

    def _native_call(self, shim: str, call: cst.Call) -> cst.Call:
        rule = native_rules.CALLS.get(shim)
        given = called(call)[1]
        arguments = None if rule is None else native_arguments(rule, [one for one in given if not self._is_place(one)])
        if rule is None or arguments is None or not self._does(f"shims.{shim}(…) → {rule.native}(…)", rule.why):
            self.left.add(shim)
            return self._without_places(call)
        self.built.add(shim)
        native = cst.parse_expression(rule.native)
        if given is call.args:
            return call.with_changes(func=native, args=arguments)
        return call.with_changes(args=ended([call.args[0].with_changes(value=native), *arguments]))

    def _is_place(self, argument: cst.Arg) -> bool:
        """Whether it gives device and dtype, which are None in a port that chooses neither."""
        ignored = self._ignored[-1] if self._ignored else ()
        return argument.star == "**" and isinstance(argument.value, cst.Name) and argument.value.value in ignored

    def _without_places(self, call: cst.Call) -> cst.Call:
        kept = [argument for argument in call.args if not self._is_place(argument)]
        if len(kept) == len(call.args) or not self._does("**{'device': …, 'dtype': …} taken away", _PLACES):
            return call
        return call.with_changes(args=ended(kept))

    def _without_constants(self, call: cst.Call) -> cst.Call:
        kept = []
        for argument in call.args:
            rule = native_rules.CONSTANTS.get(word(argument) or "")
            if rule is None or code(argument.value) not in ("True", "False"):
                kept.append(argument)
            elif not self._does(f"{rule.word}= taken away", rule.why):
                return call
        return call if len(kept) == len(call.args) else call.with_changes(args=ended(kept))

    def _renamed(self, rule: KeywordRule, original: cst.Call, call: cst.Call) -> cst.Call:
        named = dotted(original.func) in rule.functions or (
            isinstance(original.func, cst.Attribute)
            and original.func.attr.value in rule.methods
            and not self._is_imported(original.func.value)
        )
        if not named or not any(word(argument) == rule.word for argument in call.args):
            return call
        if not self._does(f"{rule.word}= → {rule.native}=", rule.why):
            return call
        arguments = [
            argument.with_changes(keyword=cst.Name(rule.native)) if word(argument) == rule.word else argument
            for argument in call.args
        ]
        return call.with_changes(args=arguments)


class _Shims(cst.CSTVisitor):
    def __init__(self) -> None:
        self.found: set[cst.CSTNode] = set()

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if shim_of(node) is not None:
            self.found.add(node)


def _shims_in(node: cst.CSTNode) -> set[cst.CSTNode]:
    visitor = _Shims()
    node.visit(visitor)
    return visitor.found


def _times_named(node: cst.CSTNode, name: str) -> int:
    return len(re.findall(rf"\b{name}\b", code(node)))


def _binds(line: cst.SimpleStatementLine, names: Collection[str]) -> bool:
    return (
        len(line.body) == 1
        and isinstance(line.body[0], cst.Assign)
        and {dotted(target.target) for target in line.body[0].targets} <= set(names)
    )
