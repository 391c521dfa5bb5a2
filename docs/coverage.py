"""Writes docs/coverage.md: every name of the NKI API, and how far the simulator carries it.

Run it after a change of the API: `python docs/coverage.py`. A test fails while the page is not what this would write.
"""

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "coverage.md"
sys.path.insert(0, str(ROOT))

from kernels_neuron.sim.isa import COLLECTIVES, TABLE  # noqa: E402
from kernels_neuron.sim.isa.ops import OPS  # noqa: E402
from kernels_neuron.sim.isa.prices import PRICES  # noqa: E402
from kernels_neuron.sim.isa.table import Instruction  # noqa: E402
from kernels_neuron.sim.shim import collectives, composite, gone, isa, language  # noqa: E402
from kernels_neuron.sim.switches import SWITCHES  # noqa: E402
from kernels_neuron.sim.tensor import NkiTensor  # noqa: E402
from kernels_neuron.sim.versions import METHODS, OLDEST, SINCE, spell  # noqa: E402

# documented, and refused by name: what they are and why
REFUSED = {
    "nc_matmul with an indirect dst": "how a scatter goes with accumulation in PSUM is not documented",
    "nc_matmul_mx with indirect operands": "how indices pick among packed elements and scales is not documented",
    "nki.compiler.kernel_builder.compile_kernel": "compiles for a device",
    "grid.data over more than 128 partitions on chip": "tiles are packed in their order; how several rows of them are "
    "one operand is not documented",
    "nl.alloc_tiles(..), nl.alloc_blocks(..) on chip, 3-D": "how tiles of three dims lie there is not documented",
    "nl.divide": "no chip divides",
    "nl.fmod": "no chip has it",
    "nl.gather_flattened(axis=1)": "an axis other than 0 is not documented",
    "nl.int64": "scalars of 64 bits add, subtract, multiply and address HBM beyond 4 GB; no engine computes with them, "
    "and how a tile of int64 is filled is not documented, so tiles, scalars and registers have 32 bits here",
    "nl.matmul(transpose_x=False)": "listed as a known issue of the vendor",
    "nl.mod": "no chip has it",
}
UNKNOWN = "Any other name of `nki`, `nl`, `nisa` and `ncc` is refused with `NotSimulated`, which names it."


def tested_rules() -> dict[str, set[str]]:
    """Rules that the tests break on purpose, by instruction: Pair(name, rule, ..) and refuses(rule, name, ..)."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests" / "sim").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            names = [argument.value if isinstance(argument, ast.Constant) else "" for argument in node.args[:2]]
            if called == "Pair":
                found.setdefault(str(names[0]), set()).add(str(names[1]))
            elif called == "refuses":
                found.setdefault(str(names[1]), set()).add(str(names[0]))
    return found


def _rows(rows: Iterable[tuple[str, ...]], *heads: str) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _instructions(table: dict[str, Instruction], rules: dict[str, set[str]]) -> str:
    def row(name: str) -> tuple[str, ...]:
        parameters = ", ".join(table[name].signature.parameters)
        price = "composed" if name not in PRICES else " ".join((PRICES[name].__doc__ or "").split())
        count = len(rules.get(name, ()))
        return f"`{name}({parameters})`", "yes", price.replace("|", "/"), "yes" if count else "shared"

    return _rows((row(name) for name in sorted(table)), "call", "simulated", "price", "rules tested")


def page() -> str:
    """The whole page."""
    rules = tested_rules()
    public = [name for name in sorted(language.__all__) if name not in OPS and name not in gone.LANGUAGE]
    refused = {"divide", "mod", "fmod"}
    composed = sorted(name for name in public if name in composite.COMPOSITES and name not in refused)
    plain = [name for name in public if name not in composite.COMPOSITES]
    # the other methods are the simulator's own
    methods = sorted({*METHODS, "ap", "get_pattern", "reinterpret_cast", "reshape"})
    assert all(hasattr(NkiTensor, name) for name in methods)
    operators = ["+", "-", "*", "**", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "~", "t[key]", "t[key] = tile"]
    ops = [
        (
            f"`nl.{op.name}`",
            "yes" if op.alu is not None else "",
            "yes" if op.reduce is not None else "",
            "yes" if op.act is not None else "",
            {2: "all", 3: "trn2 on", 4: "trn3 on"}[op.min_generation] if op.alu is not None else "",
        )
        for op in sorted(OPS.values(), key=lambda op: op.name)
    ]
    switches = [
        (f"`{name}`", f"`{switch.default}`", ", ".join(f"`{choice}`" for choice in switch.choices), switch.reason)
        for name, switch in sorted(SWITCHES.items())
    ]
    others = [name for name in sorted(isa.__all__) if name not in TABLE and name not in gone.ISA]
    who = [name for name in sorted(collectives.__all__) if name not in COLLECTIVES]
    retired = [
        (f"`{module}.{name}`", since, instead)
        for module, table in (("nki", gone.NKI), ("nl", gone.LANGUAGE), ("nisa", gone.ISA))
        for name, (since, instead) in sorted(table.items())
    ]
    newer = {**SINCE, **{f"NkiTensor.{name}": since for name, since in METHODS.items()}}
    since = [(f"`{name}`", spell(first)) for name, first in sorted(newer.items()) if first > OLDEST]
    names = lambda words: ", ".join(f"`{word}`" for word in words)  # noqa: E731
    return (
        "\n\n".join(
            [
                "# What the simulator covers\n\nWritten by `python docs/coverage.py` from the instruction table.",
                "## nki.isa\n\nEvery instruction computes, is priced and is compared with numpy by a test of its own. "
                "`shared`: no rule beyond those that all operands have. [rules.md](rules.md) lists them.\n\n"
                + _instructions(TABLE, rules),
                f"Other names: {names(others)}.",
                "## nki.collectives\n\nOver 1 to 64 ranks, by `kernels_neuron.simulate_ranks`, timed by "
                "`profile_ranks`. A price is 1.5 us a hop and the bytes at the rate of the DMA engines.\n\n"
                + _instructions(COLLECTIVES, rules),
                f"Other names: {names(who)}.",
                "## Operators\n\nTokens for `op=`, and functions of tiles when called.\n\n"
                + _rows(ops, "operator", "ALU", "reduction", "ScalarE function", "ALU form on"),
                f"## nki.language\n\nPriced as the instructions they issue: {names(composed)}.",
                f"Others: {names(plain)}.",
                f"## NkiTensor\n\nMethods: {names(methods)}.\n\nOperators: {names(operators)}.",
                "## Refused by name\n\n"
                + _rows(((f"`{name}`", why) for name, why in REFUSED.items()), "name", "why")
                + f"\n\n{UNKNOWN}",
                "## Retired names\n\nThey exist, and using one is an error.\n\n"
                + _rows(retired, "name", "gone since", "instead"),
                '`nl.dynamic_range` and `while register:` run under `Settings(nki="0.6")` and older.',
                '## Newer names\n\nA run set to an older version, `Settings(nki="0.3")`, refuses them by name.\n\n'
                + _rows(since, "name", "since"),
                "## Undocumented behaviour\n\nOne switch each, set by `Settings(switches={..})`.\n\n"
                + _rows(switches, "switch", "default", "choices", "reason"),
            ]
        )
        + "\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page())
