"""From a dataset to mini-batches: at once from memory, else example by example, here or in worker processes."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from rffl_pl.datamodules.border import collected, tensors_of
from rffl_pl.datamodules.byte_images import ByteImages
from rffl_pl.datamodules.preparing import called
from rffl_pl.datamodules.sentences import Sentences
from rffl_pl.errors import UserError
from rffl_pl.functional.streams import Stream

Batch = tuple[Tensor, Tensor]


class Reader:
    """Reads mini-batches of one dataset, in whatever order it is asked for.

    What lies in memory is indexed a whole batch at a time, which is many times faster than collating single examples;
    a subclass with a ``__getitem__`` of its own, a transform for one, takes no more than one number.
    Worker processes stay alive from one pass to the next: starting them takes longer than most passes.

    Args:
        dataset: A map-style dataset of (x, y).
        num_workers: Worker processes for datasets that are not in memory.
        check: Called with the indices ``[B]`` and the batch of what is not in memory; raises if it cannot be used.
    """

    def __init__(
        self, dataset: Dataset[Any], num_workers: int = 0, check: Callable[[Tensor, Any], None] | None = None
    ) -> None:
        self.dataset, self.check = dataset, check
        sentences = getattr(type(dataset), "__getitem__", None) is Sentences.__getitem__
        self.in_memory = sentences or tensors_of(dataset) is not None
        self.num_workers = 0 if self.in_memory else num_workers
        self._idle: list[DataLoader[Any]] = []
        self._passes = itertools.count()

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # map-style

    def bucketed(self, indices: Tensor) -> Tensor:
        """The examples ``indices`` in an order in which sentences of like length come together; others as they are."""
        return self.dataset.by_length(indices) if isinstance(self.dataset, Sentences) else indices

    def batches(self, indices: Tensor, batch_size: int, seed: int | None = None) -> Batches:
        """Mini-batches of exactly these examples in this order; the last one may be smaller.

        Args:
            indices: Their numbers.
            batch_size: Examples per batch.
            seed: Of what the dataset draws at random, the same in every pass; by default the surrounding stream's.
        """
        return Batches(self, indices.split(batch_size), seed)

    def read(self, order: Sequence[Tensor]) -> Iterator[Batch]:
        """One pass: for each of the index vectors ``[B]`` of ``order`` its batch.

        Takes one number from the surrounding random stream, as torch's loaders do; worker processes start theirs from
        it, so that what a dataset draws at random in them depends on no pass before.
        """
        seed = int(torch.empty((), dtype=torch.int64).random_())
        found = self._from_workers(order, seed) if self.num_workers else map(self._here, order)
        return map(self._checked, found, order)  # in this order: `map` then walks `found` to its end

    def batch(self, indices: Tensor) -> Batch:
        """These examples at once, read here."""
        return self._checked(self._here(indices), indices)

    def close(self) -> None:
        """End the worker processes; the next pass starts others.

        Left to the garbage collector they take five seconds each to end, whenever that is.
        """
        self._idle = []  # of a pass that is under way too, which gives its workers back to the list that was

    def _here(self, indices: Tensor) -> Any:
        return self.dataset[indices] if self.in_memory else collected(self.dataset, indices.tolist())

    def _from_workers(self, order: Sequence[Tensor], seed: int) -> Iterator[Any]:
        if not order:
            return
        idle = self._idle  # of now: what `close` puts in its place is not of this pass
        # Taken while the pass lasts: another one beside it has or starts its own.
        loader = idle.pop() if idle else self._started()
        assert isinstance(loader.sampler, _Order)
        number = next(self._passes)
        loader.sampler.requests = [(number, seed, indices.tolist()) for indices in order]
        with _sigterm_held_back():  # workers are started here, the first time
            batches = iter(loader)
        try:
            for _ in order[1:]:
                yield next(batches)
        except GeneratorExit:  # left early: the next pass waits for what was asked for, and throws it away
            idle.append(loader)
            raise
        last = next(batches)
        idle.append(loader)
        del loader, batches  # now: who knows how many there are asks for no more
        yield last

    def _started(self) -> DataLoader[Any]:
        return DataLoader(
            _AtWork(self.dataset),
            sampler=_Order(),
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=True,
            worker_init_fn=_end_with_this_process,
            generator=torch.Generator(),  # of its own, so that starting workers takes nothing from the stream
        )

    def _checked(self, batch: Any, indices: Tensor) -> Batch:
        if self.check is not None and not self.in_memory:
            self.check(indices, batch)
        elif isinstance(batch, Exception):
            raise batch
        checked: Batch = batch
        return checked


class Batches:
    """Mini-batches in an order that is known beforehand, to be walked any number of times; `seed` as of `Reader`."""

    def __init__(self, reader: Reader, order: Sequence[Tensor], seed: int | None = None) -> None:
        self.reader, self.order, self.seed = reader, order, seed

    @property
    def tensors(self) -> tuple[Tensor, ...] | None:
        """All examples of the dataset, inputs and classes, where they lie in memory as tensors; else None."""
        return tensors_of(self.reader.dataset)

    @property
    def prepare(self) -> Callable[[Tensor], Tensor] | None:
        """What makes the network's inputs of those in `tensors`; None where they are that."""
        dataset = self.reader.dataset
        return dataset.standardise if isinstance(dataset, ByteImages) else None

    @property
    def places(self) -> list[str]:
        """Where each example comes from, in this order; none where the dataset has no ``places``.

        Raises:
            UserError: If it has not one for each of its examples.
        """
        dataset: Any = self.reader.dataset
        said = f"{type(dataset).__name__} to say where its examples come from"
        places = called(lambda: getattr(dataset, "places", ()), said)
        if not isinstance(places, Sequence) or isinstance(places, str) or not places:
            return []
        if len(places) != len(dataset):
            raise UserError(
                f"Expected places of {type(dataset).__name__} to have a text for each of its {len(dataset)} examples, "
                f"but there are {len(places)}; give one for each, or none."
            )
        return [str(places[i]) for indices in self.order for i in indices.tolist()]

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Batch]:
        if self.seed is None or self.reader.in_memory:
            return self.reader.read(self.order)
        return self._drawn_from(Stream(self.seed))

    def _drawn_from(self, stream: Stream) -> Iterator[Batch]:
        with stream:
            walk = self.reader.read(self.order)
        for _ in self.order:
            with stream:
                batch = next(walk)
            yield batch


class Joint:
    """Mini-batches of several participants' own examples, side by side: the n-th item has the n-th of each.

    What a dataset draws at random is the same in every pass, whoever is hosted here.

    Args:
        batches: Of each participant its own.
        count: How many items there are, which is the same on every rank; those who have fewer are missing from the
            last ones.
        seed: Of what is drawn, with the participant's number.
    """

    def __init__(self, batches: Mapping[int, Batches], count: int, seed: int) -> None:
        self.batches, self.count, self.seed = batches, count, seed

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[dict[int, Batch]]:
        streams = {i: Stream((self.seed + i) % 2**63) for i in self.batches}
        walks = {}
        for i, batches in self.batches.items():
            with streams[i]:
                walks[i] = iter(batches)
        for _ in range(self.count):
            item = {}
            for i, walk in walks.items():
                with streams[i]:
                    batch = next(walk, None)
                if batch is not None:
                    item[i] = batch
            yield item


Evaluated = Batches | Joint
"""What models are measured on: the same batches for all of them, or for each its participant's own."""


def first_of(batches: Evaluated) -> Batch:
    """The first batch; of several participants' the first one's."""
    if isinstance(batches, Joint):
        return first_of(next(iter(batches.batches.values())))
    return next(iter(batches))


Request = tuple[int, int, list[int]]


class _Order(Sampler[Request]):
    """What worker processes are asked for: the number of the pass, its seed and the examples of each batch."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)


class _AtWork(Dataset[Any]):
    """The dataset in a worker process, whose random streams start anew with every pass."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset
        self._pass: int | None = None

    def __getitem__(self, request: Request) -> Any:
        number, seed, indices = request
        if number != self._pass:
            self._pass = number
            worker = get_worker_info()
            assert worker is not None
            _start_streams(seed + worker.id)
        return collected(self.dataset, indices)


@contextmanager
def _sigterm_held_back() -> Iterator[None]:
    """Have processes that are started begin without hearing SIGTERM, in all of their threads.

    A library may start a thread in every process that is forked, as OpenTelemetry does, which W&B brings.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end_with_this_process(worker: int) -> None:
    """Have a worker process hear SIGTERM of the process that started it alone.

    A scheduler asks every process of a job to end, and a round can only be finished with its workers. What ends them
    for good is their own process, by SIGTERM as torch and Python do, or by its death, after which they look.
    """
    if hasattr(signal, "sigwaitinfo"):  # which macOS does not have, nor the schedulers
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Thread(target=_await_own_end, daemon=True).start()


def _await_own_end() -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
        pass
    os._exit(0)


def _start_streams(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
