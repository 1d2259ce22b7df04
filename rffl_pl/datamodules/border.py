"""Where data comes in: what no federation can be trained on is said here, in one sentence, before it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from rffl_pl.datamodules.byte_images import ByteImages
from rffl_pl.datamodules.inputs import spread
from rffl_pl.errors import UserError, in_a_line, reason
from rffl_pl.functional.finite import all_finite
from rffl_pl.functional.streams import Stream

_LOOKED_AT = 32
"""Examples that are read to see whether a dataset's `targets` are their classes."""


class Part:
    """One of a data module's datasets with its labels, which are read once.

    What lies in memory as tensors is checked whole, other datasets batch by batch as they are read.

    Args:
        dataset: A map-style dataset of (x, y).
        which: ``training``, ``validation`` or ``test``, for messages.
        owner: The data module's class, for messages.
        num_classes: Number C of classes.

    Attributes:
        labels: The class of every example, ``[n]`` int64.

    Raises:
        UserError: If it is empty or not of pairs (x, y), if a label is no whole number in 0 .. C-1, or an input in
            memory is not finite.
    """

    def __init__(self, dataset: Dataset[Any] | None, *, which: str, owner: str, num_classes: int) -> None:
        count = _length(dataset, f"{which} examples of {owner}")
        assert dataset is not None
        self.dataset, self.which, self.owner, self.num_classes = dataset, which, owner, num_classes
        if count == 0:
            raise UserError(f"Expected {owner} to have {which} examples, but there is none; give it at least one.")
        tensors = tensors_of(dataset)
        if tensors is not None and len(tensors) != 2:
            raise UserError(
                f"Expected {which} examples of {owner} to be pairs (x, y), but its TensorDataset has "
                f"{len(tensors)} tensor(s); give it two."
            )
        self.labels = labels_of(dataset, f"{which} example", owner)
        everything = torch.arange(count)
        self._check_labels(everything, self.labels)
        if tensors is not None:
            self._check_inputs(everything, tensors[0])
        with Stream(0):  # a dataset may draw at random: draws elsewhere must not depend on who is hosted
            first = collected(dataset, [0])
        self.check(everything[:1], first)

    def __len__(self) -> int:
        return len(self.labels)

    def check(self, indices: Tensor, batch: Any) -> None:
        """See that a batch of the examples ``indices`` ``[B]`` can be used.

        Args:
            indices: Which examples they are.
            batch: What `collected` made of them.

        Raises:
            UserError: If it cannot.
        """
        if isinstance(batch, UserError):
            raise batch  # its sentence names what cannot be read
        x, y = batch if isinstance(batch, list | tuple) and len(batch) == 2 else (None, None)
        if not (isinstance(x, Tensor) and isinstance(y, Tensor) and y.dim() == 1 and len(x) == len(y) == len(indices)):
            failure = batch if isinstance(batch, Exception) else None
            blamed, why = f"a batch with example {int(indices[0])}", ""
            if isinstance(failure, Odd):
                blamed, why = f"{self.which} example {failure.example}", f" ({failure.reason})"
            elif failure is not None:
                why = f" ({in_a_line(failure)})"
            elif isinstance(y, Tensor) and y.dim() > 1:
                why = f" (its y has shape {list(y.shape[1:])})"
            raise UserError(
                f"Expected {self.which} examples of {self.owner} to be pairs (x, y) of a tensor and a class number, "
                f"every x of one shape, but {blamed} is not{why}; convert them in its dataset."
            ) from failure
        self._check_inputs(indices, x)
        self._check_labels(indices, whole_labels(y, f"{self.which} example", self.owner, indices))

    def _check_inputs(self, indices: Tensor, x: Tensor) -> None:
        if x.requires_grad:  # a second mini-batch of them would go back through what made them, which is gone by then
            raise UserError(
                f"Expected inputs of {self.owner} to be numbers alone, but those of {self.which} example "
                f"{int(indices[0])} require a gradient; make them under torch.no_grad(), or give x.detach()."
            )
        if not x.is_floating_point() or all_finite(x):
            return
        unfit = ~x.flatten(1).isfinite().all(1) if x.dim() > 1 else ~x.isfinite()
        raise UserError(
            f"Expected finite inputs of {self.owner}, but {self.which} example {int(indices[unfit][0])} has NaN or "
            f"infinity ({int(unfit.sum())} of {len(x)} examples have); leave such examples out or mend them."
        )

    def _check_labels(self, indices: Tensor, labels: Tensor) -> None:
        outside = (labels < 0) | (labels >= self.num_classes)
        if bool(outside.any()):
            raise UserError(
                f"Expected labels of {self.owner} to lie in 0 .. {self.num_classes - 1}, but {self.which} example "
                f"{int(indices[outside][0])} has label {int(labels[outside][0])} ({int(outside.sum())} of "
                f"{len(labels)} are outside); number the classes from 0 or set num_classes."
            )


def tensors_of(dataset: Dataset[Any] | None) -> tuple[Tensor, ...] | None:
    """Its tensors, inputs and classes, where they lie in memory and an index into them is all that reading is.

    Of a subclass that makes something else of them, a transform for one, they are not its examples.
    """
    reads = getattr(type(dataset), "__getitem__", None)
    known = reads in (TensorDataset.__getitem__, ByteImages.__getitem__)
    return dataset.tensors if known and isinstance(dataset, TensorDataset) else None


class Odd(Exception):
    """Examples that make no batch, since one of them is unlike most or cannot be read.

    Args:
        example: Its number.
        reason: What is unlike about it, or why it cannot be.
    """

    def __init__(self, example: int, reason: str) -> None:
        super().__init__(example, reason)  # both, by which it comes from a worker process
        self.example, self.reason = example, reason


def collected(dataset: Dataset[Any], indices: list[int]) -> Any:
    """The examples as one batch, or why they cannot be one: a worker's exception would come with its traceback."""
    together = getattr(dataset, "__getitems__", None)
    examples = None
    try:
        examples = together(indices) if together else [dataset[i] for i in indices]
        return default_collate(examples)
    except Exception as error:  # whatever files meet, and torch in things that it cannot stack
        return (_unread(dataset, indices, error) if examples is None else _odd(indices, examples)) or error


def _unread(dataset: Dataset[Any], indices: list[int], error: Exception) -> Exception | None:
    """Why the first of the examples that cannot be read cannot, with its number; None if each by itself can."""
    if isinstance(error, UserError):
        return None  # its sentence names what cannot be read
    for index in indices:
        try:
            dataset[index]
        except UserError as mistake:
            return mistake
        except Exception as failure:  # as above
            odd = Odd(index, in_a_line(failure))
            odd.__cause__ = failure
            return odd
    return None


def _odd(indices: list[int], examples: Any) -> Odd | None:
    """The first of the examples that is unlike most of them, where most are of one shape.

    torch compares all with the first, which may be the odd one itself, and names places in a shuffled batch.
    """
    if not isinstance(examples, list | tuple) or len(examples) != len(indices):
        return None
    kinds = [_kind(example) for example in examples]
    usual, count = Counter(kinds).most_common(1)[0]
    if not usual.startswith("of shape") or not len(kinds) / 2 < count < len(kinds):
        return None
    index, kind = next(pair for pair in zip(indices, kinds, strict=True) if pair[1] != usual)
    return Odd(index, f"it is {kind}, most are {usual}")


def _kind(example: Any) -> str:
    """The shape of an example's input, or what it is instead."""
    if not isinstance(example, list | tuple) or len(example) != 2:
        return "no pair"
    x = example[0]
    return f"of shape {list(x.shape)}" if isinstance(x, Tensor | np.ndarray) else f"of type {type(x).__name__}"


def labels_of(dataset: Dataset[Any], which: str, owner: str) -> Tensor:
    """The class of every example, ``[n]`` int64: from ``targets`` or ``labels`` if the dataset has them.

    Where they are not what examples come with, or there are none, all examples are read. A dataset that says
    ``exact_targets`` is believed.

    Raises:
        UserError: If there is none, or one that is no whole number; ``which`` and ``owner`` are how it is called.
    """
    count = len(dataset)  # type: ignore[arg-type]  # map-style
    tensors = tensors_of(dataset)
    if tensors is not None and tensors[1].shape == (count,):
        return whole_labels(tensors[1], which, owner)
    for candidate in (getattr(dataset, "targets", None), getattr(dataset, "labels", None)):
        try:
            labels = torch.as_tensor(candidate)
        except (TypeError, ValueError, RuntimeError):
            continue  # names of classes, say
        if labels.shape == (count,) and _read_alike(labels, dataset):
            return whole_labels(labels, which, owner)
    try:
        with Stream(0):  # they may draw at random: the run's own stream stays
            numbers = [_class_of(dataset[i], which, owner) for i in range(count)]
    except UserError:
        raise
    except Exception as error:  # whatever files and a user's own code can meet
        raise UserError(
            f"Expected every {which} of {owner} to be a pair (x, y) with y a class number, but got {reason(error)}."
        ) from error
    return whole_labels(torch.tensor(numbers), which, owner)


def _read_alike(labels: Tensor, dataset: Dataset[Any]) -> bool:
    """Whether examples come with these labels, by a few of them.

    torchvision keeps `targets` as they were before a ``target_transform``, which may map a class that is rare.
    """
    if getattr(dataset, "exact_targets", False):
        return True
    if getattr(dataset, "target_transform", None) is not None:
        return False
    with Stream(0):  # they may draw at random: the run's own stream stays
        for i in spread(len(labels), _LOOKED_AT).tolist():
            with suppress(Exception):  # one that cannot be read shows nothing here; whoever needs it says so
                if _number(dataset[i][1]) != labels[i].item():
                    return False
    return True


def groups_of(given: Any, count: int, owner: str) -> Tensor | None:
    """Which of ``count`` training examples belong together, ``[count]`` int64; None where nobody says.

    Raises:
        UserError: If it is no whole number from 0 on for each; ``owner`` is the data module's class.
    """
    if given is None:
        return None
    said = (
        f"Expected Sources(groups=...) of {owner} to be a whole number from 0 on for each of {count} training examples"
    )
    try:
        numbers = given if isinstance(given, Tensor) else np.asarray(given)
        if (
            isinstance(numbers, np.ndarray)
            and numbers.dtype == object
            and all(isinstance(n, Integral) for n in numbers)
        ):
            numbers = numbers.astype(np.int64)  # as pandas has whole numbers with gaps
    except Exception as error:  # whatever one's own can meet
        raise UserError(f"{said}, but got {type(given).__name__} ({reason(error)}); number the groups.") from error
    kind = str(numbers.dtype).removeprefix("torch.")
    if tuple(numbers.shape) != (count,) or not kind.startswith(("int", "uint", "bool")):
        raise UserError(f"{said}, but got {kind} of shape {list(numbers.shape)}; number the groups.")
    groups = numbers.long() if isinstance(numbers, Tensor) else torch.from_numpy(numbers.astype(np.int64))
    if (groups < 0).any():
        raise UserError(f"{said}, but got {int(groups.min())}; number the groups.")
    return groups


def whole_labels(labels: Tensor, which: str, owner: str, indices: Tensor | None = None) -> Tensor:
    """Labels ``[n]`` as int64; ``which``, ``owner`` and ``indices`` are how their examples are called.

    Raises:
        UserError: If one is no whole number: it would silently become another class.
    """
    broken = (~labels.isfinite() | (labels != labels.round())).nonzero() if labels.is_floating_point() else labels[:0]
    if len(broken):
        first = int(broken[0])
        raise UserError(
            f"Expected labels of {owner} to be whole numbers, but {which} "
            f"{first if indices is None else int(indices[first])} has label {labels[first].item():g} "
            f"({len(broken)} of {len(labels)} are none); number the classes from 0."
        )
    return labels.long()


def _class_of(example: Any, which: str, owner: str) -> int | float:
    """The class of an example, as a number.

    Raises:
        UserError: If it is a dictionary, as Hugging Face's are.
    """
    if isinstance(example, Mapping):
        raise UserError(
            f"Expected every {which} of {owner} to be a pair (x, y) with y a class number, but got one with "
            f"{' and '.join(map(repr, example))}; give a dataset of pairs, or take --data HFDataset."
        )
    return _number(example[1])


def _number(label: Any) -> int | float:
    """A label as a number of Python's."""
    if getattr(label, "shape", None) and math.prod(label.shape) != 1:
        raise TypeError(f"{math.prod(label.shape)} numbers for one example; give the number of its one class")
    value = label.item() if hasattr(label, "item") else label
    if not isinstance(value, int | float):
        raise TypeError(f"a label of type {type(value).__name__}")
    return value


def _length(dataset: Dataset[Any] | None, what: str) -> int:
    kind = type(dataset).__name__
    if dataset is None:
        raise UserError(f"Expected {what} to be a map-style dataset, but got none; give one.")
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        whole = isinstance(dataset, DataLoader)
        mend = "give its .dataset" if whole else "read them into a list or a TensorDataset first"
        raise UserError(
            f"Expected {what} to be a map-style dataset, with __len__ and __getitem__, but got {kind}, whose examples "
            f"have no number; {mend}."
        )
    try:
        return len(dataset)  # type: ignore[arg-type]  # torch types only iterable-style datasets as unsized
    except (TypeError, ValueError) as error:
        raise UserError(
            f"Expected {what} to be a map-style dataset, with __len__ and __getitem__, but got {kind}, which has no "
            "length."
        ) from error
