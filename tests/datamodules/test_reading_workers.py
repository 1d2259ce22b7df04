"""How long worker processes last."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable
from threading import Thread

import pytest
import torch

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from tests.conftest import QUICK, Ended
from tests.datamodules.test_reading import Noisy, passes


def test_workers_end_with_the_process_that_reads_alone() -> None:
    """A scheduler asks every process of a job: workers go on, since the round does; their own process ends them."""
    shard = Shard(Reader(Noisy(40), 2), torch.arange(40), 8)
    _, processes = passes(shard, [5])
    subprocess.run(["kill", "-TERM", *map(str, processes)], check=True, timeout=60)
    assert passes(shard, [6])[1] == processes
    workers = [process for process in multiprocessing.active_children() if process.pid in processes]
    assert len(workers) == 2
    for process in workers:
        process.terminate()
        process.join(60)
        assert process.exitcode == 0


def test_workers_that_are_forked_with_a_thread() -> None:
    """As by OpenTelemetry, which starts one anew after a fork: the signal finds the one that has not heard of it."""
    forking = {"now"}

    def begin() -> None:
        if forking:
            Thread(target=time.sleep, args=(60,), daemon=True).start()

    os.register_at_fork(after_in_child=begin)
    try:
        test_workers_end_with_the_process_that_reads_alone()
    finally:
        forking.clear()


def test_a_pass_that_is_left_gives_its_workers_to_the_next() -> None:
    """They are started anew, or the next pass sees what the one that was left had asked for."""
    reader = Reader(Noisy(60), 2)
    walk = iter(reader.batches(torch.arange(40), 5))
    before = {int(process) for x in (next(walk)[0], next(walk)[0]) for process in x[:, 2]}
    del walk
    found = [x for x, _ in reader.batches(torch.arange(40, 60), 5)]
    assert torch.cat(found)[:, 0].tolist() == list(range(40, 60))
    assert {int(process) for x in found for process in x[:, 2]} == before


def test_a_pass_that_outlives_its_reader() -> None:
    """What is closed while a pass is under way has its workers back when that ends."""
    reader = Reader(Noisy(60), 1)
    walk = iter(reader.batches(torch.arange(40), 5))
    processes = {int(process) for process in next(walk)[0][:, 2]}
    reader.close()
    assert len(list(walk)) == 7
    del walk
    assert not processes & {process.pid for process in multiprocessing.active_children()}


@pytest.mark.parametrize(("data", "code"), [("OneByOne", 0), ("OneBroken", 2)])
def test_workers_end_with_their_run(rffl: Callable[..., Ended], data: str, code: int) -> None:
    """They wait for the garbage collector, under which each takes five seconds to end, in a later run perhaps."""
    before = {*multiprocessing.active_children()}
    network = ("--model.network", "Perceptron", "--model.network.inputs", 2, "--model.network.classes", 2)
    words = ("--data", f"tests.own_data.{data}", *network, "--data.num_workers", 1, "--federation.participants", 2)
    gc.disable()
    try:
        assert rffl("fit", *words, "--trainer.max_epochs", 2, *QUICK).code == code
        assert {*multiprocessing.active_children()} <= before
    finally:
        gc.enable()


def test_passes_beside_each_other_keep_their_workers() -> None:
    """As participants have whose models are trained as one stack, epoch after epoch."""
    reader = Reader(Noisy(40), 1)

    def epoch() -> set[float]:
        walks = [reader.batches(indices, 5) for indices in torch.arange(40).split(20)]
        return {float(process) for batches in zip(*walks, strict=True) for x, _ in batches for process in x[:, 2]}

    first = epoch()
    assert len(first) == 2
    assert epoch() == epoch() == first
