import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch

from kernels_neuron.sim.threads import torch_on_one_thread


def test_torch_has_one_thread_inside_and_its_own_number_after_launches_that_overlap():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        inside, both = [], Barrier(2)

        def launch():
            with torch_on_one_thread():
                both.wait(timeout=30)
                inside.append(torch.get_num_threads())

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(launch), pool.submit(launch)]:
                done.result()
        assert inside == [1, 1]
        with torch_on_one_thread(), torch_on_one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_run_without_torch_does_not_import_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    with torch_on_one_thread():
        assert "torch" not in sys.modules
