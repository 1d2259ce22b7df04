"""Local training on a card that is none (`tests.distributed.card`): where a GPU would be waited for.

python -m tests.training.on_card FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rffl_pl.training.schedule import Schedule
from tests.distributed.card import CARD, never_waiting
from tests.gpu.cohorts import ENGINES, NETWORKS, OPTIMIZERS, cohort, steps

THERE, MASK = torch.zeros(3).to(CARD), torch.ones(3, dtype=torch.bool).to(CARD)
WAITING: dict[str, Callable[[], Any]] = {
    "a number": lambda: float(THERE[0]),
    "a condition": lambda: bool(THERE[0] > 0),
    "a comparison": lambda: torch.equal(THERE, THERE),
    "a mask": lambda: THERE[MASK],
    "where": lambda: THERE.nonzero(),
    "positions in a list": lambda: THERE[[0, 2]],
    "bringing there": lambda: torch.zeros(3).to(CARD),
    "bringing back": lambda: THERE.cpu(),
    "copying back": lambda: torch.zeros(3).copy_(THERE, non_blocking=True),
}
"""What is found to wait, so that training that is not found to does not."""


def epoch(name: str, optimizer: str, engine: str) -> None:
    """The second one: examples lie on the card by then, where they do, and optimizers remember something."""
    made, shards = cohort(name, CARD, stacked=engine == "stacked", optimizer=optimizer, sizes=(2, 5, 3), batch=2)
    made.train_all(shards, Schedule(epochs=1), 0, {i: i for i in shards})
    with never_waiting():
        steps(made, shards)


def outcome(case: Callable[..., Any], *given: str) -> str:
    """What it ends with."""
    try:
        case(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "passed"


def main(folder: Path) -> None:
    """Every case of both kinds."""
    told = {}
    for name, case in WAITING.items():
        with never_waiting():
            told[name] = outcome(case)
    cases = [(name, optimizer, engine) for name in NETWORKS for optimizer in OPTIMIZERS for engine in ENGINES]
    told |= {" ".join(case): outcome(epoch, *case) for case in cases}
    with never_waiting():
        told["nothing"] = outcome(lambda: torch.zeros(3).to(CARD, non_blocking=True)[THERE.long()].add_(1.0))
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
