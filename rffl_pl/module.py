"""The LightningModule that hosts a rank's participants."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.utils.data import DataLoader

from rffl_pl.adversaries import Adversary, LabelFlip, OmniscientAdversary
from rffl_pl.cohort import Cohort, Examples, Schedule, flat_parameters, layer_sizes, make_optimizer
from rffl_pl.configured import Configured
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.errors import UserError
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation
from rffl_pl.metrics import ParticipantScores, TargetedAttack
from rffl_pl.runs.checkpoint import Identity, check_identity, identity
from rffl_pl.servers import Task
from rffl_pl.strategy import FederatedStrategy

Scores = dict[str, Tensor]
"""Measured of the hosted participants' models, ``[n]`` each: ``accuracy``, ``loss`` and, where labels are flipped,
``target_accuracy`` and ``attack_success``."""


class FederatedModule(Configured, LightningModule):
    """The participants of one rank: local training, evaluation, and their rows of a checkpoint.

    One training batch is one communication round. `training_step` trains; a callback
    (`rffl_pl.callbacks.ReputationExchange`) then exchanges, before validation.

    Args:
        federation: Who takes part.
        network: The network of every participant, any `torch.nn.Module` from a batch of inputs to class logits.
        optimizer: Makes a participant's optimizer; its state stays with the participant.
        local_epochs: Local epochs E per round.
        lr_decay: Factor on the learning rate, with every ``lr_decay_every``.
        lr_decay_every: ``epoch``, every local epoch (released code), or ``round`` (paper).
        adversaries: The attacks; adversary j of the federation carries out attack j modulo their number.

    Raises:
        UserError: If there are adversaries but no attack, and if an argument is out of range.
    """

    def __init__(
        self,
        federation: Federation,
        network: nn.Module,
        *,
        optimizer: OptimizerCallable = torch.optim.SGD,
        local_epochs: int = 3,
        lr_decay: float = 0.977,
        lr_decay_every: Literal["epoch", "round"] = "epoch",
        adversaries: list[Adversary] | None = None,
    ) -> None:
        super().__init__()
        if federation.adversaries and not adversaries:
            raise UserError(
                f"Expected --adversaries to say what the {federation.adversaries} adversaries do, but it is empty; "
                "give for instance --adversaries+=FreeRider."
            )
        self.automatic_optimization = False
        self.federation = federation
        self.network = network
        self.optimizer = optimizer
        self.schedule = Schedule(epochs=local_epochs, decay=lr_decay, decay_every=lr_decay_every)
        self.attacks = adversaries or []
        self._server_model: Cohort | None = None
        self.round = 0
        self.losses: dict[int, float] = {}
        self.watched: Scores = {}

    def setup(self, stage: str) -> None:
        """Take in the participants that this rank hosts."""
        if not isinstance(self.trainer.strategy, FederatedStrategy):
            raise UserError(
                f"Expected the trainer's strategy to be rffl_pl.strategy.FederatedStrategy, but got "
                f"{type(self.trainer.strategy).__name__}."
            )
        self.exchange: Exchange = self.trainer.strategy.exchange_for(self.federation)
        self._check_network()
        self.cohort = self.new_cohort()
        self._identity: Identity | None = None
        for attack in self.attacks_carried_out():
            attack.prepare(self.data.num_classes)
        count, device = len(self.cohort.participants), self.cohort.weights.device
        self.scores = ParticipantScores(count).to(device)
        flips = {(a.source, a.target) for a in self.attacks_carried_out() if isinstance(a, LabelFlip)}
        if len(flips) > 1:
            raise UserError(
                f"Expected all LabelFlip adversaries to flip the same two classes, but got {sorted(flips)}."
            )
        self.targeted = TargetedAttack(count, *flips.pop()).to(device) if flips else None
        self._first: list[int] = []

    @property
    def data(self) -> FederatedDataModule:
        """The run's data module."""
        data = getattr(self.trainer, "datamodule")  # noqa: B009  # Lightning sets it where mypy cannot see
        assert isinstance(data, FederatedDataModule)
        return data

    def new_cohort(self) -> Cohort:
        """This rank's participants with the initial weights."""
        return Cohort(self.network, self.exchange.hosted, self.optimizer, self.exchange.device)

    def attack_of(self, participant: int) -> Adversary | None:
        """What a participant does instead of being honest; None for the honest."""
        if self.federation.is_honest(participant):
            return None
        return self.attacks[(participant - self.federation.honest) % len(self.attacks)]

    def attacks_carried_out(self) -> list[Adversary]:
        """What every adversary does, in the adversaries' order."""
        return [attack for i in range(self.federation.total) if (attack := self.attack_of(i)) is not None]

    @property
    def omniscient(self) -> dict[int, OmniscientAdversary]:
        """The adversaries who are shown the honest uploads."""
        attacks = {i: self.attack_of(i) for i in range(self.federation.honest, self.federation.total)}
        return {i: attack for i, attack in attacks.items() if isinstance(attack, OmniscientAdversary)}

    def task(self) -> Task:
        """What a server is told before the first round."""
        held_out = self.data.held_out_dataloader()
        return Task(
            examples=self.data.examples,
            classes=self.data.classes,
            layers=layer_sizes(self.network),
            learning_rate=make_optimizer(self.optimizer, self.network).param_groups[0]["lr"],
            seed=self.federation.seed_for("server"),
            initial=self.initial_weights(),
            accuracy=None if held_out is None else partial(self._accuracy_of, held_out),
        )

    def configure_optimizers(self) -> None:
        """Lightning steps no optimizer: every participant has its own."""

    def examples(self, batch: dict[int, Shard]) -> dict[int, Examples]:
        """What the hosted participants take for their training examples."""
        taken: dict[int, Examples] = dict(batch)
        for i, shard in batch.items():
            if (attack := self.attack_of(i)) is not None:
                taken[i] = shard.relabelled(attack.labels)
        return taken

    def training_step(self, batch: dict[int, Shard], batch_idx: int) -> None:
        """Local training of one round."""
        training = {i: shard for i, shard in self.examples(batch).items() if self._trains(i)}
        self.losses = dict(self.cohort.train_round(training, self.schedule, self.federation, self.round))

    def corrupted(self, updates: Tensor) -> Tensor:
        """What the hosted participants upload, ``[n, D]``: adversaries their attack, the honest their updates."""
        uploads = updates.clone()
        for index, participant in enumerate(self.cohort.participants):
            attack = self.attack_of(participant)
            if attack is not None and not isinstance(attack, OmniscientAdversary):
                upload = attack.upload(updates[index], self.stream_of(participant))
                uploads[index] = self.shaped(upload, like=updates[index])
        return uploads

    def stream_of(self, participant: int) -> torch.Generator:
        """An adversary's own random stream of this round, on the CPU."""
        return torch.Generator().manual_seed(self.federation.seed_for("attack", participant, self.round))

    @staticmethod
    def shaped(upload: Any, like: Tensor) -> Tensor:
        """An upload in the dtype of ``like``, or NaN if it has another shape: nothing of it can be used."""
        fits = isinstance(upload, Tensor) and upload.shape == like.shape
        return upload.to(like) if fits else torch.full_like(like, torch.nan)

    def score(self, batches: DataLoader[Any], cohort: Cohort) -> Scores:
        """Scores of a cohort on the test set outside Lightning's test loop, limited as there."""
        self._start_scores(cohort)
        with torch.inference_mode(), self.trainer.precision_plugin.val_step_context():
            for batch in _limited(batches, self.trainer.limit_test_batches):
                self._score_batch(batch, cohort)
        return self._finished_scores()

    def on_validation_epoch_start(self) -> None:
        self._start_scores(self.cohort)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Evaluate every distinct hosted model on a batch."""
        self._score_batch(batch, self.cohort)

    def on_validation_epoch_end(self) -> None:
        """Keep the scores, and the honest participants' mean accuracy for callbacks that watch it.

        Loggers get everything from the report.
        """
        self.watched = self._finished_scores()
        honest = torch.tensor([self.federation.is_honest(i) for i in self.cohort.participants])
        share = self.watched["accuracy"][honest].sum() / self.federation.honest
        self.log("accuracy/mean", share, logger=False, sync_dist=True, reduce_fx="sum")

    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        self.watched = self._finished_scores()

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Class probabilities of every hosted participant, ``[n, B, C]``."""
        logits = [self.cohort.logits(batch[0], index) for index in range(len(self.cohort.participants))]
        return torch.stack(logits).float().softmax(-1)

    def identity(self) -> Identity:
        """What a checkpoint and the run that loads it must agree on."""
        if self._identity is None:
            self._identity = identity(self.network, self.federation, self.data.identity(), self.cohort.optimizers[0])
        return self._identity

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The hosted participants' part; `rffl_pl.runs.checkpoint` says who writes what."""
        cohort = self.cohort
        checkpoint["federation"] = {
            "identity": self.identity(),
            "round": self.round,
            "members": dict(sorted(self.exchange.active.items())),
            "participants": {i: partial(cohort.state_dict, index) for index, i in enumerate(cohort.participants)},
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the hosted participants' rows, wherever they were hosted before.

        Raises:
            UserError: If the checkpoint is of another model, data set or federation.
        """
        saved = checkpoint["federation"]
        training = self.trainer.state.fn == TrainerFn.FITTING
        check_identity(saved["identity"], self.identity(), training=training)
        self.round = saved["round"]
        for index, participant in enumerate(self.cohort.participants):
            self.cohort.load_state_dict(index, saved["participants"][participant], training=training)
        self.exchange.active.update(saved["members"])

    def initial_weights(self) -> Tensor:
        """The weights ``[D]`` that every participant starts from."""
        return flat_parameters(self.network)

    def _check_network(self) -> None:
        """One batch through the network, so that a misfit is told before training and in the user's words."""
        data = self.data
        name = type(self.network).__name__
        training = self.network.training
        try:
            x, _ = next(iter(data.test_dataloader()))
        except (StopIteration, TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"Expected {type(data).__name__} to give batches of pairs (x, y) of tensors, but its first test batch "
                f"fails: {type(error).__name__}: {' '.join(str(error).split())}."
            ) from error
        try:
            with torch.inference_mode():
                shape = list(self.network.eval()(x).shape)
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
            raise UserError(
                f"Expected --model.network {name} to take inputs of shape {list(x.shape)}, but it fails: "
                f"{' '.join(str(error).split())}; give a network for these inputs."
            ) from error
        finally:
            self.network.train(training)
        if shape != [len(x), data.num_classes]:
            raise UserError(
                f"Expected --model.network {name} to give logits of shape {[len(x), data.num_classes]} for inputs of "
                f"shape {list(x.shape)}, but got {shape}; give it {data.num_classes} outputs."
            )

    def _trains(self, participant: int) -> bool:
        attack = self.attack_of(participant)
        return attack is None or attack.trains

    def _accuracy_of(self, batches: DataLoader[Any], weights: Tensor) -> float:
        """Accuracy of weights ``[D]`` with the network's initial buffers; rank 0 alone, for its server.

        On as many batches as validation is limited to; on all of them where it is turned off.
        """
        if self._server_model is None:
            self._server_model = Cohort(self.network, [0], self.optimizer, self.exchange.device)
        model, correct, count = self._server_model, 0, 0
        model.weights[0] = weights
        with torch.inference_mode(), self.trainer.precision_plugin.val_step_context():
            for x, y in _limited(batches, self.trainer.limit_val_batches or 1.0):
                correct += int((model.logits(x, 0).argmax(1).cpu() == y.cpu()).sum())
                count += len(y)
        return correct / count

    def _start_scores(self, cohort: Cohort) -> None:
        self.scores.reset()
        if self.targeted is not None:
            self.targeted.reset()
        self._first = cohort.distinct()

    def _score_batch(self, batch: tuple[Tensor, Tensor], cohort: Cohort) -> None:
        x, y = cohort.placed(batch[0]), batch[1].to(cohort.weights.device, torch.int64)
        for index in sorted(set(self._first)):
            logits = cohort.logits(x, index)
            self.scores.update(index, logits, y)
            if self.targeted is not None:
                self.targeted.update(index, logits, y)

    def _finished_scores(self) -> Scores:
        names = ["accuracy", "loss"]
        values = list(self.scores.compute())
        if self.targeted is not None:
            names += ["target_accuracy", "attack_success"]
            values += self.targeted.compute()
        # torchmetrics squeezes what is measured of one model
        return {name: value.view(-1)[self._first] for name, value in zip(names, values, strict=True)}


def _limited(batches: DataLoader[Any], limit: float) -> Iterator[Any]:
    """The first batches: as many as an integer says, or a share of them, as Lightning reads its limits."""
    return islice(batches, limit if isinstance(limit, int) else int(limit * len(batches)))
