"""Every rule of the linter, broken on purpose and kept by a twin that differs in that alone."""

from dataclasses import dataclass

import pytest

from kernels_neuron.lint import RULES

BETA = "import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl\n\n\n"


@dataclass(frozen=True)
class Pair:
    """An illegal text, a legal twin, the version both are linted for, and words of the message."""

    rule: str
    illegal: str
    legal: str
    says: str = ""
    nki: str = "0.7"
    header: str | None = None
    arch: str | None = None


def kernel(body, arguments="x"):
    """A launched kernel around a body."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    output = "y = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)"
    return f"@nki.jit\ndef kernel({arguments}):\n    {output}\n{lines}\n    return y\n"


SBUF = "nl.float32, buffer=nl.sbuf"
TURN = "\n    nisa.dma_copy(dst=t, src=x[i])\n    nisa.dma_copy(dst=y, src=t)"


def carried(loop, update):
    """acc updated in each of 8 turns."""
    return kernel(
        f"acc = nl.zeros((128, 512), nl.float32, buffer=nl.sbuf)\n"
        f"for i in {loop}(8):\n"
        f"    t = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)\n"
        f"    nisa.dma_copy(dst=t, src=x[i])\n"
        f"    {update}\n"
        f"nisa.dma_copy(dst=y, src=acc)"
    )


def products(accumulate, before=""):
    """Four products into one PSUM tile."""
    return kernel(
        "a = nl.load(x)\n"
        "p = nl.ndarray((128, 64), nl.float32, buffer=nl.psum)\n"
        f"{before}"
        "for k in range(4):\n"
        f"    nisa.nc_matmul(dst=p, stationary=a, moving=a{accumulate})\n"
        "nisa.tensor_copy(dst=a, src=p)"
    )


def edges(load, store):
    """A loop over rows with a ragged last tile."""
    return kernel(
        "for i in range(0, x.shape[0], 128):\n"
        "    n = min(128, x.shape[0] - i)\n"
        "    t = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)\n"
        f"    nisa.dma_copy(dst=t[:n], src=x[i : {load}])\n"
        f"    nisa.dma_copy(dst=y[i : {store}], src=t)"
    )


ADD = "nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.add)"
DECAY = "nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.subtract)"
PINNED = """
a = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf, address=(0, 0))
b = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf, address=(0, {byte}))
nisa.memset(dst=a, value=0.0)
nisa.memset(dst=b, value=0.0)
nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
"""
UNROLLED = """
a = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
for i in range({turns}):
    for j in range(16):
        nisa.memset(dst=a, value=0.0)
"""
PAIRS = [
    Pair("NKI101", kernel("nisa.dma_copie(dst=y, src=x)"), kernel("nisa.dma_copy(dst=y, src=x)"), "did you mean"),
    Pair("NKI101", kernel("m = nisa.dge_mode.hardware"), kernel("m = nisa.dge_mode.hwdge"), "dge_mode.hardware"),
    Pair("NKI101", kernel("n = nl.tile_size.qmax"), kernel("n = nl.tile_size.pmax"), "tile_size.qmax"),
    Pair("NKI102", kernel("nl.fori_loop(0, 4, f)"), kernel("nl.static_range(4)"), "comes with NKI 0.6", nki="0.5"),
    Pair("NKI102", kernel("t = nl.load(x)"), kernel("t = nl.ndarray(x)"), "comes with NKI 0.3", nki="0.2"),
    Pair("NKI103", kernel("i = nl.arange(128)"), kernel("i = nl.ds(0, 128)"), "nl.arange is gone since NKI 0.1"),
    Pair("NKI103", "nki.simulate_kernel(f, 1)\n", "nki.simulate(f)(1)\n", "simulate_kernel"),
    Pair("NKI103", kernel("for i in nl.dynamic_range(4): pass"), kernel("for i in range(4): pass"), "dynamic_range"),
    Pair("NKI104", kernel("for i in nl.affine_range(4): pass"), kernel("for i in range(4): pass"), "since NKI 0.6"),
    Pair("NKI104", kernel("e = nisa.vector_engine"), kernel("e = nisa.engine.vector"), "deprecated"),
    Pair("NKI105", kernel("t = nl.load(x, mask=x)"), kernel("t = nl.load(x)"), "nl.load has no mask since NKI 0.1"),
    Pair(
        "NKI105",
        kernel("nisa.tensor_copy(dst=y, src=x, dtype=nl.float32)"),
        kernel("nisa.tensor_copy(dst=y, src=x)"),
        "dtype",
    ),
    Pair("NKI105", kernel("nisa.register_move(r, imm=1)"), kernel("nisa.register_move(r, src=1)"), "imm"),
    Pair(
        "NKI106",
        kernel("nisa.dma_copy(dst=y, src=x, priority=1)"),
        kernel("nisa.dma_copy(dst=y, src=x)"),
        "takes priority from NKI 0.4 on",
        nki="0.3",
    ),
    Pair("NKI107", kernel("t = nisa.tensor_copy(x)"), kernel("nisa.tensor_copy(y, x)"), "misses src"),
    Pair("NKI107", kernel("nisa.memset(dst=y, fill=0.0)"), kernel("nisa.memset(dst=y, value=0.0)"), "no argument fill"),
    Pair("NKI107", kernel("nisa.memset(y, 0.0, dst=y)"), kernel("nisa.memset(y, 0.0)"), "gets dst twice"),
    Pair("NKI108", "import neuronxcc.nki.language\n", "import nki.language\n", "namespace of the Beta", header=""),
    Pair("NKI109", "from neuronxcc import nki\n", "import nki\n", "namespace of the Beta", nki="0.3", header=""),
    Pair("NKI110", "from nki.isa.constants import oob_mode\n", "from nki.isa import oob_mode\n", "documented nowhere"),
    Pair(
        "NKI111",
        kernel("nisa.dma_copy(dst=y, src=x, dge_mode=2)"),
        kernel("nisa.dma_copy(dst=y, src=x, dge_mode=nisa.dge_mode.hwdge)"),
        "got 2",
    ),
    Pair(
        "NKI111",
        kernel("t = nl.zeros((1, 2), nl.int8, buffer='sbuf')"),
        kernel("t = nl.zeros((1, 2), nl.int8)"),
        "got 'sbuf'",
    ),
    Pair(
        "NKI112",
        kernel("z = nl.ndarray((128, 64), nl.float32, buffer=nl.hbm)\nreturn z"),
        kernel("z = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)\nreturn z"),
        "nl.hbm",
    ),
    Pair(
        "NKI113",
        "@nki.jit\ndef inner(x):\n    return x\n\n" + kernel("inner(x)"),
        "def inner(x):\n    return x\n\n" + kernel("inner(x)"),
        "inner is decorated",
    ),
    Pair("NKI114", "@nki.jit(mode='trace')\ndef f(x): pass\n", "@nki.jit\ndef f(x): pass\n", "ignores mode"),
    Pair("NKI115", kernel("t = nl.divide(x, x)"), kernel("t = nl.reciprocal(x)"), "simulation only"),
    Pair(
        "NKI116",
        kernel("t = nl.ndarray((128, 64), nl.float32)\nt.permute((0, 1))"),
        kernel("t = nl.ndarray((128, 64), nl.float32)\nt.reshape((128, 64))"),
        "from NKI 0.5 on",
        nki="0.3",
    ),
    Pair(
        "NKI117",
        kernel("z = nl.ndarray((128, 64), nl.float32)\nreturn z"),
        kernel("z = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)\nreturn z"),
        "nl.sbuf",
    ),
    Pair("NKI201", kernel("if x is y: pass"), kernel("if x == y: pass"), "rejected", nki="0.6"),
    Pair("NKI202", kernel("if x is None: pass"), kernel("if x == None: pass"), "None", nki="0.3"),
    Pair("NKI203", kernel("pass", "x, *, eps"), kernel("pass", "x, eps"), "eps by keyword only", nki="0.4"),
    Pair("NKI204", kernel("pass", "x: list"), kernel("pass", "x: tuple"), "x as a list", nki="0.6"),
    Pair("NKI205", kernel("try: pass\nfinally: pass"), kernel("assert x"), "try", nki="0.6"),
    Pair("NKI206", kernel("t = sum(i for i in range(4))"), kernel("t = 6"), "generator", nki="0.6"),
    Pair("NKI207", kernel("f = lambda i: i"), kernel("def f(i): return i"), "lambda", nki="0.6"),
    Pair("NKI208", kernel("t = [i for i in range(4)]"), kernel("t = [0, 1]"), "comprehension", nki="0.6"),
    Pair("NKI209", kernel("pass", "*x"), kernel("pass", "x"), "takes *x", nki="0.6"),
    Pair(
        "NKI210",
        "def f(n):\n    nisa.memset(n, 0.0)\n    f(n - 1)\n",
        "def f(n):\n    nisa.memset(n, 0.0)\n    g(n - 1)\n",
        "f calls itself",
        nki="0.6",
    ),
    Pair("NKI211", kernel("t = {1: x}"), kernel("t = {'one': x}"), "key 1", nki="0.6"),
    Pair(
        "NKI212",
        "class C:\n    pass\n\n" + kernel("c = C()"),
        "class C(nl.NKIObject):\n    pass\n\n" + kernel("c = C()"),
        "C is made",
        nki="0.6",
    ),
    Pair(
        "NKI213",
        "import numpy as np\n" + kernel("t = nl.load(x)\nnp.exp(t)"),
        "import numpy as np\n" + kernel("t = nl.load(x)\nnl.exp(t)\nnp.prod((1, 2))"),
        "numpy.exp",
    ),
    Pair(
        "NKI214",
        kernel("t = nl.load(x)\nif t[0, 0] > 0: pass"),
        kernel("t = nl.load(x)\nif t.shape[0] > 0: pass"),
        "values of t",
    ),
    Pair("NKI214", kernel("t = nl.load(x)\nwhile t: pass"), kernel("t = nl.load(x)\nif t: pass"), "values of t"),
    Pair(
        "NKI214",
        kernel("n = x.shape[0]\nwhile x[0, 0] > 0: pass"),
        kernel("n = x.shape[0]\nwhile n > 128: n -= 128"),
        "values of x",
    ),
    Pair("NKI211", kernel("t = nl.load(x)\nd = {t[0, 0]: 1}"), kernel("d = {'a': x}"), "key t[0, 0]", nki="0.6"),
    Pair("NKI215", kernel("t = nl.load(x)\nf'{t}'"), kernel("t = nl.load(x)\nf'{t.shape}'"), "shows t", nki="0.6"),
    Pair(
        "NKI301",
        kernel(f"t = nl.ndarray((128, 128), {SBUF})\nv = t.reshape((128, 2, 64))\nnisa.dma_copy(dst=v[:, 0], src=x)"),
        kernel(f"t = nl.ndarray((128, 128), {SBUF})\nnisa.dma_copy(dst=t[:, 0:64], src=x)"),
        "view of t",
    ),
    Pair("NKI302", carried("range", ADD), carried("range", ADD.replace("dst=acc", "dst=t")), "acc, allocated before"),
    Pair(
        "NKI303",
        kernel(f"t = nl.ndarray((128, 64), {SBUF})\nfor i in range(4):{TURN}"),
        kernel(f"for i in range(4):\n    t = nl.ndarray((128, 64), {SBUF}){TURN}"),
        "the loop at line",
    ),
    Pair(
        "NKI301",
        kernel("t = nl.load(x)\nu = t.reshape((128, 2, 32))\nnisa.dma_copy(dst=y, src=u[:, 1])"),
        kernel("t = nl.load(x)\nnisa.dma_copy(dst=y, src=t[:, 32:64])"),
        "view of t",
    ),
    Pair("NKI302", carried("range", "acc[...] = nl.add(acc[...], t)"), carried("range", "u = nl.add(acc, t)"), "acc"),
    Pair("NKI302", carried("range", "acc[...] += t"), carried("range", "t[...] += acc"), "acc"),
    Pair(
        "NKI303",
        kernel(f"t = nl.ndarray((128, 64), {SBUF})\nfor i in nl.sequential_range(4):\n    t[...] = nl.load(x[i])\n"
        "    for j in nl.affine_range(2):\n        nl.store(y[j], t)"),
        kernel("for i in nl.sequential_range(4):\n    t = nl.load(x[i])\n    nl.store(y, t)"),
        "t, allocated at line",
        nki="beta",
    ),
    Pair("NKI304", carried("nl.affine_range", DECAY), carried("nl.sequential_range", DECAY), "acc", "beta", BETA),
    Pair("NKI305", carried("nl.affine_range", ADD), carried("nl.sequential_range", ADD), "carried", "beta", BETA),
    Pair("NKI305", carried("nl.affine_range", DECAY), carried("range", DECAY), "acc is carried"),
    Pair(
        "NKI306",
        products(", accumulate=True", "nisa.memset(dst=p, value=0.0)\n"),
        products(", accumulate=k > 0"),
        "nisa.memset wrote",
    ),
    Pair("NKI306", products(", accumulate=True"), products(""), "which nothing wrote"),
    Pair(
        "NKI307",
        kernel("t = nl.load(x)\nu = t[t > 0]"),
        kernel("t = nl.load(x)\nu = nl.where(nl.greater(t, 0), t, t)"),
        "indexed by the values of t",
    ),
    Pair(
        "NKI307",
        kernel("t = nl.load(x)\nkeep = nl.greater(t, 0)\nu = t[keep]"),
        kernel("t = nl.load(x)\nkeep = nl.greater(t, 0)\nu = nl.multiply(t, keep)"),
        "values of keep",
    ),
    Pair(
        "NKI307",
        kernel("t = nl.load(x)\nfor i in range(t): pass"),
        kernel("t = nl.load(x)\nfor i in range(t.shape[0]): pass"),
        "values of t",
    ),
    Pair("NKI308", edges("i + n", "i + 128"), edges("i + n", "i + n"), "from i to i + 128"),
    Pair(
        "NKI308",
        kernel("for i in range(4):\n    t = nl.load(x[i], mask=i < 3)\n    nl.store(y[i], t)"),
        kernel("for i in range(4):\n    t = nl.load(x[i], mask=i < 3)\n    nl.store(y[i], t, mask=i < 3)"),
        "no mask",
        "beta",
        BETA,
    ),
    Pair(
        "NKI309",
        kernel(f"t = nl.ndarray((128, 64), {SBUF})"),
        kernel(f"t = nl.ndarray((128, 64), {SBUF})\nnisa.dma_copy(dst=t, src=x)"),
        "t is allocated",
    ),
    Pair(
        "NKI310",
        kernel("for i in nl.dynamic_range(3):\n    for j in nl.dynamic_range(4): pass"),
        kernel("for i in nl.dynamic_range(3):\n    for j in range(4): pass"),
        "inside the one at line",
        nki="0.5",
    ),
    Pair(
        "NKI310",
        "def inner(i): pass\ndef outer(i):\n    nl.fori_loop(0, 4, inner)\n\n" + kernel("nl.fori_loop(0, 3, outer)"),
        "def inner(i): pass\ndef outer(i): pass\n\n" + kernel("nl.fori_loop(0, 3, outer)\nnl.fori_loop(0, 4, inner)"),
        "inside the one at line",
    ),
    Pair(
        "NKI311",
        kernel("with nl.no_reorder():\n    nl.fori_loop(0, 4, f)"),
        kernel("nl.fori_loop(0, 4, f)"),
        "nl.fori_loop sits inside",
    ),
    Pair(
        "NKI312",
        kernel("nisa.activation(dst=y, op=nl.copy, data=x, bias=x)"),
        kernel("nisa.activation(dst=y, op=nl.exp, data=x, bias=x)"),
        "adds a bias",
    ),
    Pair(
        "NKI313",
        kernel("t = nl.load(x)\nnisa.dma_copy(dst=y, src=x[t[:, 0]])"),
        kernel("t = nl.load(x)\nnisa.dma_copy(dst=y, src=x.ap([[1, 1]], vector_offset=t))"),
        "by the tile t",
    ),
    Pair(
        "NKI320",
        kernel(f"a = nl.ndarray((128, 40000), {SBUF})\nb = nl.ndarray((128, 40000), {SBUF})\n"
        "nisa.memset(dst=a, value=0.0)\nnisa.memset(dst=b, value=0.0)\nnisa.tensor_copy(dst=a, src=b)"),
        kernel(f"a = nl.ndarray((128, 40000), {SBUF})\nb = nl.ndarray((128, 40000), {SBUF})\n"
        "nisa.memset(dst=a, value=0.0)\nnisa.memset(dst=b, value=0.0)"),
        "320,000 bytes a partition live in SBUF",
    ),
    Pair(
        "NKI314",
        kernel(f"t = nl.ndarray((128, 64), {SBUF})\nnisa.dma_copy(dst=y, src=t)"),
        kernel(f"t = nl.ndarray((128, 64), {SBUF})\nnisa.memset(dst=t, value=0.0)\nnisa.dma_copy(dst=y, src=t)"),
        "reads t, which nothing writes",
    ),
    Pair(
        "NKI322",
        kernel("p = nl.ndarray((128, 513), nl.float32, buffer=nl.psum)"),
        kernel("p = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)\nq = nl.ndarray((4, 1024), nl.int32, nl.psum)"),
        "2,052 bytes",
        arch="trn2",
    ),
    Pair(
        "NKI323",
        kernel(PINNED.format(byte=192)),
        kernel(PINNED.format(byte=256)),
        "b and a share 64 bytes",
    ),
    Pair("NKI321", kernel(UNROLLED.format(turns=10000)), kernel(UNROLLED.format(turns=10)), "about 160,000"),
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.rule}-{pair.says or pair.nki}")
def test_a_rule_finds_its_breach_and_leaves_the_twin_alone(lint_text, pair):
    given = {"nki": pair.nki, "arch": pair.arch} | ({} if pair.header is None else {"header": pair.header})
    found = [each for each in lint_text(pair.illegal, **given) if each.rule == pair.rule]
    assert found, "the breach was not found"
    assert pair.says in found[0].message and found[0].severity == RULES[pair.rule].severity
    assert found[0].line > 0 and found[0].column > 0 and found[0].hint
    assert pair.rule not in {each.rule for each in lint_text(pair.legal, **given)}


def test_every_rule_has_a_pair():
    assert {pair.rule for pair in PAIRS} == set(RULES)


def test_rules_say_what_why_and_how_to_fix_it():
    for rule in RULES.values():
        assert rule.title and rule.fix and rule.check.__doc__, rule.id
        assert rule.severity in ("error", "warning", "note")
        assert rule.why[0].islower() or rule.why[0].isupper()


@pytest.mark.parametrize("rule", [each for each in RULES.values() if each.until], ids=lambda rule: rule.id)
def test_a_rule_that_ends_is_silent_from_then_on(lint_text, rule):
    pair = next(each for each in PAIRS if each.rule == rule.id)
    given = {} if pair.header is None else {"header": pair.header}
    last = f"{rule.until[0]}.{rule.until[1]}"
    assert rule.id not in {each.rule for each in lint_text(pair.illegal, nki=last, **given)}
