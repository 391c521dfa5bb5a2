"""Calls whose operands the text fixes, judged by the simulator's rules; capacity; what stays open stays unjudged."""

import pytest

TILE = "nl.ndarray({shape}, nl.{dtype}, buffer=nl.{buffer})"


def tile(shape, dtype="float32", buffer="sbuf"):
    return TILE.format(shape=shape, dtype=dtype, buffer=buffer)


def kernel(*lines, arguments="x"):
    body = "\n".join(f"    {line}" for line in lines)
    output = "y = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)"
    return f"@nki.jit\ndef kernel({arguments}):\n    {output}\n{body}\n    return y\n"


def errors(findings):
    """The rules broken; these texts leave tiles unwritten where that is beside the point."""
    return {each.rule for each in findings if each.severity == "error"} - {"NKI314"}


@pytest.mark.parametrize(
    ("size", "arch", "expected"),
    [(512, "trn1", set()), (513, "trn1", {"moving-limit"}), (513, "trn2", {"moving-limit"}), (513, "trn3", set()),
     (4096, "trn3", set())],
)  # fmt: skip
def test_the_moving_free_size_is_held_to_each_chip(lint_text, size, arch, expected):
    text = kernel(
        f"a, b = {tile((128, 128))}, {tile((128, size))}",
        f"p = {tile((128, size), buffer='psum')}",
        "nisa.nc_matmul(dst=p, stationary=a, moving=b)",
    )
    assert errors(lint_text(text, arch=arch)) - {"psum-bank"} == expected


def test_without_a_chip_only_what_every_chip_refuses_is_found(lint_text):
    text = kernel(f"t = {tile((128, 64))}", "nisa.exponential(dst=t, src=t)")
    assert "chip-generation" in errors(lint_text(text, arch="trn2"))
    assert "chip-generation" not in errors(lint_text(text)) | errors(lint_text(text, arch="trn3"))


def test_a_branch_on_the_chip_is_followed_as_the_chip_would(lint_text):
    text = kernel(
        f"t = {tile((128, 64))}",
        "if nisa.get_nc_version() >= nisa.nc_version.gen4:",
        "    nisa.exponential(dst=t, src=t)",
    )
    assert errors(lint_text(text, arch="trn2")) == set()


@pytest.mark.parametrize(
    ("rows", "legal"),
    [("0:128", True), ("32:64", True), ("32:96", False), ("48:56", False), ("64:128", True), ("96:128", True)],
)
def test_start_partitions(lint_text, rows, legal):
    text = kernel(f"t, u = {tile((128, 64))}, {tile((128, 64))}", f"nisa.tensor_copy(dst=u[{rows}], src=t[{rows}])")
    assert errors(lint_text(text)) == (set() if legal else {"start-partition"})


def test_a_shape_is_followed_through_constants_loops_and_the_limits_of_the_chip(lint_text):
    text = "ROWS = 2 * nl.tile_size.pmax\n" + kernel("for i in range(2):", f"    t = {tile('(ROWS // 2 + i, 4)')}")
    (found,) = [each for each in lint_text(text) if each.severity == "error"]
    assert found.rule == "partition-limit" and "129" in found.message


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("nisa.activation(dst=t, op=nl.exp, data=x[0:128])", "data is in HBM"),
        ("nisa.tensor_tensor(dst=t, data1=x, data2=t, op=nl.add)", "data1 is in HBM"),
        ("nisa.nc_matmul(dst=t, stationary=t, moving=t)", "dst in PSUM"),
        ("nisa.nc_matmul(dst=p, stationary=p, moving=t)", "stationary in SBUF"),
        ("nisa.dma_copy(dst=y, src=p)", "PSUM"),
    ],
)
def test_an_operand_in_the_wrong_memory_is_named(lint_text, call, says):
    shapes = (f"t = {tile('x.shape')}", f"p = {tile('x.shape', buffer='psum')}")
    found = [each for each in lint_text(kernel(*shapes, call), ignore=["NKI314"]) if each.severity == "error"]
    assert len(found) == 1 and says in found[0].message, found


def test_arguments_of_helpers_may_lie_anywhere(lint_text):
    assert errors(lint_text("def helper(t, u):\n    nisa.tensor_copy(dst=t, src=u)\n")) == set()


@pytest.mark.parametrize(
    ("sizes", "arch", "fits"),
    [((98568, 98568, 888), "trn1", False), ((80000, 80000, 888), "trn1", True), ((98568, 98568, 888), "trn2", True)],
)
def test_sbuf_capacity_with_each_tile_its_line_the_sum_and_the_limit(lint_text, sizes, arch, fits):
    names = "abc"
    lines = [f"{name} = {tile((128, size), 'uint8')}" for name, size in zip(names, sizes, strict=True)]
    lines += [f"nisa.memset(dst={name}, value=0)" for name in names]
    lines += [f"nisa.tensor_copy(dst=a, src={name})" for name in names[1:]]
    found = [each for each in lint_text(kernel(*lines), arch=arch) if each.rule == "NKI320"]
    assert bool(found) is not fits
    if found:
        assert f"{sum(sizes):,}" in found[0].message and "196,608" in found[0].message
        assert "a (98,568, line 9)" in found[0].message and "c (888, line 11)" in found[0].message


@pytest.mark.parametrize("count", [8, 9])
def test_psum_has_eight_banks(lint_text, count):
    lines = [f"p{i} = {tile((128, 512), buffer='psum')}" for i in range(count)] + [f"s = {tile((128, 512))}"]
    for operand in ("dst=p{i}, src=s", "dst=s, src=p{i}"):
        lines += [f"nisa.tensor_copy({operand.format(i=i)})" for i in range(count)]
    assert ("NKI320" in errors(lint_text(kernel(*lines)))) is (count > 8)


def test_tiles_used_one_after_the_other_share_the_room(lint_text):
    lines = [f"a = {tile((128, 30000))}", f"b = {tile((128, 30000))}"]
    lines += ["nisa.memset(dst=a, value=0.0)", "nisa.memset(dst=b, value=0.0)"]
    assert errors(lint_text(kernel(*lines), arch="trn1")) == set()
    both = "nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)"
    assert errors(lint_text(kernel(*lines, both), arch="trn1")) == {"NKI320"}


def test_a_reshape_across_partitions_is_refused_and_one_of_the_free_axes_is_not(lint_text):
    legal = kernel(f"t = {tile((128, 4, 512))}", "u = t.reshape((128, 2048))")
    illegal = kernel(f"t = {tile((128, 4, 512))}", "u = t.reshape((512, 512))")
    assert errors(lint_text(legal)) == set() and errors(lint_text(illegal)) == {"partition-view"}


@pytest.mark.parametrize(
    "line",
    ["t = nl.ndarray((10 ** 10 ** 10, 4), nl.float32)", "n = 1 << 10 ** 9", "s = 'a' * 10 ** 12",
     "for i in range(10 ** 15): nl.exp(x)", "t = nl.ndarray((0, 4), nl.float32)[()]", "n = [1] * 10 ** 9", "n = -'a'",
     "nl.shared_constant('/etc/passwd')", "n = max()", "n = (1, 2)[5]", "a, *b = range(3)", "del x", "n = 1 // 0"],
)  # fmt: skip
def test_no_arithmetic_of_the_file_can_hurt_the_linter(lint_text, line):
    lint_text(kernel(line))


HELPER = """
def doubled(data, rows, start=0):
    part = data[start : start + rows]
    nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=2.0)
    return rows


"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("doubled(t, 32, 96)", set()),
        ("doubled(t, 32, start=16)", {"start-partition"}),
        ("doubled(t, rows=x.shape[0])", set()),
        ("doubled(t, 200)", {"out-of-bounds"}),
        (f"{tile('(doubled(t, 64) + 65, 4)')}", {"partition-limit"}),
    ],
)
def test_a_function_of_the_file_is_followed_with_what_a_call_hands_it(lint_text, call, expected):
    assert errors(lint_text(HELPER + kernel(f"t = {tile((128, 64))}", call))) == expected


def test_a_helper_that_calls_itself_or_has_another_body_elsewhere_is_not_followed(lint_text):
    text = "def size(n):\n    return size(n - 1)\n\n\n" + kernel(f"t = {tile('(size(200), 4)')}")
    assert errors(lint_text(text)) == set()
    text = "def size():\n    return 200\n\n\ndef size():\n    return 4\n\n\n" + kernel(f"t = {tile('(size(), 4)')}")
    assert errors(lint_text(text)) == set()


def test_a_value_that_one_of_two_branches_returns_is_not_known(lint_text):
    text = "def size(x):\n    if x.shape[0] > 4:\n        return 4\n    return 200\n\n\n" + kernel(
        f"t = {tile('(size(x), 4)')}"
    )
    assert errors(lint_text(text)) == set()
