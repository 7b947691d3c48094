"""The program that a unit ran by."""

import re

from twinalign.causes.layers.subject import LayerSubject
from twinalign.replay.unit_program import Program, group_calls

_LITERAL = re.compile(r"(?<![\w.])\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def program_of(subject: LayerSubject) -> Program:
    """The program that the unit ran by when it was traced."""
    operations = subject.traced[1]
    group_calls(operations)
    texts = [operation.line.partition(": ")[2] for operation in operations]
    texts += [step["source"] for step in getattr(subject.unit, "steps", ())]
    literals = {float(found) for text in dict.fromkeys(texts) for found in _LITERAL.findall(text)}
    literals |= {float(value) for value in subject.port_numbers.values()}
    module = subject.module
    own = {} if module is None else {**dict(module.named_buffers()), **dict(module.named_parameters())}
    return Program(operations, sorted(literals), own, subject.mended is not None)
