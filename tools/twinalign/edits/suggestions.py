"""What to write against a fault, in words; for what no edit is known of, too."""

import ast
import builtins
import linecache
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinalign.edits.argument_values import called_function, optimizer_values, paddle_values
from twinalign.edits.certainty import wrong_lines
from twinalign.edits.paddle_calls import FUNCTIONS, OPTIMIZER_CLASSES, OPTIMIZER_SETTINGS
from twinalign.edits.statements import TORCH_ALONE, WITH_LISTS, spelled
from twinalign.replay.likeness import own_words, spelled_words

_SHOWN_LINES = 4
_OF_LINES = ("line_of_port", "line_of_port_for_buffers")
"""Causes whose sentence quotes the code of both sides and names the lines."""
_ORDINALS = "first", "second", "third", "fourth"
_QUOTED = re.compile(r"`([^`]+)` in place of `([^`]+)`")
_CONSTANT = re.compile(r"where `(\w+)` is `[^`]+` in place of `([^`]+)`")
_PAIRS = ("max", "min", "median", "sort")
"""Functions that return indices as well in torch alone, if they are given an axis."""
_OTHERWISE = ("linear", "cross_entropy", "div")
"""Functions that paddle has under the same name, and that take weights or classes in another layout, or no numbers."""
_MODULES = ("torch", "paddle", "F", "nn")
_SAME_WORDS = re.compile(r"`([^`]+)` gives something else than it does in the reference, (line \d+ of [^\s,]+)")
_LINES_OF_REFERENCE = re.compile(
    r"line \d+ of [^\s,;)]+ and (line \d+ of [^\s,;)]+)|the port lacks `[^`]+`, (line \d+ of [^\s,;)]+)"
)
_MOVED = re.compile(r"`([^`]*[=(][^`]*)` stands \w+ `([^`]+)`, in the reference (\w+) it, line")
_WITHOUT_DECAY = "leave these parameters out: apply_decay_param_fun of AdamW, or a group with weight_decay=0.0"
_REMEDIES = {
    **dict.fromkeys(
        (f"decay_on_{which}" for which in ("one_dimensional", "bias", "norm", "embedding")), _WITHOUT_DECAY
    ),
    "ema_buffers": "average only what is trained: paddle's parameters() holds the running statistics as well",
    "epsilon_inside_root": (
        "add epsilon to the root itself; paddle.optimizer.RMSProp cannot, in its place write the step by hand"
    ),
    "learning_rate_of_some": (
        "give these parameters the reference's rate; paddle multiplies a group's by the optimizer's"
    ),
    **dict.fromkeys(
        ("gradients_accumulate", "gradient_not_cleared"), "call the optimizer's clear_grad() once a step, behind step()"
    ),
    **dict.fromkeys(("step_skipped", "step_twice"), "call the optimizer's step() once for each of the reference's"),
    "evaluation_mode": "call the model's train() before the loop, and again behind each evaluation",
    "ignored_rows_counted": "divide by the number of rows that count, without those of ignore_index",
    "batch_norm_mode": (
        "give the layer the mode that it has in the reference: the port calls train() or eval() of a part of the model "
        "that it is in, or leaves that out"
    ),
    "smooth_l1_form": (
        "paddle's smooth_l1_loss is torch's huber_loss; for torch's smooth_l1_loss write is_huber=False, or divide by "
        "delta; delta is torch's beta"
    ),
    "recurrent_batch_first": (
        "paddle's recurrent layers take the batch first, as torch's do with batch_first=True, and time first with "
        "time_major=True: give the layer the setting and the layout that the reference's has"
    ),
}
"""Id of a cause → what to do, where no code says it."""
_OF_FROZEN_BIAS = (
    "call F.batch_norm without weight and bias, and write `* self.weight + self.bias` behind it: paddle's batch norm "
    "gives neither of them a gradient where stop_gradient is set on the other"
)
_LONE = "what one side alone has"
_OF_MODEL = ("forward", "backward", "state")
_FEW_WORDS = 4


def suggestion(fault: Mapping[str, Any]) -> str:
    """One line that says what to write where, from the proven cause of a fault, given as JSON."""
    evidence, explanation = fault["evidence"], fault["explanation"]
    if "convention" in evidence:
        return f'write accept = ("{evidence["convention"]}",) in the case to keep paddle\'s convention'
    where = _where(fault)
    if "output" in evidence.get("values", {}):  # another number of outputs
        return "return as many tensors as the reference does, or let the case's forward() pick those to compare"
    likely = [edit for edit in fault["reference_edits"] if edit["likely"]]
    edits = [edit for edit in likely if not _is_right_there(edit, evidence.get("inside") or {})]
    edits = [edit for edit in edits if not _is_among(edit, evidence.get("right_lines", ()))]
    if near := {tuple(place): at for at, place in enumerate(evidence.get("near_lines", ()))}:
        edits = sorted((edit for edit in edits if _place_of(edit) in near), key=lambda edit: near[_place_of(edit)])
    unknown = (evidence.get("inside") or {}).get("unknown")
    if explanation is None and (there := [edit for edit in edits if _place_of(edit) == _place_in(unknown)]):
        before, after = (_in_one_line(there[0][key]) for key in ("before", "after"))
        theirs = after if there[0]["after"].strip() else "nothing like it"
        at = ":".join(map(str, _place_in(unknown)))
        return f"look first at {at}, where the port has {before} and the reference {theirs}"
    if explanation is None and "fits_here" in evidence:
        return f"look first whether this is so in {where}: {evidence['fits_here']}"
    # A component runs many functions, and a few lines of one of them that read otherwise say nothing.
    if explanation is None and edits and fault["phase"] in _OF_MODEL:
        lines = list(dict.fromkeys(f"{name}:{line}" for name, line in map(_place_of, edits)))
        shown = ", ".join(lines[:_SHOWN_LINES])
        return f"compare {shown} with the reference, which reads otherwise there; `twinalign fix` tries its words"
    if explanation is None:
        return f"compare {where} with the same place of the reference: no known cause reproduces what it gives"
    if "tied_in" in evidence:
        return f"in {where}: {_of_ties(evidence)}"
    if explanation["id"] == "weight_of_its_own" and (quoted := _QUOTED.search(explanation["text"])) is not None:
        return f"in {where}: use `{quoted[2]}` once more, as the reference does, and build no layer for `{quoted[1]}`"
    if (inside := explanation["evidence"].get("helper_edit")) is not None:
        to_do = inside.get("to_do") or f"write `{inside['after']}` in place of `{inside['before']}`"
        return f"in {where}: {to_do}{_ordinal(*inside.get('of_line', (0, 1)))}{_left_over(inside)}"
    if explanation["id"] == "parameters_frozen" and "BatchNorm" in str(evidence.get("paddle_class")):
        return f"in {where}: {_OF_FROZEN_BIAS}"
    if explanation["id"] == "operand_activated":
        return f"in {where}: leave the activation out of this side of the sum"
    written = _written(fault)
    if written:
        return f"write {written} in {where}"
    if explanation["id"] in _OF_LINES and (line := _line_as_in_reference(fault)):
        return f"in {where}: {line}"
    if (told := _REMEDIES.get(explanation["id"])) is not None:
        return f"in {where}: {told}"
    made = explanation["evidence"].get("reference_calls", [])
    lines = list(dict.fromkeys(call["line"] for call in made if call.get("line")))
    if lines and explanation["id"] not in _OF_LINES:
        said = f"do as {' and '.join(lines)} {'does' if len(lines) == 1 else 'do'}"
        return f"in {where}: {said}{_other_words(fault)}"
    calls = list(dict.fromkeys(call["path"] if call["name"] == "layer" else call["name"] for call in made))
    to_do = "build the layer" if calls == ["unit"] else f"call {' and '.join(calls)}" if calls else "do"
    return f"in {where}: {to_do} as the reference does{_other_words(fault)}"


def _left_over(edit: Mapping[str, str]) -> str:
    """The reference's line, if it says more than the port's with an edit inside of it: a branch that no value took."""
    quoted = _QUOTED.search(edit.get("of", ""))
    port, reference = quoted.groups() if quoted is not None else ("", "")
    if "after" not in edit or edit["before"] not in port or edit["after"] == reference:
        return ""
    mended, theirs = _parsed(port.replace(edit["before"], edit["after"], 1)), _parsed(reference)
    if mended is None or theirs is None:
        return ""
    ours, others = (own_words(code) for code in (mended, theirs))
    left = (ours - others).total() + (others - ours).total()  # another formula differs in more
    return f"; the reference's line has `{reference}`" if 0 < left <= _FEW_WORDS else ""


def _other_words(fault: Mapping[str, Any]) -> str:
    """What the reference has in place of what the port has in the lines that are proven to be wrong, if they differ in
    one part alone: of several, some may be another way of writing the same."""
    wrong, likely = wrong_lines(fault), [one for one in fault["reference_edits"] if one["likely"]]
    there = [one for one in likely if one.get("runs", True) and _place_of(one) in wrong and one["after"].strip()]
    if not there:
        return ""
    least = min(there, key=lambda one: len(one["before"]) + len(one["after"]))
    told = "".join(fault["explanation"]["text"].split())
    is_elsewhere = re.search(r"line\d+of\S+?:", told) and "".join(least["after"].split()) not in told
    mended = (spelled_words(one["before"].replace(least["before"], least["after"], 1)) for one in there)
    if is_elsewhere or any(ours != spelled_words(one["after"]) for ours, one in zip(mended, there, strict=True)):
        return ""
    return f", which has {_in_one_line(least['after'])} in place of {_in_one_line(least['before'])}"


def _of_ties(evidence: Mapping[str, Any]) -> str:
    """What to do about weights that are one tensor on one side alone."""
    keys = [both["port"] for both in evidence["keys"]]
    if evidence["tied_in"] == "paddle":
        return f"build a layer for {' and '.join(f'`{one[-1]}`' for one in keys)} alone, and use no other's weights"
    shared = " and ".join(f"`{other}` be `{first}`" for first, *others in keys for other in others)
    return f"let {shared}, by using that layer again or by giving its weights to the other one"


def _line_as_in_reference(fault: Mapping[str, Any]) -> str:
    """What to write in a line of which the cause quotes the code of both sides; nothing if it names no line of both.

    The code of the reference is shown in paddle's words if an edit is known that replaces what is quoted of the port.
    """
    text, wrong = fault["explanation"]["text"], wrong_lines(fault)
    written = []
    for quoted in _QUOTED.finditer(text) if _LONE not in text else ():
        port, reference = (_parsed(code) for code in quoted.groups())
        for edit in fault["reference_edits"]:
            before, after = (_parsed(edit[key]) for key in ("before", "after"))
            fits = edit.get("runs", True) and _place_of(edit) in wrong
            if fits and _is_exchange(before, after, port, reference):
                said = f"write {_in_one_line(edit['after'])} in place of {_in_one_line(edit['before'])}"
                written.append(said + _which_of_line(edit))
                break
    if written and len(written) == len(_QUOTED.findall(text)):  # a part of what belongs together would break the port
        return " and ".join(written)
    pairs = _QUOTED.findall(text)
    refused = any(not edit.get("runs", True) for edit in fault["reference_edits"])
    if len(pairs) == 1 and not (written or refused) and _is_plain(*map(_parsed, pairs[0])):
        return f"write `{pairs[0][1]}` in place of `{pairs[0][0]}`"
    if (constant := _CONSTANT.search(text)) is not None:
        return f"write `{constant[1]} = {constant[2]}` where it is assigned"
    if (moved := _MOVED.search(text)) is not None:
        return f"write `{moved[1]}` {moved[3]} `{moved[2]}`"
    if (same := _SAME_WORDS.search(text)) is not None:
        return f"write in {same[2]} what gives in paddle what `{same[1]}` gives in torch"
    said = _as_these({line for two in _LINES_OF_REFERENCE.findall(text) for line in two if line})
    return f"{said}: `{pairs[0][1]}`" if said and len(pairs) == 1 and _LONE not in text else said


def _which_of_line(edit: Mapping[str, Any]) -> str:
    """Which one of a line is meant, if what is to be replaced stands there more than once."""
    line, column = linecache.getline(str(edit["file"]), edit["line"]), edit.get("span", (0, -1))[1]
    places = [found.start() for found in re.finditer(rf"(?<![\w.]){re.escape(edit['before'])}(?!\w)", line)]
    return _ordinal(places.index(column) if column in places else len(_ORDINALS), len(places))


def _ordinal(at: int, most: int) -> str:
    """Which one of so many is meant, from 0; nothing if there is one alone."""
    return f" (the {_ORDINALS[at]} of {most} in that line)" if most > 1 and at < len(_ORDINALS) else ""


def _as_these(lines: Iterable[str]) -> str:
    """To do as these lines of the reference, `line N of FILE` each; nothing if there are none."""
    of_files: dict[str, list[int]] = {}
    for line in lines:
        _, number, _, file = line.split(" ", 3)
        of_files.setdefault(file, []).append(int(number))
    said = [
        f"line{'s' * (len(numbers) > 1)} {', '.join(map(str, sorted(numbers)))} of {file}"
        for file, numbers in sorted(of_files.items())
    ]
    one = len(said) == 1 and len(next(iter(of_files.values()))) == 1
    return f"do as {' and '.join(said)} {'does' if one else 'do'}" if said else ""


def _parsed(code: str) -> ast.AST | None:
    """The code as a tree; None for a part of an expression and for what was shortened."""
    try:
        return ast.parse(code.strip())
    except SyntaxError:
        return None


def _is_exchange(
    before: ast.AST | None, after: ast.AST | None, port: ast.AST | None, reference: ast.AST | None
) -> bool:
    """Whether an edit exchanges the port's code for all of the reference's, which may call things by torch's names."""
    if before is None or after is None or port is None or reference is None:
        return False
    theirs = [*map(_in_paddle, _calls(reference))]
    return (
        ast.dump(before) == ast.dump(port)
        and (_operands(after), _signs(after)) == (_operands(reference), _signs(reference))
        and _is_part(_calls(after), theirs)
        and {*_calls(before)} & {*theirs} <= {*_calls(after)}  # what the port calls already is not what it can't call
        and _layouts(before) == _layouts(after)
        and not _takes_of_pair(after)
        and not _has_parts_of_complex(after)
        and _nones(after) <= _nones(before)
        and not {name for name in _calls(after) if name.rpartition(".")[2] in _OTHERWISE}
    )


def _is_plain(port: ast.AST | None, reference: ast.AST | None) -> bool:
    """Whether the reference's code is code of the port: it has its names, and calls Python's own functions."""
    if port is None or reference is None:
        return False
    called = [node.func for node in ast.walk(reference) if isinstance(node, ast.Call)]
    of_python = (isinstance(one, ast.Name) and hasattr(builtins, one.id) for one in called)
    names, known = (set(filter(str.isidentifier, _operands(code))) for code in (reference, port))
    return all(of_python) and names <= known | vars(builtins).keys() and not _has_parts_of_complex(reference)


def _nones(code: ast.AST) -> int:
    """How often None stands in a tuple, as torch wants it for the gradient of what is no tensor."""
    members = [one for node in ast.walk(code) if isinstance(node, ast.Tuple) for one in node.elts]
    return sum(isinstance(one, ast.Constant) and one.value is None for one in members)


def _is_part(some: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether some names stand among the whole, in the same order."""
    remaining = iter(whole)
    return all(name in remaining for name in some)


def _in_paddle(name: str) -> str:
    return {**TORCH_ALONE, **WITH_LISTS}.get(name) or spelled(name, keyword=False)


def _takes_of_pair(code: ast.AST) -> bool:
    """Whether something is taken of the pair that torch's function returns, where paddle's returns the values alone."""
    places = [node for node in ast.walk(code) if isinstance(node, ast.Subscript)]
    taken = [node.value for node in places if isinstance(node.slice, ast.Constant)]
    taken += [
        node.value for node in ast.walk(code) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
    ]
    return any(isinstance(value, ast.Call) and _calls(value)[-1] in _PAIRS for value in taken)


def _has_parts_of_complex(code: ast.AST) -> bool:
    """Whether it reads `x.real` or `x.imag`, which are methods in paddle."""
    called = {id(node.func) for node in ast.walk(code) if isinstance(node, ast.Call)}
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("real", "imag") and id(node) not in called
        for node in ast.walk(code)
    )


def _calls(code: ast.AST) -> list[str]:
    """Names of the functions and methods that are called, in the order in which they run."""
    found = [name for child in ast.iter_child_nodes(code) for name in _calls(child)]
    if isinstance(code, ast.Call):
        found.append(code.func.attr if isinstance(code.func, ast.Attribute) else ast.unparse(code.func))
    return found


def _operands(code: ast.AST) -> list[str]:
    """Names, attributes and numbers in the order in which they are written; not those of functions and keywords."""
    functions = {id(node.func) for node in ast.walk(code) if isinstance(node, ast.Call)}
    found: list[tuple[int, int, str]] = []
    for node in ast.walk(code):
        if isinstance(node, ast.Constant):
            said = repr(node.value)
        elif isinstance(node, ast.Name) and id(node) not in functions and node.id not in _MODULES:
            said = node.id
        elif isinstance(node, ast.Attribute) and id(node) not in functions:
            said = node.attr
        else:
            continue
        found.append((node.end_lineno or 0, node.end_col_offset or 0, said))
    return [said for *_, said in sorted(found)]


def _signs(code: ast.AST) -> int:
    """How often a sign or `not` stands before a value."""
    return sum(isinstance(one, ast.UnaryOp) for one in ast.walk(code))


def _layouts(code: ast.AST) -> int:
    """How many calls say which layout their tensors have, which torch has no word for."""
    return sum(isinstance(node, ast.keyword) and node.arg == "data_format" for node in ast.walk(code))


def _is_right_there(edit: Mapping[str, Any], inside: Mapping[str, Any]) -> bool:
    """Whether the port has the reference's values behind the line of an edit."""
    place, known, unknown = _place_of(edit), *(_place_in(inside.get(name)) for name in ("known", "unknown"))
    return place[0] == known[0] and place[1] <= known[1] and place != unknown


def _is_among(edit: Mapping[str, Any], lines: Iterable[tuple[str, int, int]]) -> bool:
    name, line = _place_of(edit)
    return any(Path(file).name == name and first <= line <= last for file, first, last in lines)


def _place_of(edit: Mapping[str, Any]) -> tuple[str, int]:
    return Path(edit["file"]).name, edit["line"]


def _place_in(at: Mapping[str, Any] | None) -> tuple[str, int]:
    return (at["file"], at["line"]) if at else ("", 0)


def _in_one_line(text: str) -> str:
    return f"`{' '.join(text.split())}`"


def _written(fault: Mapping[str, Any]) -> str:
    """The arguments that are to be written; nothing where there are fewer than causes, so that some would be unsaid."""
    explanation = fault["explanation"]
    causes = explanation["id"].split("+")
    if fault["phase"] == "optimizer":
        kind = str(fault["evidence"].get("port_optimizer", {}).get("class", "")).rpartition(".")[2]
        other = next((found for c in causes if (found := OPTIMIZER_CLASSES.get(c, {}).get(kind))), kind)
        had = () if other == kind else OPTIMIZER_SETTINGS[kind]  # another class keeps what the port gives its own
        values = {name: value for name, value in optimizer_values(fault).items() if name not in had}
        said = [] if other == kind else [f"{other} in place of {kind}"]
        return ", ".join([*said, *(f"{name}={value!r}" for name, value in values.items())])
    said, number = [], 0
    for call in explanation["evidence"].get("reference_calls", []):
        name = called_function(call)
        values = paddle_values(name, call, causes, "function")
        given = ", ".join(f"{keyword}={value!r}" for keyword, value in values.items())
        number += len(values)
        if given:
            said.append(f"{FUNCTIONS.get(name, name)}(…, {given})")
    return " and ".join(dict.fromkeys(said)) if number >= len(causes) else ""


def _where(fault: Mapping[str, Any]) -> str:
    layer, known = fault["paddle_layer"] or "the model's own code", fault["explanation"] or {"evidence": {}}
    if fault["phase"] == "optimizer":
        layer = "the schedule" if fault["paddle_layer"] == "schedule" else "the construction of the optimizer"
    inside = fault["evidence"].get("inside") or {}
    places = []
    for file, first, last in known["evidence"].get("lines_of_port", ()):
        name, text = Path(file).name, known.get("text", "")
        said = (line for line in range(first, last + 1) if f"line {line} of {name}" in text)
        places.append((name, next(said, first)))
    near = [_place_in(at) for at in (inside.get("unknown"), inside.get("known")) if at]
    if (first_wrong := _place_in(inside.get("unknown"))) in places:  # of several lines, the one that shows
        places.insert(0, first_wrong)
    made = [(name, line) for name, line in fault["evidence"].get("calls_of_port", ())]
    if made and not places:  # a value may be absent from the reference where the port only writes it otherwise
        near = made if len(made) == 1 else [one for one in near if one in made]
    places += near
    of_library = str(fault["evidence"].get("paddle_class", "")).startswith("paddle.")
    if of_library or "tied_in" in fault["evidence"]:  # its code is the call that builds it
        places += [(Path(file).name, line) for file, line, _ in fault["evidence"].get("source", ())]
    return f"{layer}, near {places[0][0]}:{places[0][1]}" if places else layer
