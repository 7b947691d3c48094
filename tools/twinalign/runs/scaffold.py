"""`twinalign init`: write a commented `case.py` for a port, from the user's options and the models' sources."""

import ast
import dataclasses
import difflib
import importlib.util
import keyword
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from twinalign.errors import InputError
from twinalign.files.recordings import write_text

FRAMEWORK_OPTION = {"torch": "--ref", "paddle": "--paddle"}
_FLOATS = ("float32", "float64")
_INTEGERS = ("int32", "int64")
DTYPES = (*_FLOATS, *_INTEGERS, "bool")
_DEFAULT_BOUND = 100


@dataclasses.dataclass(frozen=True)
class Factory:
    """The import and the call that build one side's model."""

    module: str
    name: str
    arguments: str = ""

    @property
    def imported(self) -> str:
        return self.name.partition(".")[0]

    def source(self, folder: Path) -> Path:
        return folder.joinpath(*self.module.split(".")).with_suffix(".py")

    @property
    def call(self) -> str:
        return f"{self.name}({self.arguments})"


@dataclasses.dataclass(frozen=True)
class InputArray:
    """One array that the models take."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    bound: int = _DEFAULT_BOUND

    @property
    def expression(self) -> str:
        """The array from `rng`, as Python."""
        if self.dtype in _FLOATS:
            return f'rng.standard_normal({self.shape}, dtype="{self.dtype}")'
        if self.dtype in _INTEGERS:
            return f'rng.integers(0, {self.bound}, {self.shape}, dtype="{self.dtype}")'
        return f"rng.random({self.shape}) < 0.8"


def parse_factory(option: str, text: str, folder: Path) -> Factory:
    """`module:factory` or `file.py:factory`, with literal keyword arguments if any, as a case in `folder` imports it.

    Raises:
        InputError: another form, or a file that a case in `folder` cannot import.
    """
    module, colon, call = text.rpartition(":") if "(" not in text else text.partition(":")
    try:
        parsed = ast.parse(call, mode="eval").body if colon and module else None
        called = parsed.func if isinstance(parsed, ast.Call) else parsed
        if parsed is None or not _is_dotted(called):
            raise ValueError
        arguments = ""
        if isinstance(parsed, ast.Call):
            if parsed.args or any(item.arg is None for item in parsed.keywords):
                raise ValueError
            arguments = ", ".join(f"{item.arg}={ast.literal_eval(item.value)!r}" for item in parsed.keywords)
    except (SyntaxError, ValueError):
        raise InputError(
            f"{option} {text}: give module:factory or file.py:factory, with keyword=literal arguments if any"
        ) from None
    if module.endswith(".py"):
        module = _importable(option, text, Path(module), folder)
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in module.split(".")):
        raise InputError(f"{option} {text}: {module} is not a module name; give package.module:factory")
    assert called is not None
    return Factory(module, ast.unparse(called), arguments)


def _is_dotted(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_dotted(node.value))


def _importable(option: str, text: str, path: Path, folder: Path) -> str:
    if not path.is_file():
        raise InputError(f"{option} {text}: there is no file {path}; give module:factory or a file that exists")
    try:
        relative = path.resolve().relative_to(folder.resolve())
    except ValueError:
        raise InputError(
            f"{option} {text}: {path} is not beside the case in {folder}; write the case there, or give module:factory"
        ) from None
    return ".".join(relative.with_suffix("").parts)


def parse_input(text: str, names: Sequence[str] = ()) -> InputArray:
    """`name:shape:dtype` or `name:shape:dtype:bound`, `x:2,3,224,224:float32`; the name may be left out where known.

    Raises:
        InputError: another form, an unknown dtype.
    """
    fields = re.sub(r"[\[\]()\s]", "", text).split(":")  # a shape may be typed as Python writes it
    if re.fullmatch(r"\d[\d,x]*", fields[0]):
        fields = [names[0] if names else "x", *fields]
    try:
        name, shape_text, dtype, bound = (*fields, *("", "", "float32", "")[len(fields) :])
        shape = tuple(int(size) for size in re.split(r"[,x]", shape_text.strip(",")))
        if not name.isidentifier() or min(shape) < 1:
            raise ValueError
        highest = int(bound) if bound else _DEFAULT_BOUND
    except ValueError:
        raise InputError(f"--input {text}: give name:shape:dtype, for instance x:2,3,224,224:float32") from None
    if dtype not in DTYPES:
        raise InputError(f"--input {text}: dtype {dtype} is not one of {', '.join(DTYPES)}")
    return InputArray(name, shape, dtype, highest)


def write_case(
    path: Path, factories: Mapping[str, Factory], inputs: Sequence[InputArray], name: str | None = None
) -> str:
    """Write the case to `path`, which must not exist; returns the name of its class.

    Args:
        path: the file.
        factories: `"torch"` and `"paddle"` → what builds the model.
        inputs: the arrays that both models take.
        name: of the case; by default that of the port's factory.

    Raises:
        InputError: the file exists, a name twice, or a name that is none.
    """
    twice = [item.name for number, item in enumerate(inputs) if item.name in {i.name for i in inputs[:number]}]
    if twice:
        raise InputError(f"--input {twice[0]}: given twice; each input needs its own name")
    title = name or factories["paddle"].name.rpartition(".")[2]
    class_name = "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", title) if part)
    if not class_name.isidentifier() or keyword.iskeyword(class_name) or class_name == "Case":
        raise InputError(f"--name {title}: it gives no valid class name; give another one with --name")
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("twinalign", "runs"), keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    text = environment.get_template("case.py.j2").render(
        title=title,
        file=path.name,
        class_name=class_name,
        name=re.sub(r"\W+", "_", title).strip("_").lower(),
        inputs=inputs,
        **factories,
    )
    require_new(path)
    write_text(path, text)
    return class_name


def require_new(path: Path) -> None:
    """Raise InputError if a file exists: a case is never overwritten."""
    if path.exists():
        raise InputError(f"{path}: it already exists; name another file, or remove it first")


def models_in(folder: Path, framework: str) -> list[str]:
    """`module:Class` of every model class that a Python file in `folder` derives from a framework's base class.

    Classes that another class of the file builds are its layers, and left out. Nothing is imported.
    """
    base = "Module" if framework == "torch" else "Layer"
    found = []
    for path in sorted(folder.glob("*.py")):
        tree = _parsed(path)
        if tree is None or framework not in _imported_packages(tree):
            continue
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        models = [node for node in classes if any(ast.unparse(b).rpartition(".")[2] == base for b in node.bases)]
        built = {
            call.func.id
            for node in models
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        }
        found += [f"{path.stem}:{node.name}" for node in models if node.name not in built and not _needs(node)]
    return found


def _needs(node: ast.ClassDef) -> list[str]:
    """Arguments of the constructor that have no default."""
    made = _method(node, "__init__")
    if made is None:
        return []
    positional = made.args.args[1 : len(made.args.args) - len(made.args.defaults)]
    named = [a for a, d in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True) if d is None]
    return [argument.arg for argument in (*positional, *named)]


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def input_names(factory: Factory, folder: Path) -> list[str]:
    """Parameters of the `forward` of the factory's class; none if its source is not in `folder`."""
    tree = _parsed(factory.source(folder))
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == factory.name and (forward := _method(node, "forward")):
            return [argument.arg for argument in forward.args.args[1:]]
    return []


def missing_module(factory: Factory, folder: Path) -> str | None:
    """The top-level package of a factory if neither `folder` nor this interpreter has it, else None.

    Another interpreter (`--ref-python`) may still have it.
    """
    top = factory.module.partition(".")[0]
    if any((place / top).is_dir() or (place / f"{top}.py").is_file() for place in (folder, Path(os.getcwd()))):
        return None
    return None if importlib.util.find_spec(top) else top


def require_defined(option: str, factory: Factory, folder: Path) -> None:
    """Raise InputError if the factory's source is in `folder` and does not define its name."""
    path, name = factory.source(folder), factory.imported
    tree = _parsed(path)
    bound = _bound_names(tree) if tree is not None else set()
    if tree is None or name in bound or bound & {"*", "__getattr__"}:
        return
    own = [node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    close = difflib.get_close_matches(name, own, 3) or own[:5]
    has = f"; it has {', '.join(close)}" if close else ""
    raise InputError(f"{option} {factory.module}:{factory.name}: {path} defines no {name}{has}")


def _bound_names(tree: ast.Module) -> set[str]:
    """Every name that a module's code may bind; `*` if it imports everything of another module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):  # missing, or not Python source
        return None


def _imported_packages(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found
