"""What holds of every timeline, on random plans: queues, waits, transfers and ports of one core and of two."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_neuron.arch import chip
from kernels_neuron.cost.plan import QUEUES, make_plan
from kernels_neuron.cost.switches import chip_without
from kernels_neuron.cost.timeline import ENGINES, replay, split
from kernels_neuron.sim.trace import Price, Transfer

CHIPS = {name: chip(name) for name in ("trn1", "trn2", "trn3")}
ROUNDING = 1e-6
TRANSFERS = [
    Transfer(direction, rows, size, 0, min(rows, 128), dge)
    for direction, rows, size, dge in (
        ("load", 128, 512, "hw"),
        ("load", 128, 4096, "hw"),
        ("store", 128, 1024, "hw"),
        ("load", 4, 8192, "none"),
        ("store", 64, 256, "sw"),
        ("copy", 32, 2048, "hw"),
    )
]


@st.composite
def steps(draw, count=None, rings=("sync", "scalar", "gpsimd")):
    """(engine, price, back): a step and how far back the records lie that it waits for; transfers ride on `rings`."""
    size = draw(st.integers(1, 40)) if count is None else count
    found = []
    for _ in range(size):
        kind = draw(st.sampled_from(["work", "work", "matmul", "weights", "wait", "dma", "function"]))
        issue = float(draw(st.integers(1, 900)))
        if kind == "matmul":
            cycles = draw(st.sampled_from([64, 128, 512]))
            engine, price = "tensor", Price(cycles / 2.4 + 2, cycles / 2.4 + 160, pe_cycles=cycles)
        elif kind == "weights":
            engine, price = "tensor", Price(30.0, 30.0, weights=True)
        elif kind == "wait":
            engine, price = draw(st.sampled_from(["tensor", "scalar", "sync"])), Price(50.0, 40.0, front=True)
        elif kind == "dma":
            transfer = draw(st.sampled_from([each for each in TRANSFERS if each.dge != "sw" or "gpsimd" in rings]))
            engine = "gpsimd" if transfer.dge == "sw" else draw(st.sampled_from([r for r in rings if r != "gpsimd"]))
            price = Price(570.0, 520.0, transfer=transfer)
        elif kind == "function":
            table = draw(st.sampled_from(["exp", "tanh"]))
            engine, price = "scalar", Price(issue, issue + 100, table=table)
        else:
            engine, price = draw(st.sampled_from(["vector", "gpsimd", "scalar"])), Price(issue, issue + 100)
        back = draw(st.lists(st.integers(1, 8), max_size=3))
        found.append((engine, price, back))
    return found


def plan_of(cores, arch, ports=None):
    """A plan of one list of steps per core; a step waits for records of its own core."""
    prices, engines, preds = [], [], []
    for core in cores:
        first = len(prices)
        for index, (engine, price, back) in enumerate(core):
            prices.append(price)
            engines.append(engine)
            preds.append(tuple(sorted({first + index - step for step in back if step <= index})))
    return make_plan(arch, prices, engines, preds, [len(core) for core in cores], ports)


phases = st.floats(0.0, 0.99)
chips = st.sampled_from(sorted(CHIPS))


@given(steps(), chips, phases)
@settings(deadline=None, max_examples=60)
def test_nothing_starts_before_what_it_waits_for_is_visible(given_steps, name, phase):
    plan = plan_of([given_steps], CHIPS[name])
    line = replay(plan, phase)
    for index, before in enumerate(plan.preds):
        wake = CHIPS[name].engine(given_steps[index][0]).wake_ns
        for pred in before:
            assert line.start[index] >= line.seen[pred] + wake - ROUNDING


@given(steps(), chips, phases)
@settings(deadline=None, max_examples=60)
def test_engines_execute_in_program_order(given_steps, name, phase):
    """Starts never go back on one engine, triggers and waits apart, which a front end does ahead of execution."""
    plan = plan_of([given_steps], CHIPS[name])
    line = replay(plan, phase)
    for queue in plan.queues:
        work = [i for i in queue if plan.prices[i].transfer is None and not plan.prices[i].front]
        # weights load under the matmul before them
        streams = [i for i in work if not plan.prices[i].weights]
        for before, after in itertools.pairwise(streams):
            assert line.start[after] >= line.start[before] + plan.prices[before].issue_ns - ROUNDING


@given(steps(), chips, phases)
@settings(deadline=None, max_examples=60)
def test_a_body_is_no_shorter_than_its_busiest_engine_and_than_its_data(given_steps, name, phase):
    arch = CHIPS[name]
    plan = plan_of([given_steps], arch)
    line = replay(plan, phase)
    for position, queue in enumerate(QUEUES[:4]):
        work = [
            plan.prices[i] for i in plan.queues[position] if not plan.prices[i].front and not plan.prices[i].weights
        ]
        assert line.body_ns >= sum(price.issue_ns for price in work[:-1] if price.transfer is None) - ROUNDING, queue
    moved = sum(
        each.transfer.descriptors * each.transfer.descriptor_bytes for each in plan.prices if each.transfer is not None
    )
    assert line.body_ns >= moved / (arch.dma_engines * arch.dma_engine_bytes_per_ns) - ROUNDING


@given(steps(), chips, phases)
@settings(deadline=None, max_examples=60)
def test_no_engine_is_busier_than_the_body_is_long(given_steps, name, phase):
    line = replay(plan_of([given_steps], CHIPS[name]), phase)
    assert set(line.busy) == set(ENGINES)
    assert all(0.0 <= busy <= line.body_ns + ROUNDING for busy in line.busy.values())


@given(steps(), steps(), chips, phases)
@settings(deadline=None, max_examples=40)
def test_a_replay_repeats_itself(one, other, name, phase):
    plan = plan_of([one, other], CHIPS[name])
    first, second = replay(plan, phase), replay(plan, phase)
    assert list(first.start) == list(second.start) and first.data == second.data and first.busy == second.busy


@given(steps(), st.integers(0, 1000), chips, phases)
@settings(deadline=None, max_examples=60)
def test_one_more_instruction_never_makes_the_rest_faster(given_steps, where, name, phase):
    """Promised without the throttle, which pauses punish, and without DMA, whose engines share."""
    kept = [(engine, price, []) for engine, price, _ in given_steps if price.transfer is None and not price.front]
    arch = replace(CHIPS[name], throttled=False)
    at = where % (len(kept) + 1)
    for engine, price in (
        ("vector", Price(500.0, 600.0)),
        ("scalar", Price(500.0, 600.0)),
        ("tensor", Price(100.0, 260.0)),
    ):
        longer = [*kept[:at], (engine, price, []), *kept[at:]]
        assert replay(plan_of([longer], arch), phase).body_ns >= replay(plan_of([kept], arch), phase).body_ns - ROUNDING


@given(steps(), steps(), chips, phases)
@settings(deadline=None, max_examples=60)
def test_joined_cores_last_as_long_as_the_slower_of_them(one, other, name, phase):
    joint = plan_of([one, other], CHIPS[name])
    line = replay(joint, phase)
    assert line.body_ns == pytest.approx(max(each.body_ns for each in split(joint, line)))


@given(steps(rings=("sync",)), steps(rings=("sync",)), chips, phases)
@settings(deadline=None, max_examples=60)
def test_joined_cores_are_never_faster_than_the_slower_one_alone(one, other, name, phase):
    """Promised where a core's transfers ride on one ring, without the stall of an idle one.

    Rings that share engines can gain by a delay: the transfer that is not delayed has them to itself for a while.
    """
    arch = chip_without(CHIPS[name], "DMA load stall")
    alone = [replay(plan_of([core], arch), phase).body_ns for core in (one, other)]
    assert replay(plan_of([one, other], arch), phase).body_ns >= max(alone) * (1 - 1e-9)


@given(steps(), st.data(), phases)
@settings(deadline=None, max_examples=60)
def test_a_port_is_held_by_one_engine_at_a_time(given_steps, data, phase):
    arch = CHIPS["trn1"]
    shared = [
        index
        for index, (engine, price, _) in enumerate(given_steps)
        if engine in ("vector", "gpsimd", "scalar") and price.transfer is None and not price.front
    ]
    ports = {index: tuple(data.draw(st.sampled_from([(0,), (1,), (0, 1)]))) for index in shared}
    line = replay(plan_of([given_steps], arch, ports), phase)
    for port in (0, 1):
        held = sorted(
            (line.start[index], line.start[index] + given_steps[index][1].issue_ns)
            for index, names in ports.items()
            if port in names
        )
        for (_, end), (start, _) in itertools.pairwise(held):
            assert start >= end - ROUNDING
