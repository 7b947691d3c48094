"""Calls of a port in paddle's terms, as the rules of the native style have them."""

from collections.abc import Sequence

import libcst as cst

from twinalign.drafting.native_rules import CallRule, MethodRule, StatementRule

_PARTIAL = ("partial", "functools.partial")


def called(call: cst.Call) -> tuple[cst.BaseExpression, Sequence[cst.Arg]]:
    """What a call, or a `partial` with arguments, calls, and with what."""
    if dotted(call.func) in _PARTIAL and len(call.args) > 1 and call.args[0].keyword is None:
        return call.args[0].value, call.args[1:]
    return call.func, call.args


def native_arguments(rule: CallRule, given: Sequence[cst.Arg]) -> list[cst.Arg] | None:
    """The arguments in paddle's terms, or None if it cannot be said what they are."""
    made: list[cst.Arg] = []
    seen = set()
    for place, argument in enumerate(given):
        if argument.star or (argument.keyword is None and place >= len(rule.parameters)):
            return None
        name = word(argument) or rule.parameters[place]
        seen.add(name)
        if name in rule.parameters[: rule.same]:
            made.append(argument)
            continue
        listed = f"{name}=[]" if isinstance(argument.value, (cst.List, cst.Tuple)) else name
        keys = (f"{name}={code(argument.value)}", listed, name)
        template = next((rule.keywords[key] for key in keys if key in rule.keywords), None)
        if template is None:
            return None
        made += _arguments(template.format(value=_bracketed(template, argument.value)))
    for name, template in rule.absent.items():
        if name not in seen:
            made += _arguments(template)
    return ended(made)


def ended(arguments: Sequence[cst.Arg]) -> list[cst.Arg]:
    """Without a comma behind the last."""
    return [*arguments[:-1], *(last.with_changes(comma=cst.MaybeSentinel.DEFAULT) for last in arguments[-1:])]


def _arguments(text: str) -> Sequence[cst.Arg]:
    call = cst.ensure_type(cst.parse_expression(f"f({text})"), cst.Call)
    return call.args


def _bracketed(template: str, value: cst.BaseExpression) -> str:
    """The value's code, in brackets where the template does something with it."""
    alone = template == "{value}" or template.endswith(("={value}", "={value})"))
    simple = isinstance(value, (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.SimpleString, cst.Integer))
    return code(value) if alone or simple or value.lpar else f"({code(value)})"


def method_text(rule: MethodRule, call: cst.Call) -> str | None:
    """What the rule makes of a call of a method; None if the call is not as the rule says."""
    function = cst.ensure_type(call.func, cst.Attribute)
    if function.attr.value != rule.name:
        return None
    given = {"self": code(function.value)}
    if not isinstance(function.value, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) and not function.value.lpar:
        given["self"] = f"({given['self']})"
    if rule.arguments == ("*",):
        if any(argument.keyword is not None or argument.star == "**" for argument in call.args):
            return None
        if len(call.args) < 2 and not any(argument.star or _is_number(argument.value) for argument in call.args):
            return None
        given["*"] = ", ".join(argument.star + code(argument.value) for argument in call.args)
    else:
        if len(call.args) != len(rule.arguments) or any(argument.star for argument in call.args):
            return None
        for name, argument in zip(rule.arguments, call.args, strict=True):
            if word(argument) != name.removesuffix("=") and (word(argument) or name.endswith("=")):
                return None
            given[name.removesuffix("=")] = code(argument.value)
    text = rule.becomes
    for name in given:
        text = text.replace("{" + name + "}", f"\0{name}\0")
    for name, argument_code in given.items():
        text = text.replace(f"\0{name}\0", argument_code)
    return text


def statement_text(rule: StatementRule, call: cst.Call) -> str | None:
    """What the rule makes of the call; None if it gives something that the rule does not know, or not all."""
    given = dict(rule.defaults)
    for name, argument in zip((*rule.parameters, *[""] * len(call.args)), call.args, strict=False):
        parameter = word(argument) or name
        if argument.star or parameter not in rule.parameters:
            return None
        given[parameter] = code(argument.value)
    return rule.becomes.format(**given) if set(given) == set(rule.parameters) else None


def _is_number(node: cst.BaseExpression) -> bool:
    return isinstance(node, (cst.Integer, cst.UnaryOperation))


def word(argument: cst.Arg) -> str | None:
    """The argument's keyword."""
    return argument.keyword.value if argument.keyword is not None else None


def code(node: cst.CSTNode) -> str:
    """The node as it is written."""
    return cst.Module([]).code_for_node(node)


def dotted(node: cst.CSTNode) -> str:
    """`paddle.nn.Layer`; empty for what is no dotted name."""
    parts = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    return ".".join([node.value, *reversed(parts)]) if isinstance(node, cst.Name) else ""
