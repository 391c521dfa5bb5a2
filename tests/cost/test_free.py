import numpy as np
import pytest

from kernels_neuron.cost.free import TABLE_LOAD
from kernels_neuron.cost.profile import profile


def saved(found):
    return {(each.part, each.name): each.saved_us for each in found.would_help}


def test_a_kernel_that_only_moves_data_is_helped_by_free_transfers_alone(kernels):
    found = profile(kernels.copy, np.ones((128, 2048), np.float32))
    helped = saved(found)
    assert {part for part, _ in helped} == {"engine", "instruction", "line"}
    assert helped["engine", "dma"] > 0.9 * found.body_us
    assert helped["instruction", "dma_copy load"] + helped["instruction", "dma_copy store"] == pytest.approx(
        helped["engine", "dma"], rel=0.05
    )


def test_what_is_off_the_path_helps_nothing(kernels):
    found = profile(kernels.spread, np.ones((128, 4096), np.float32))
    assert saved(found)["engine", "vector"] > 0  # seven copies before the one that is stored
    chain = profile(kernels.chain, np.ones((128, 4096), np.float32))
    assert saved(chain)["engine", "vector"] > saved(found)["engine", "vector"]


def test_the_candidates_come_by_what_they_save(kernels):
    found = profile(kernels.functions, np.ones((128, 512), np.float32))
    order = [each.saved_us for each in found.would_help]
    assert order == sorted(order, reverse=True) and order[0] <= found.body_us
    assert all(each.share == pytest.approx(each.saved_us / found.body_us) for each in found.would_help)


def test_free_table_loads_save_their_time_where_they_are_waited_for(kernels):
    found = profile(kernels.functions, np.ones((128, 512), np.float32))
    load_us = found.arch.act_table_load_ns / 1e3
    # the first load hides behind the wait for the input, the second one behind the tail of exp alone
    assert 0.8 * load_us < saved(found)["instruction", TABLE_LOAD] < load_us


def test_nothing_is_free_in_the_profile_itself(kernels):
    found = profile(kernels.functions, np.ones((128, 512), np.float32))
    before = found.body_us
    assert found.would_help is found.would_help and found.body_us == before
