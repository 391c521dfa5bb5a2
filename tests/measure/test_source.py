import time

import numpy as np
import pytest

from kernels_neuron.errors import UsageError
from kernels_neuron.measure.source import TimeLimit, load_function, make_arguments, time_limit

KERNEL = """
import nki
from helper import FACTOR

@nki.jit
def double(x, factor=FACTOR, *, name=None):
    return x

number = 3
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "helper.py").write_text("FACTOR = 2.0\n")
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    return path


def test_a_function_is_loaded_with_its_neighbours(file):
    assert load_function(f"{file}:double").__name__ == "double"


def test_relative_imports_work_and_the_package_itself_is_not_run(tmp_path):
    package = tmp_path / "kernels" / "scale"
    (tmp_path / "kernels" / "common").mkdir(parents=True)
    package.mkdir()
    (tmp_path / "kernels" / "common" / "sizes.py").write_text("WIDTH = 7\n")
    (package / "__init__.py").write_text("raise RuntimeError('not to be run')\n")
    (package / "kernel.py").write_text("from ..common.sizes import WIDTH\n\ndef width():\n    return WIDTH\n")
    assert load_function(f"{package / 'kernel.py'}:width")() == 7


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("kernel.py", "FILE.py:FUNC"),
        ("nowhere.py:double", "there is no"),
        ("{file}:doubel", "did you mean 'double'"),
        ("{file}:number", "no function"),
    ],
)
def test_a_target_that_is_not_there_is_refused(file, target, words):
    with pytest.raises(UsageError, match=words):
        load_function(target.format(file=file))


def test_a_file_that_cannot_run_names_its_line(tmp_path):
    (tmp_path / "bad.py").write_text("x = 1\nundefined()\n")
    with pytest.raises(UsageError, match=r"bad\.py:2: NameError"):
        load_function(f"{tmp_path / 'bad.py'}:f")
    (tmp_path / "worse.py").write_text("def f(:\n")
    with pytest.raises(UsageError, match=r"worse\.py:1"):
        load_function(f"{tmp_path / 'worse.py'}:f")


def test_inputs_become_arrays_and_values_numbers(file):
    given = make_arguments(load_function(f"{file}:double"), ["x=4x8:bfloat16"], ["factor=3", "name=fast"])
    assert given["x"].shape == (4, 8) and given["x"].dtype.name == "bfloat16"
    assert given["factor"] == 3 and given["name"] == "fast"
    assert np.isfinite(given["x"].astype(np.float32)).all()


@pytest.mark.parametrize(
    ("inputs", "values", "words"),
    [
        ([], [], "needs x"),
        (["x=4x8:bf16"], [], "no dtype for bf16"),
        (["x=4,8"], [], "NAME=SHAPE:DTYPE"),
        (["x=0x8"], [], "no elements"),
        (["x=999999x999999"], [], "bytes, more than"),
        (["x=4", "x=4"], [], "twice"),
        (["y=4"], [], "unknown parameter 'y'"),
        (["x=4"], ["factor"], "NAME=VALUE"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(file, inputs, values, words):
    with pytest.raises(UsageError, match=words):
        make_arguments(load_function(f"{file}:double"), inputs, values)


def test_a_time_limit_stops_the_work_and_says_so():
    with pytest.raises(TimeLimit, match=r"stopped after 0\.05 s"), time_limit(0.05):
        time.sleep(5)
    with time_limit(None):
        pass
    with pytest.raises(UsageError), time_limit(0):
        pass
