"""The simulator's rules by name, read off its sources: what a run, or a call with known operands, is refused for."""

import ast
import functools
from pathlib import Path

import kernels_neuron.sim


@functools.cache
def simulator_rules() -> dict[str, list[str]]:
    """Rule -> its messages, with the places that a case fills in braces."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(kernels_neuron.sim.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                for rule, message in _raised(node):
                    messages = found.setdefault(rule, [])
                    if message not in messages:
                        messages.append(message)
    return dict(sorted(found.items()))


def _raised(call: ast.Call) -> list[tuple[str, str]]:
    """(rule, message) of fail("rule", "message", ..) and KernelError("message", rule="rule")."""
    called = getattr(call.func, "id", "")
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if called == "fail" and len(call.args) >= 2:
        rule, message = call.args[:2]
    elif called == "KernelError" and call.args and "rule" in keywords:
        rule, message = keywords["rule"], call.args[0]
    elif called == "NotSimulated" and call.args:
        rule, message = ast.Constant("not-simulated"), call.args[0]
    else:
        return []
    choices = [rule.body, rule.orelse] if isinstance(rule, ast.IfExp) else [rule]
    names = [str(each.value) for each in choices if isinstance(each, ast.Constant)]
    if isinstance(rule, ast.JoinedStr):  # f"{memory}-capacity"
        names = [_text(rule).replace("...", memory) for memory in ("psum", "sbuf")]
    return [(name, _text(message)) for name in names]


def _text(node: ast.expr) -> str:
    """The text of a message; what varies stands as "..."."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "..." for part in node.values)
    return "..."
