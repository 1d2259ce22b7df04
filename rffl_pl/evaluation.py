"""What is measured of models: every hosted participant's, each distinct one once, and the server's own."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torchmetrics import Metric

from rffl_pl.adversaries import Adversary
from rffl_pl.adversaries.base import each_once
from rffl_pl.datamodules.reading import Batch, Batches, Evaluated
from rffl_pl.errors import GO_ON, UserError, is_packaged, ones_own, reason
from rffl_pl.functional.fingerprints import left_alone
from rffl_pl.functional.streams import random_stream
from rffl_pl.metrics import ParticipantScores
from rffl_pl.runs.records import SHARES, Summary
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.parameters import running_statistics
from rffl_pl.training.schedule import Precision

Scores = dict[str, Tensor]
"""Measured of the hosted participants' models, ``[n]`` each, by name: ``accuracy``, ``loss``, and what the user and the
attacks measure beside them."""

TAKEN = SHARES | {"accuracy", "loss", "train_loss", "personal_loss", "member"}
"""Names that no measure of anybody's own can have."""
_OF_ATTACKS = {"target_accuracy", "attack_success"}
"""Names of results that attacks measure."""
OF_STUDIES = {
    "accuracy_mean", "accuracy_max", "accuracy_min", "accuracy_worst_tenth", "accuracy_best_tenth", "accuracy_spread",
    "accuracy_validation", "rounds_played",
}  # fmt: skip
"""Names of results in the tables of studies."""
_OF_RESULTS = OF_STUDIES | {field.name for field in fields(Summary)} - _OF_ATTACKS
"""Names that one which is measured of final models cannot have either."""


class Evaluation:
    """Scores of a cohort's models, batch after batch.

    Args:
        measures: Metrics of logits ``[B, C]`` and classes ``[B]`` that give one number; their names are those of their
            classes, in lower case with underscores.
        attacked: The attacks' own metrics by name, each with the attack that says on which examples.

    Raises:
        UserError: If two measures have one name, or one has that of something else that is known of a round.
    """

    def __init__(self, measures: Sequence[Metric], attacked: Mapping[str, tuple[Metric, Adversary]]) -> None:
        names = [_snake(type(measure).__name__) for measure in measures]
        for name in names:
            if names.count(name) > 1 or name in attacked or name in TAKEN | _OF_RESULTS | _OF_ATTACKS:
                raise UserError(
                    f"Expected --model.measures to have names of their own, but {name} is taken; leave one, or rename "
                    "the class."
                )
        for name in attacked.keys() & (TAKEN | _OF_RESULTS):
            raise UserError(
                f"Expected the measures of --adversaries to have names of their own, but {name} is taken; rename it in "
                f"{type(attacked[name][1]).__name__}.measures."
            )
        self.measures: dict[str, tuple[Metric, Adversary | None]] = {
            **dict(zip(names, ((measure, None) for measure in measures), strict=True)),
            **attacked,
        }
        self._first: list[int] = []
        self._scores = ParticipantScores(0)
        self._metrics: dict[int, dict[str, Metric]] = {}
        self._batches = 0

    def rehearse(self, x: Tensor, logits: Tensor, y: Tensor) -> None:
        """Have all metrics but the package's own measure one batch: one that does not fit is told before training.

        Args:
            x: Inputs ``[B, ...]``, of which attacks make the examples that their own see.
            logits: ``[B, C]``.
            y: Classes ``[B]``.

        Raises:
            UserError: If one cannot.
        """
        logits = logits.clone()  # which is no tensor of inference, whose changes torch does not count
        for name, (_, attack) in self.measures.items():
            if attack is None:
                self._rehearse(name, logits, y, "give it the options that fit, or leave it")
            elif not is_packaged(type(attack)):
                _, classes = _probed(attack, x, y)
                rows = torch.arange(len(classes)) % len(logits)  # as many, whatever the probe leaves or adds
                self._rehearse(name, logits[rows.to(logits.device)], classes, "mend it")

    def _rehearse(self, name: str, logits: Tensor, y: Tensor, remedy: str) -> None:
        measure, owner = self.measures[name][0], self._owner(name)
        lasting = "have it call super().__init__() and keep nothing that cannot be copied"
        with ones_own(measure, self._option(name), "be copied", lasting):
            metric = self._fresh(name, logits.device)
        whole = left_alone(f"{name} of {owner} to leave logits and classes as they are", logits, y)
        try:
            with warnings.catch_warnings(), whole:
                warnings.simplefilter("ignore")  # say, of a class that one batch does not have
                if len(y):
                    metric.update(logits, y)
                _number(name, metric, owner)
        except UserError:
            raise
        except Exception as error:  # whatever a user's own code meets
            raise UserError(
                f"Expected every measure of {owner} to take logits {list(logits.shape)} and classes {list(y.shape)}, "
                f"but {name} fails: {reason(error)}; {remedy}."
            ) from error

    def start(self, cohort: Cohort, *, apart: bool = False) -> None:
        """Begin to measure a cohort's models as they are now.

        Args:
            cohort: The models.
            apart: Whether each is measured on its participant's own examples; otherwise each distinct one once.
        """
        device = cohort.weights.device
        self._first = [*range(len(cohort.participants))] if apart else cohort.distinct()
        self._batches = 0
        self._scores = ParticipantScores(len(self._first)).to(device)
        self._metrics = {i: {name: self._fresh(name, device) for name in self.measures} for i in set(self._first)}

    def update(self, batch: Batch | dict[int, Batch], cohort: Cohort) -> None:
        """Take in one batch, inputs and classes, that is for all; or of each participant its own."""
        if isinstance(batch, dict):
            for participant, own in batch.items():
                self._measure([cohort.row[participant]], own, cohort, participant + 1)
        else:
            self._measure(sorted(self._metrics), batch, cohort)
        self._batches += 1

    def _measure(self, indices: Sequence[int], batch: Batch, cohort: Cohort, stream: int = 0) -> None:
        """What these models make of a batch; what an attack draws for it is the same whenever it is measured."""
        device = cohort.weights.device
        given, y = batch[0].to(device, non_blocking=True), batch[1].to(device, torch.int64)
        x = cohort.placed(given)
        probes = {}
        for probing in each_once(attack for _, attack in self.measures.values() if attack is not None):
            with random_stream(stream << 32 | self._batches, device):
                probes[id(probing)] = _placed(_probed(probing, given, y, GO_ON), given, x, cohort)
        for index in indices:
            logits = cohort.logits(x, index).float()
            self._scores.update(index, logits, y)
            for name, metric in self._metrics[index].items():
                measure, attack = self.measures[name]
                px, py = (x, y) if attack is None else probes[id(attack)]
                if len(py):
                    of_them = logits if px is x else cohort.logits(px, index).float()
                    whose = measure if attack is None else attack
                    with ones_own(whose, self._option(name), f"measure {name} of a batch", GO_ON):
                        metric.update(of_them, py)

    def finish(self) -> Scores:
        """The scores of all batches since the start."""
        accuracy, loss = (value.view(-1) for value in self._scores.compute())  # torchmetrics squeezes one model's
        scores = {"accuracy": accuracy[self._first], "loss": loss[self._first]}
        for name, (measure, attack) in self.measures.items():
            owner, whose = self._owner(name), measure if attack is None else attack
            with ones_own(whose, self._option(name), f"say what measure {name} has seen", GO_ON):
                values = {index: _number(name, metrics[name], owner) for index, metrics in self._metrics.items()}
            scores[name] = torch.tensor([values[index] for index in self._first])
        return scores

    def of(self, batches: Iterator[Any], cohort: Cohort, *, apart: bool = False) -> Scores:
        """Scores of a cohort's models on all of the batches."""
        self.start(cohort, apart=apart)
        for batch in batches:
            self.update(batch, cohort)
        return self.finish()

    def _option(self, name: str) -> str:
        """By which option somebody measures this."""
        return "--model.measures" if self.measures[name][1] is None else "--adversaries"

    def _owner(self, name: str) -> str:
        """Whose measure that is, for messages."""
        attack = self.measures[name][1]
        return self._option(name) if attack is None else f"{self._option(name)} {type(attack).__name__}"

    def _fresh(self, name: str, device: torch.device) -> Metric:
        metric = self.measures[name][0].clone().to(device)
        metric.reset()
        for one in metric.modules():  # it may be made of others
            if isinstance(one, Metric):
                one.distributed_available_fn = _never  # merging ranks would average different participants' models
        return metric


class Validation:
    """The model of a server that validates: the participants' network with its initial buffers.

    Args:
        made: Makes a cohort of one, with the participants' network.
        batches: The server's validation examples.
        limit: How many of the batches count, or which share of them; all where it is 0.
        seed: Of what the examples draw at random: the same for all weights, which are compared.
        precision: In which precision is computed.
    """

    def __init__(
        self, made: Callable[[], Cohort], batches: Batches, limit: float, seed: int, precision: Precision
    ) -> None:
        self.made, self.batches, self.limit, self.seed, self.precision = made, batches, limit, seed, precision
        self._model: Cohort | None = None

    def accuracy(self, weights: Tensor) -> float:
        """Accuracy of weights ``[D]``."""
        if self._model is None:
            self._model = self.made()
            if running_statistics(self._model.networks[0]):
                rank_zero_warn(
                    "The server validates with the running statistics that normalisation layers of --model.network "
                    "begin with, since nobody's are sent to where it validates, and its scores say little; give "
                    "GroupNorm in their place, or another --server."
                )
        device = self._model.weights.device
        correct, count = torch.zeros((), dtype=torch.int64, device=device), 0  # counted there: a GPU is waited for once
        self._model.weights[0] = weights
        with torch.inference_mode(), self.precision.val_step_context(), random_stream(self.seed, device):
            for x, y in limited(self.batches, self.limit or 1.0):
                correct += (self._model.logits(x, 0).argmax(1) == y.to(device, non_blocking=True)).sum()
                count += len(y)
        return int(correct) / count


def limited(batches: Evaluated, limit: float) -> Iterator[Any]:
    """The first batches, at least one: as many as an integer says, or a share of them, as Lightning does."""
    return islice(batches, how_many(batches, limit))


def how_many(batches: Evaluated, limit: float) -> int:
    """Of how many batches that is."""
    return min(len(batches), limit) if isinstance(limit, int) else max(1, int(limit * len(batches)))


def _placed(examples: tuple[Tensor, Tensor], given: Tensor, x: Tensor, cohort: Cohort) -> tuple[Tensor, Tensor]:
    """The examples of a probe as they are measured: where it leaves inputs alone those that all are measured on."""
    return x if examples[0] is given else cohort.placed(examples[0]), examples[1]


def _probed(attack: Adversary, x: Tensor, y: Tensor, remedy: str = "mend it") -> tuple[Tensor, Tensor]:
    """The examples that an attack's measures see of a batch."""
    with ones_own(attack, "--adversaries", "make the examples that its success is measured on", remedy):
        return attack.probe(x, y)


def _number(name: str, metric: Metric, owner: str) -> float:
    """What a metric has measured; NaN where it has seen nothing.

    Raises:
        UserError: If it is no number.
    """
    if not metric.update_called:
        return float("nan")
    value = metric.compute()
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise UserError(
            f"Expected every measure of {owner} to give one number, but {name} gives "
            f"{list(value.shape) if isinstance(value, Tensor) else type(value).__name__}; have it average."
        )
    return float(value)


def _never() -> bool:
    return False


def _snake(name: str) -> str:
    """``MulticlassCalibrationError`` as ``multiclass_calibration_error``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
