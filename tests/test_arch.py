import io
import re
import tokenize
from dataclasses import fields
from pathlib import Path

import pytest

import kernels_neuron.arch
from kernels_neuron.arch import CHIPS, DEFAULT_DGE, DEFAULT_ENGINE, chip, default_chip
from kernels_neuron.errors import UsageError

SOURCE = Path(kernels_neuron.arch.__file__).read_text()
TAGS = (
    "[arch2]",
    "[arch3]",
    "[arch4]",
    "[isa]",
    "[dma]",
    "[trace]",
    "[read]",
    "assumed",
    "vendor kernel library",
    "none documented",
)
# lines that hold a number which is arithmetic, a name or derived from sourced ones
DERIVED = ("KIB: Final", "generation=", "validated=", "sbuf_fmax", "psum_fmax", "psum_bank_fmax", "return ", '": ')


def lines_with_numbers():
    numbers, comments = {}, {}
    for token in tokenize.generate_tokens(io.StringIO(SOURCE).readline):
        if token.type == tokenize.NUMBER:
            numbers.setdefault(token.start[0], token.line.strip())
        elif token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string
    return [(number, line, comments.get(last_line(number, comments), "")) for number, line in numbers.items()]


def last_line(number, comments):
    """Where the explanation of line `number` stands: there, or where the nested call or sum that it belongs to ends."""
    lines = SOURCE.splitlines()
    unfinished = lines[number - 1].startswith(" " * 8) or not lines[number - 1].rstrip().endswith(",")
    return number + 1 if number not in comments and unfinished else number


@pytest.mark.parametrize(("number", "line", "comment"), lines_with_numbers(), ids=lambda value: str(value)[:40])
def test_every_number_says_where_it_comes_from(number, line, comment):
    if any(line.startswith(word) or word in line for word in DERIVED):
        return
    assert any(tag in comment for tag in TAGS), f"arch.py:{number}: {line}"


# the sources in falling confidence
CONFIDENCE = {
    "measured": ("[trace]",),
    "documented": ("[arch2]", "[arch3]", "[arch4]", "[isa]", "[dma]", "vendor kernel library", "none documented"),
    "read": ("[read]",),
    "assumed": ("assumed",),
}


def test_every_tag_has_a_confidence():
    assert sorted(TAGS) == sorted(tag for tags in CONFIDENCE.values() for tag in tags)


def test_the_docstring_names_the_tags_that_are_used():
    named = {tag for tag in TAGS if tag.startswith("[") and tag in kernels_neuron.arch.__doc__}
    assert named == {tag for tag in TAGS if tag.startswith("[")}


def test_a_tag_that_nobody_explains_is_not_used():
    assert set(
        re.findall(r"\[[a-z]+[0-9]?\](?=[ ,;.)]|$)", "\n".join(comment for _, _, comment in lines_with_numbers()))
    ) <= set(TAGS)


@pytest.mark.parametrize("table", ["DEFAULT_ENGINE", "DEFAULT_DGE"])
def test_every_line_of_what_a_kernel_leaves_open_has_a_source(table):
    start = SOURCE.index(f"{table}: Final = {{")
    lines = [line for line in SOURCE[start : SOURCE.index("\n}", start)].splitlines()[1:] if '": ' in line]
    assert len(lines) == len(getattr(kernels_neuron.arch, table))
    for line in lines:
        assert any(tag in line.partition("#")[2] for tag in TAGS), line.strip()


def test_what_a_kernel_leaves_open_is_decided_in_one_place():
    """Every instruction whose engine or dge_mode defaults to unknown asks the tables, and no engine is named beside."""
    engines = {"tensor", "vector", "scalar", "gpsimd", "sync"}
    assert set(DEFAULT_ENGINE.values()) <= engines and set(DEFAULT_DGE.values()) <= {"hw", "sw", "none"}
    package = Path(kernels_neuron.arch.__file__).parent / "sim" / "isa"
    used = {
        key for path in package.glob("*.py") for key in re.findall(r"DEFAULT_DGE\[f?\"([^\"]*)\"", path.read_text())
    }
    assert {"row index", "cast"} <= used


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_is_consistent(name):
    arch = chip(name)
    assert arch.sbuf_usable_partition_bytes < arch.sbuf_partition_bytes
    assert arch.psum_banks * arch.psum_bank_bytes == arch.psum_partition_bytes
    assert arch.partitions == 128
    for engine in ("tensor", "vector", "scalar", "gpsimd", "sync"):
        timing = arch.engine(engine)
        assert all(getattr(timing, field.name) >= 0 for field in fields(timing)) and timing.ghz > 0


def test_capacities_are_those_of_the_manuals():
    assert [chip(name).sbuf_partition_bytes // 1024 for name in ("trn1", "trn2", "trn3")] == [192, 224, 256]
    assert [chip(name).moving_fmax for name in ("trn1", "trn2", "trn3")] == [512, 512, 4096]


def test_only_trn3_is_not_validated():
    assert [name for name, arch in CHIPS.items() if not arch.validated] == ["trn3"]


@pytest.mark.parametrize(("alias", "name"), [("inf2", "trn1"), ("gen2", "trn1"), ("gen3", "trn2"), ("gen4", "trn3")])
def test_aliases_name_the_same_chip(alias, name):
    assert chip(alias) is chip(name)


def test_an_unknown_chip_is_refused():
    with pytest.raises(UsageError, match="trn9"):
        chip("trn9")


def test_default_chip_follows_the_environment(monkeypatch):
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    assert default_chip().name == "trn2"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen4")
    assert default_chip().name == "trn3"


def test_default_engines_exist():
    assert set(DEFAULT_ENGINE.values()) <= {"tensor", "vector", "scalar", "gpsimd", "sync"}
