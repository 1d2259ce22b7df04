"""What tells a run's examples from others, as digests: a checkpoint must agree with them, and so must all ranks.

By what checkpoints call them, each where there is anything to tell:

- ``shards``: labels and shards, and ``shard sizes``: where one of these ends, since earlier checkpoints know the one
  without the other;
- ``validation``: the labels of validation examples that are everybody's and no training examples;
- ``inputs``: the inputs that are everybody's and lie in memory, or of which their dataset says something;
- ``own inputs``: those that are somebody's own;
- ``own training examples``, ``own test examples``, ``own validation examples``: of each participant's a digest, which
  says whose are others;
- ``training inputs``: those that models are trained on, where ``training examples`` has none of them, since earlier
  checkpoints know it without;
- ``training examples``: what models are trained on and their classes, the same whatever they are measured on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from torch import Tensor

from rffl_pl.datamodules.border import Part, tensors_of
from rffl_pl.datamodules.inputs import digest_of_inputs
from rffl_pl.datamodules.own import Holding
from rffl_pl.datamodules.telling import said_by


def digests_of_shards(
    parts: Mapping[str, Part], shards: Sequence[Tensor], class_names: Sequence[str]
) -> dict[str, str]:
    """Of examples that are everybody's; an empty text where there is nothing to tell.

    Args:
        parts: The datasets, by kind.
        shards: What is cut of the training examples: everybody's, index vectors.
        class_names: What the classes are called; none where they have no names.
    """
    training = parts["training"]
    return {
        "shards": _digest([training.labels, parts["test"].labels, *shards]),
        "shard sizes": _digest([" ".join(str(len(shard)) for shard in shards)]),
        "validation": _digest([parts["validation"].labels]) if "validation" in parts else "",
        "inputs": _inputs(parts.values()),
        "training inputs": said_by(training.dataset),
        "training examples": _digest(["/".join(class_names), training.labels, *shards, *_in_memory([training])]),
    }


def digests_of_own(
    parts: Mapping[str, Part], told: Mapping[str, Sequence[Holding]], class_names: Sequence[str]
) -> dict[str, str]:
    """Of training examples that are somebody's own; an empty text where there is nothing to tell.

    Args:
        parts: The datasets that are everybody's, by kind.
        told: What every rank is told of those that are not, by kind: of each participant.
        class_names: What the classes are called; none where they have no names.
    """
    training = told["training"]
    words = [*class_names, *(holding.digest for holding in training)]
    for which in sorted(told.keys() - {"training"}):
        words += [which, *(holding.digest for holding in told[which])]
    return {
        **{f"own {which} examples": _of_each(holdings) for which, holdings in told.items()},
        # Ranks read files of their own: what is common to them is told too.
        "shards": _digest([*(part.labels for part in parts.values()), "/".join(words)]),
        "inputs": _inputs(parts.values()),
        "own inputs": _own_inputs([holding for which in sorted(told) for holding in told[which]]),
        "training inputs": _own_inputs(training),
        "training examples": _digest(["/".join(class_names), "/".join(holding.digest for holding in training)]),
    }


def _digest(pieces: Iterable[str | Tensor]) -> str:
    """Of texts and tensors, one after another."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece.encode(errors="backslashreplace") if isinstance(piece, str) else piece.numpy().tobytes())
    return found.hexdigest()[:16]


def _in_memory(parts: Collection[Part]) -> list[str]:
    """The digest of the inputs that lie in memory; none where none do."""
    held = [tensors[0] for part in parts if (tensors := tensors_of(part.dataset)) is not None]
    return [digest_of_inputs(held)] if held else []


def _inputs(parts: Collection[Part]) -> str:
    held = _in_memory(parts)
    told = [*held, *(said for part in parts if (said := said_by(part.dataset)))]
    return told[0] if held and len(told) == 1 else _digest(["/".join(told)]) if told else ""


def _of_each(holdings: Iterable[Holding]) -> str:
    return " ".join(_digest([holding.digest, holding.inputs])[:8] for holding in holdings)


def _own_inputs(holdings: Iterable[Holding]) -> str:
    told = [holding.inputs for holding in holdings]
    return _digest(["/".join(told)]) if any(told) else ""
