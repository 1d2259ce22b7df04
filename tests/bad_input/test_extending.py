"""Mistakes of rules, attacks and measures of one's own that only a federation shows: each is one sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from rffl_pl.adversaries import Adversary, OmniscientAdversary, Situation
from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder
from rffl_pl.servers import Evidence, FedAvg, Verdict
from rffl_pl.servers.coordinates import Coordinates
from tests.bad_input.refusal import FIT, assert_refused, below
from tests.cli.folders import Run
from tests.servers.tasks import task

HERE = __name__
ATTACKED = (*FIT, "--federation.adversaries", 1, "--adversaries")


class Shifted(Adversary):
    """Trains with classes that there are not."""

    def labels(self, y: Tensor) -> Tensor:
        return y + 5


class Halved(Adversary):
    """Has half a class."""

    def labels(self, y: Tensor) -> Tensor:
        return y / 2


class Blind(Adversary):
    """Makes no examples."""

    def poison(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        raise KeyError("trigger")


class Measured(Adversary):
    """Reports what it achieves as what everybody achieves."""

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"accuracy": MulticlassAccuracy(num_classes)}


class Spread(MulticlassAccuracy):
    """Compares logits, which must not all be alike."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        if preds.unique().numel() < 2:
            raise ValueError("nothing to compare")
        super().update(preds, target)


class Comparing(Adversary):
    """Measures what is nothing of a made-up model that says the same of everything."""

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"compared": Spread(num_classes)}


class Apart(Adversary):
    """Measures every class by itself."""

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"by_class": MulticlassAccuracy(num_classes, average=None)}


class OfThree(Adversary):
    """Measures three classes of ten."""

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"of_three": MulticlassAccuracy(3)}


@dataclass
class Equal(Adversary):
    """Is equal to others of its strength, and so has no hash."""

    strength: float = 2.0

    def upload(self, situation: Situation) -> Tensor:
        return self.strength * situation.update

    def measures(self, num_classes: int) -> dict[str, Metric]:
        return {"equally": MulticlassAccuracy(num_classes)}


class Counting(Adversary):
    """Remembers a number."""

    def upload(self, situation: Situation) -> Tensor:
        situation.memory["rounds"] = 1  # type: ignore[assignment]  # as somebody does who has not read what it holds
        return situation.update


class Rising(Adversary):
    """Counts its uploads where others of its process count theirs."""

    def __init__(self) -> None:
        self.count = 0

    def upload(self, situation: Situation) -> Tensor:
        self.count += 1
        return situation.update * (1 + 0.3 * self.count)


class Colluding(OmniscientAdversary):
    """Keeps what it was shown, as soon as it has downloaded something."""

    keeps_download = True

    def __init__(self) -> None:
        self.past: dict[str, Tensor] = {}

    def collude(self, situation: Situation) -> Tensor:
        assert situation.honest is not None
        if situation.download is not None:
            self.past["mean"] = situation.honest.mean(0)
        return self.past.get("mean", situation.update)


class Resting(Adversary):
    """Trains in turns that it counts itself."""

    def __init__(self) -> None:
        self.turns = 0

    def trains_in(self, round_index: int) -> bool:
        self.turns += 1
        return self.turns % 2 == 1


class Collecting(Adversary):
    """Keeps the classes that it has seen."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def labels(self, y: Tensor) -> Tensor:
        self.seen += y.tolist()
        return y


class Boasting(FedAvg):
    """Measures seven of everybody."""

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        return Verdict(**{**vars(verdict), "measures": {"accuracy": torch.full_like(verdict.weights, 7.0)}})


class Forgetful(FedAvg):
    """Keeps a vector of the coordinates that it has, and does not say so."""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"momentum": torch.zeros(self.coordinates.size)}


STAY = "not to change itself during use, since one object serves all participants of a process,"
ATTACKS = {
    "Shifted": "Shifted to train with a class in 0 .. 9 for every example, but got class 10; mend",
    "Halved": "Halved to train with a class in 0 .. 9 for every example, but got torch.float32 of shape [10] for 10 of",
    "Blind": "Blind to make the examples that it trains with, but KeyError: 'trigger' (test_extending.py, ",
    "Rising": f"Rising {STAY} but its attribute count changes; keep what belongs to a participant in situation.memory.",
    "Colluding": f"Colluding {STAY} but its attribute past changes; keep",
    "Resting": f"Resting {STAY} but its attribute turns changes; keep",
    "Collecting": f"Collecting {STAY} but its attribute seen changes; keep",
    "Apart": "every measure of --adversaries Apart to give one number, but by_class gives [10]; have it average.",
    "OfThree": "every measure of --adversaries OfThree to take logits [64, 10] and classes [64], but of_three fails: ",
    "Measured": "to have names of their own, but accuracy is taken; rename it in Measured.measures.",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_that_does_not_fit(rffl: Run, here: Path, attack: str) -> None:
    """Found in training, in a line of ours, or never: bits depend on ranks, or success is everybody's accuracy."""
    assert_refused(rffl(*ATTACKED, f"[{HERE}.{attack}]"), ATTACKS[attack])
    assert below(here) == set()


def test_a_measure_that_compares_logits(rffl: Run) -> None:
    """It was tried on zeros, and refused."""
    ended = rffl(*ATTACKED, f"[{HERE}.Comparing]")
    assert ended.code == 0, ended.err


def test_an_attack_that_is_a_dataclass(rffl: Run, here: Path) -> None:
    """One that Python cannot look up by its hash ends in a traceback."""
    ended = rffl(*ATTACKED, f"[{HERE}.Equal]", "--adversaries.strength", 3)
    assert ended.code == 0, ended.err
    (file,) = here.rglob("metrics.csv")
    assert "equally/mean" in file.read_text()


def test_a_memory_that_no_checkpoint_keeps(rffl: Run) -> None:
    """The first checkpoint fails, and nobody says who."""
    ended = rffl(*ATTACKED, f"[{HERE}.Counting]")
    assert_refused(
        ended, "Counting to remember tensors, which a checkpoint keeps, but its memory has rounds of type int"
    )


def test_a_server_that_measures_what_is_measured(rffl: Run) -> None:
    """Its numbers stand where accuracies do."""
    ended = rffl(*FIT, "--server", f"{HERE}.Boasting")
    assert_refused(ended, "measures of --server to have names of their own, but accuracy is taken; rename it in")


def test_a_rule_of_ones_own_is_known_by_its_path(rffl: Run) -> None:
    """Training goes on under another rule of the same name as if it were the checkpoint's."""
    own = f"{HERE}.Forgetful"
    assert rffl(*FIT, "--server", own, "--run.name", "a").code == 0
    on = (*FIT, "--run.name", "a", "--ckpt_path", "last", "--trainer.max_epochs", 2)
    assert_refused(rffl(*on, "--server", "FedAvg"), f"the checkpoint's, {own}, but got FedAvg; give --server {own}.")
    assert rffl(*on, "--server", own).code == 0


def part_of(size: int) -> Forgetful:
    """A server of two participants that has so many of 20 coordinates."""
    server, coordinates = Forgetful(), Coordinates(20)
    coordinates.where = slice(0, size)
    server.start(task([1, 1], [8, 12], coordinates=coordinates))
    return server


@pytest.mark.parametrize("size", [0, 2, 20])
def test_what_may_be_whole_is_let_pass(size: int) -> None:
    """A rank without coordinates, or with as many as participants, is refused for what other vectors it keeps."""
    assert len(part_of(size).whole_state()["momentum"]) == size


def test_a_part_that_passes_for_the_whole() -> None:
    """A checkpoint has one rank's part of a vector, and nobody can go on from it."""
    with pytest.raises(
        UserError, match=re.escape("of --server Forgetful to name all that has an entry per coordinate")
    ):
        part_of(12).whole_state()


@pytest.mark.parametrize("what", ["config", "summary", "scores"])
def test_a_file_that_is_not_there_is_not_called_damaged(tmp_path: Path, what: str) -> None:
    """Runs from Python have no configuration; somebody looks for the damage."""
    (tmp_path / "rounds.jsonl").touch()
    with pytest.raises(UserError, match="but there is no such file"):
        getattr(RunFolder(tmp_path), what)()
