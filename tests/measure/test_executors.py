import os

import pytest

from kernels_neuron.errors import UsageError
from kernels_neuron.measure.executors import ONE_THREAD, process_pool, run_all


def threads(number):
    import torch

    return number, torch.get_num_threads(), {name: os.environ.get(name) for name in ONE_THREAD}


def test_rows_come_in_the_order_of_the_tasks_and_are_announced():
    seen = []
    assert run_all(abs, [-3, 2, -1], workers=1, on_row=seen.append) == [3, 2, 1]
    assert seen == [3, 2, 1]


@pytest.mark.slow
def test_workers_have_one_thread_each_and_leave_this_process_alone():
    before = dict(os.environ)
    rows = run_all(threads, [0, 1, 2], workers=2)
    assert [row[0] for row in rows] == [0, 1, 2]
    assert all(row[1] == 1 and set(row[2].values()) == {"1"} for row in rows)
    assert dict(os.environ) == before


def test_no_workers_are_refused():
    with pytest.raises(UsageError, match="at least 1"), process_pool(0):
        pass
