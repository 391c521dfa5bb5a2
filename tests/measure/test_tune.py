"""The search for tiles, on the kernel of docs/tuning.md."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernels_neuron.errors import KernelsNeuronError, UsageError
from kernels_neuron.flows.tune import tune_kernel
from kernels_neuron.measure.cases import Filter
from kernels_neuron.measure.executors import dask_executor
from kernels_neuron.measure.journal import Journal, Price
from kernels_neuron.measure.tune import above, drawn
from kernels_neuron.spec import Spec
from kernels_neuron.tiles import TUNED, read_rows

ONE = Filter.of(dtypes=["bfloat16"], archs=["trn2"], lncs=[1])
BOTH = Filter.of(dtypes=["bfloat16"], archs=["trn2"], lncs=[1, 2])


def search(keep=ONE, **options):
    return tune_kernel("swish", keep, **{"budget": 100, "workers": 1, **options})


def table_of(folder):
    return read_rows(folder / TUNED, Spec.read(folder).tune)


def change(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_the_best_legal_candidate_is_verified_and_written(tunable):
    done = search()
    [row] = done.rows
    assert row.verdict == "faster" and row.tiles["free"] in (1024, 2048)
    assert row.after_us < row.before_us * 0.995 and row.error <= 1
    assert row.priced == 5 and row.illegal == {}
    assert table_of(tunable) == [row.row] and done.written == tunable / TUNED


def test_a_row_covers_the_sizes_between_the_same_powers_of_two(tunable):
    [row] = search().rows
    assert row.at == {"N": 1024, "H": 2048}
    assert row.sizes == {"N": (513, 1024), "H": (1025, 2048)}


def test_what_was_written_is_what_runs_next_time_and_is_not_beaten_again(tunable):
    [first] = search().rows
    [second] = search().rows
    assert second.verdict == "kept" and second.before_us == first.after_us
    assert table_of(tunable) == [first.row]


def test_illegal_candidates_are_counted_by_the_rule_they_break(tunable):
    change(tunable / "spec.toml", "H    = 2048", "H    = 200000")
    change(tunable / "spec.toml", "N    = 1024", "N    = 2")
    [row] = search(Filter.of(dtypes=["float32"], archs=["trn2"], lncs=[1])).rows
    assert row.illegal == {"sbuf-capacity": 1}


def test_a_candidate_that_misses_the_reference_is_never_written(tunable):
    kernel = tunable / "kernel.py"
    change(kernel, "operand0=scale)", "operand0=scale if free == 512 else 0.0)")
    done = search()
    [row] = done.rows
    assert row.verdict == "missed" and row.row is None and "times what is allowed" in row.problem
    assert done.written is None and table_of(tunable) == []


def test_the_next_best_wins_where_the_best_misses(tunable):
    [best] = search(write=False).rows
    change(tunable / "kernel.py", "operand0=scale)", f"operand0=scale if free != {best.tiles['free']} else 0.0)")
    [row] = search().rows
    assert row.verdict == "faster" and row.tiles != best.tiles and row.after_us >= best.after_us


def test_a_row_that_would_be_slower_elsewhere_in_its_class_covers_its_own_sizes(tunable):
    wide = "free <= 65536"
    change(tunable / "spec.toml", "H    = 2048", "H    = 1500")
    kernel = tunable / "kernel.py"
    # 2047 and 2048 columns are slow unless tiles are as narrow as the kernel's own
    change(kernel, '["free"]\n', '["free"]\n    free = free if width == 1500 or free == 512 else 64\n')
    assert wide in (tunable / "spec.toml").read_text()
    [row] = search().rows
    assert row.sizes == {"N": (1024, 1024), "H": (1500, 1500)}


def test_a_budget_draws_the_same_candidates_each_time(tunable):
    spec = Spec.read(tunable)
    few = drawn(spec, {"N": 1, "H": 1}, 3)
    assert len(few) == 3 and few == drawn(spec, {"N": 1, "H": 1}, 3)
    assert [tiles for tiles in drawn(spec, {"N": 1, "H": 1}, 100) if tiles in few] == few


def test_an_interrupted_search_keeps_what_was_priced(tunable, tmp_path):
    seen = []

    def interrupt(done, of):
        seen.append((done, of))
        raise KeyboardInterrupt

    path = tmp_path / "journal.jsonl"
    with pytest.raises(KeyboardInterrupt):
        search(BOTH, journal=path, on_priced=interrupt)
    assert seen == [(5, 10)]
    assert len(path.read_text().splitlines()) == 5
    path.write_text(path.read_text() + '{"made_from": "half a li')
    resumed = []
    rows = search(BOTH, journal=path, on_priced=lambda done, of: resumed.append((done, of)), write=False).rows
    assert resumed[-1] == (10, 10) and resumed[0][0] > 5 - 1
    assert rows == search(BOTH, journal=tmp_path / "fresh.jsonl", write=False).rows


def test_prices_of_other_sources_do_not_count(tmp_path):
    path = tmp_path / "journal.jsonl"
    price = Price("swish/large/bfloat16/trn2/lnc1", {"free": 512}, body_us=3.0)
    Journal(path, "a").add([price])
    assert list(Journal(path, "a").prices.values()) == [price]
    assert Journal(path, "b").prices == {}


def test_any_executor_gives_the_same_rows(tunable):
    here = search(BOTH, write=False).rows
    with ThreadPoolExecutor(2) as pool:
        there = search(BOTH, executor=pool, write=False, journal=tunable / "other.jsonl").rows
    assert there == here


def test_a_kernel_that_declares_nothing_is_refused(tunable):
    spec = tunable / "spec.toml"
    text = spec.read_text()
    spec.write_text(text[: text.index("[tune]")] + text[text.index("[inputs]") :])
    with pytest.raises(UsageError, match="declares no tile parameters"):
        search()


def test_a_kernel_that_is_illegal_as_it_ships_cannot_be_tuned(tunable):
    change(tunable / "kernel.py", '{"free": 512}', '{"free": 200000}')
    change(tunable / "spec.toml", "H    = 2048", "H    = 200000")
    with pytest.raises(KernelsNeuronError, match="does not run with the tiles it ships with: free-size"):
        search()


@pytest.mark.parametrize(("size", "power"), [(1, 1), (2, 2), (3, 4), (197, 256), (1024, 1024)])
def test_a_class_ends_at_a_power_of_two(size, power):
    assert above(size) == power


# ---- workers that die


MANY = "free  = [" + ", ".join(str(free) for free in range(256, 2048, 32)) + "]"


@pytest.fixture
def many(tunable):
    """The kernel with 56 candidates a task."""
    change(tunable / "spec.toml", "free  = [512, 1024, 2048, 4096, 65536]", MANY)
    return tunable


@pytest.mark.slow
def test_a_killed_worker_of_the_local_pool_loses_nothing(many):
    from concurrent.futures.process import ProcessPoolExecutor

    killed = []
    start = ProcessPoolExecutor.submit

    def kill_one(done, of):
        if not killed and pools:
            killed.append(next(iter(pools[-1]._processes)))
            os.kill(killed[0], signal.SIGKILL)

    pools = []

    def submit(self, *args, **kwargs):
        if self not in pools:
            pools.append(self)
        return start(self, *args, **kwargs)

    ProcessPoolExecutor.submit = submit
    try:
        rows = search(BOTH, workers=2, on_priced=kill_one, write=False).rows
    finally:
        ProcessPoolExecutor.submit = start
    assert killed and len(pools) > 2  # pricing began again in a fresh pool, and verifying had one of its own
    assert rows == search(BOTH, journal=many / "fresh.jsonl", write=False).rows


@pytest.mark.slow
def test_a_dask_cluster_of_two_gives_the_same_rows_though_a_worker_is_killed(many):
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, memory_limit="3GiB") as cluster,
        dask_executor(cluster.scheduler_address) as executor,
    ):
        victim = next(iter(cluster.workers.values())).pid
        killed = []

        def kill_one(done, of):
            if not killed and done < of:
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)

        rows = search(BOTH, executor=executor, workers=None, on_priced=kill_one, write=False).rows
    assert killed == [victim]
    assert rows == search(BOTH, journal=many / "fresh.jsonl", write=False).rows
    journal = (many.parents[1] / "out" / "tune" / "swish.jsonl").read_text().splitlines()
    assert len(journal) == len({json.dumps([line["task"], line["tiles"]]) for line in map(json.loads, journal)}) == 112


def test_a_scheduler_that_does_not_answer_is_a_usage_error(monkeypatch):
    monkeypatch.setattr("kernels_neuron.measure.executors.CONNECT_S", 0.2)
    with pytest.raises(UsageError, match="no Dask scheduler answers"), dask_executor("tcp://127.0.0.1:9"):
        pass
