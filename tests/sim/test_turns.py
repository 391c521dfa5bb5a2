import contextvars

import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.sim.turns import ALONE, Turns

WORD = contextvars.ContextVar("word", default="none")
BOTH = frozenset({0, 1})


def test_programs_run_one_after_another_until_they_meet():
    turns, log = Turns(["a", "b"]), []

    def body(index):
        def run():
            log.append((index, "before"))
            came = turns.meet(index, "here", BOTH, index * 10, "meeting", "x.py:1")
            log.append((index, "after"))
            return came

        return run

    assert turns.run([body(0), body(1)]) == [{0: 0, 1: 10}] * 2
    assert log == [(0, "before"), (1, "before"), (1, "after"), (0, "after")]


def test_context_variables_reach_the_programs():
    WORD.set("caller")
    assert Turns(["a", "b"]).run([WORD.get, WORD.get]) == ["caller", "caller"]


def test_the_first_failure_is_raised_and_the_others_are_unwound():
    turns, unwound = Turns(["a", "b"]), []

    def waits():
        try:
            turns.meet(0, "here", BOTH, None, "meeting", "x.py:1")
        finally:
            unwound.append(True)

    def fails():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        turns.run([waits, fails])
    assert unwound == [True]


def test_two_meetings_of_different_members_do_not_mix():
    turns = Turns(["a", "b", "c", "d"])
    first, second = frozenset({0, 1}), frozenset({2, 3})
    bodies = [
        lambda i=i, members=members: sorted(turns.meet(i, "key", members, None, "meeting", "x.py:1"))
        for i, members in enumerate([first, first, second, second])
    ]
    assert turns.run(bodies) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_who_waits_alone_waits_for_ever():
    turns = Turns(["a", "b"])
    with pytest.raises(KernelError, match=r"a waits in meeting at x.py:1, b has ended"):
        turns.run([lambda: turns.meet(0, "here", BOTH, None, "meeting", "x.py:1"), lambda: None])


def test_a_program_without_partners_meets_itself():
    assert ALONE.meet("key", frozenset({0}), "word", "meeting", "x.py:1") == {0: "word"}
