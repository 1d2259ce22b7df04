"""The LightningModule that hosts a rank's participants."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor, nn
from torchmetrics import Metric
from tqdm import tqdm

from rffl_pl.adversaries import Adversary, Cast
from rffl_pl.configured import Configured
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.datamodules.reading import Batch, Batches, Evaluated, Joint
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.errors import UserError
from rffl_pl.evaluation import Evaluation, Scores, Validation, how_many, limited
from rffl_pl.exchange import Exchange
from rffl_pl.federation import Federation, check_federation
from rffl_pl.functional.streams import random_stream
from rffl_pl.rehearsal.checks import check_memory, check_same_federation, check_trainer
from rffl_pl.rehearsal.first_step import (
    check_in_place,
    check_objective,
    check_plain_steps,
    check_reach,
    check_step,
    check_training_mode,
    warn_of_pulls,
)
from rffl_pl.rehearsal.network import (
    check_state,
    try_network,
    warn_of_modes,
    warn_of_own_training,
    warn_of_probabilities,
    warn_of_unregistered,
)
from rffl_pl.round.root import Root
from rffl_pl.runs.checkpoint import sound
from rffl_pl.runs.identity import Identity, check_identity, identity
from rffl_pl.servers import Task
from rffl_pl.strategy import FederatedStrategy
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.objective import Objective
from rffl_pl.training.parameters import flat_parameters, layer_sizes
from rffl_pl.training.schedule import Schedule, check_pull, loss_on, make_optimizer
from rffl_pl.training.stack import refusal


class FederatedModule(Configured, LightningModule):
    r"""The participants of one rank: what they train, how they are evaluated, and their rows of a checkpoint.

    One training batch is one communication round, which a callback (`rffl_pl.callbacks.ReputationExchange`) plays,
    before validation.

    Args:
        federation: Who takes part.
        network: The network of every participant, any `torch.nn.Module` from a batch of inputs to class logits. What
            requires no gradient neither trains nor travels.
        optimizer: Makes a participant's optimizer; its state stays with the participant.
        local_epochs: Local epochs E per round.
        local_steps: Mini-batches that everybody trains on in a round, however many examples it has: passes follow one
            another, each in an order of its own, and the last one is cut off. It takes the place of ``local_epochs``,
            and learning rates decay as with one local epoch. By default whole epochs.
        lr_decay: Factor on the learning rate, with every ``lr_decay_every``.
        lr_decay_every: ``epoch``, every local epoch (released code), or ``round`` (paper).
        loss: What a participant trains by, a module from class logits ``[B, C]`` and classes ``[B]`` to one number, say
            ``torch.nn.CrossEntropyLoss`` with ``label_smoothing``; by default cross-entropy, which is what models are
            measured by in either case.
        proximal: :math:`\mu` of FedProx (Li et al. 2020, https://arxiv.org/abs/1812.06127): to the loss of every
            mini-batch :math:`\frac{\mu}{2} \|w - w^t\|^2` is added, with :math:`w^t` the participant's weights
            before the round; losses are reported without it. With ``FedAvg`` that is FedProx, 0 is without.
        personal: :math:`\lambda` of Ditto (Li et al. 2021, https://arxiv.org/abs/2012.04221): beside the model that is
            shared every honest participant trains one of its own in every round that it trains in,
            :math:`\min_v F_i(v) + \frac{\lambda}{2} \|v - w_i^t\|^2`, on the same mini-batches, which never travels and
            is the one that is measured and exported; of adversaries the shared one is. 0 is without. It takes twice
            the training.
        scaffold: SCAFFOLD (Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378): every step of local training is
            corrected towards where the last round went, by what a participant downloaded in it, which helps where
            examples differ from participant to participant, and sends nothing more. Under a server whose steps are
            means of updates, by SGD without momentum; models of one's own train without.
        objective: What participants minimise in place of the loss of their logits alone, `rffl_pl.Objective`;
            models of one's own and standalone references train without.
        engine: How the hosted participants train: ``loop``, one after another; ``stacked``, all at once, their models
            as one stack, for SGD and Adam and networks without BatchNorm or the like, or else one after another, which
            the run says; ``auto``, stacked on a GPU, and on a CPU one after another, so that the bits do not depend on
            the number of ranks.
        adversaries: The attacks; adversary j of the federation carries out attack j modulo their number.
        measures: Metrics of class logits and classes that give one number, say
            ``torchmetrics.classification.MulticlassCalibrationError``: measured of every model beside its accuracy.

    Raises:
        UserError: If there are adversaries but no attack, and if an argument is out of range.

    Attributes:
        cohort: The hosted participants; from the first `setup` on.
        round: Rounds completed.
        losses: Mean training losses of the last round, by hosted participant.
        personal_losses: Mean training losses of the personal models in the last round, by hosted participant.
        watched: What the last evaluation has measured of the hosted participants, ``[n]`` by name.
        stacked: Whether the hosted participants train at once; from `setup` on.
    """

    _group: ClassVar[str] = "--model"

    __repr__ = nn.Module.__repr__  # which shows the network

    cohort: Cohort
    personal: Cohort | None = None
    """Their models of their own; None without ``personal``."""
    exchange: Exchange

    def __init__(
        self,
        federation: Federation,
        network: nn.Module,
        *,
        optimizer: OptimizerCallable = torch.optim.SGD,
        local_epochs: int = 3,
        local_steps: int | None = None,
        lr_decay: float = 0.977,
        lr_decay_every: Literal["epoch", "round"] = "epoch",
        loss: nn.Module | None = None,
        proximal: float = 0.0,
        personal: float = 0.0,
        scaffold: bool = False,
        objective: Objective | None = None,
        engine: Literal["auto", "loop", "stacked"] = "auto",
        adversaries: list[Adversary] | None = None,
        measures: list[Metric] | None = None,
    ) -> None:
        super().__init__()
        check_federation(federation)
        if not isinstance(measures or [], list) or not all(isinstance(measure, Metric) for measure in measures or []):
            raise UserError(f"Expected measures to be a list of instances of metrics, but got {measures}.")
        if not isinstance(network, nn.Module):
            raise UserError(f"Expected the network to be an instance of torch.nn.Module, but got {network}.")
        if not callable(optimizer):
            raise UserError(
                "Expected the optimizer to be what makes one of parameters, such as SGD or partial(SGD, lr=0.1), but "
                f"got {optimizer if isinstance(optimizer, str) else type(optimizer).__name__}."
            )
        if not isinstance(loss, nn.Module | None):
            raise UserError(f"Expected the loss to be an instance of torch.nn.Module, but got {loss}.")
        if not isinstance(objective, Objective | None):
            raise UserError(f"Expected the objective to be an instance of rffl_pl.Objective, but got {objective}.")
        self.automatic_optimization = False
        self.federation = federation
        self.network = network
        self.optimizer = optimizer
        self.schedule = Schedule(
            epochs=local_epochs, steps=local_steps, decay=lr_decay, decay_every=lr_decay_every, proximal=proximal
        )
        check_pull("--model.personal", personal)
        self.pull = personal
        self.scaffold = scaffold
        self.engine = engine
        self.cast = Cast(federation, adversaries)
        self.round = 0
        self.losses: dict[int, float] = {}
        self.personal_losses: dict[int, float] = {}
        self.watched: Scores = {}
        # In tuples: Lightning would move metrics and modules that are attributes, and count them as its own.
        self._measures = (measures or [],)
        self._loss = (loss,)
        self._objective = (objective,)

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Nothing: every participant has a model of its own.

        Raises:
            UserError: With where they are.
        """
        raise UserError(
            "Expected inputs for one of the participants' models, but a FederatedModule hosts several and is none "
            "itself; give trainer.predict(module, data) for all of them, or load one into a network, "
            "network.load_state_dict(RunFolder(...).weights(0))."
        )

    @classmethod
    def load_from_checkpoint(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Nothing: a checkpoint has a part for every participant, which a trainer brings to the rank that hosts it.

        Raises:
            UserError: With how that is done.
        """
        raise UserError(
            f"Expected a {cls.__name__} that is made as for its run, but got load_from_checkpoint; give the checkpoint "
            "as ckpt_path to trainer.fit, validate, test or predict, or load one final model into a network, "
            "network.load_state_dict(RunFolder(...).weights(0))."
        )

    def setup(self, stage: str) -> None:
        """Take in the participants that this rank hosts: anew to train, as they are to be evaluated after training.

        Raises:
            UserError: If network, data, attacks and trainer do not fit together, or ranks differ in what they start
                from.
        """
        self._strategy.together(lambda: self._set_up(stage))

    def _set_up(self, stage: str) -> None:
        """This rank's part of `setup`, whose error ends all ranks."""
        check_trainer(self.trainer, stage)
        check_same_federation(self.federation, self.data.federation)
        layers = layer_sizes(self.network)
        members = self.exchange.active if hasattr(self, "exchange") else {}
        self.exchange = self._strategy.exchange_for(self.federation, sum(layers))
        beside = {"--model.personal": 2 * (self.pull > 0), "--model.scaffold": int(self.scaffold)}
        check_memory(sum(layers), len(self.exchange.hosted), self.exchange.device, beside)
        check_state(self.network)
        tried = try_network(self.network, self.data, self.exchange.hosted, self.exchange.device)
        self.draws, self.channels_last = tried.draws, tried.channels_last
        if self.objective is None:
            warn_of_probabilities(self.network, tried.logits, self.loss)
        self.stacked = False
        if stage == "fit":
            warn_of_modes(self.network)
            warn_of_own_training(self.network)
            warn_of_unregistered(self.network)
            with random_stream(0, self.exchange.device):  # a dataset may draw at random; the run's own stream stays
                x, y = self.data.example(self.exchange.hosted[0])
                self._rehearse_training(torch.cat([x, x]), torch.cat([y, y]))
                self.stacked = self._can_be_stacked(x)
        # A trainer that has played goes on from a checkpoint, or is refused: models stay.
        anew = stage == "fit" and not self.trainer.fit_loop.epoch_progress.current.completed
        if anew or not hasattr(self, "cohort"):
            self.cohort = self._cohort_of(
                self.exchange.hosted, stacked=self.stacked, scaffold=self.scaffold, objective=self.objective
            )
            self.round, self.losses, self.watched = 0, {}, {}
            self.personal, self.personal_losses = self.new_cohort() if self.pull else None, {}
            if self.personal is not None:
                self.personal.train_in_stack_of(self.cohort)
        else:  # whoever was removed stays so
            here = self.exchange.active
            here.update({i: active for i, active in members.items() if i in here})
        self.cast.prepare(self.data.num_classes)
        if stage == "fit":
            with random_stream(0, self.exchange.device):
                self._rehearse_attacks()
        self.evaluation = Evaluation(self._measures[0], self.cast.measures(self.data.num_classes))
        with random_stream(0, self.exchange.device):
            self.evaluation.rehearse(tried.x, tried.logits, tried.y)
        self._identity: Identity | None = None

    def _rehearse_attacks(self) -> None:
        """Try every attack before training: omniscient uploads on rank 0, which makes them, all else at its host."""
        here = self.cast.attacks.keys() & {*self.exchange.hosted}
        for i in here:
            self.cast.rehearse(i, self.data.example(i)[0], self.data.num_classes)
        knowing = self.cast.omniscient.keys()
        uploading = (here - knowing) | (knowing if self.exchange.rank == 0 else set())
        self.cast.rehearse_rounds(uploading, self.initial_weights().to(self.exchange.device))

    def _rehearse_training(self, x: Tensor, y: Tensor) -> None:
        """Train copies for one step, with an objective for two rounds of one step, to report a misfit early.

        On the training device: autocast and the optimizer may fail there alone.
        """
        device = self.exchange.device
        network, loss = self.network, self.loss
        if device.type != "cpu":
            check_reach(network, x, y)
            network, loss = copy.deepcopy((network, loss))
            network, loss = network.to(device), None if loss is None else loss.to(device)
        x, y = x.to(device), y.to(device)
        with self.trainer.precision_plugin.train_step_context():
            trained = check_step(self.optimizer, network, x, y, loss)
            check_training_mode(network, x)
            check_in_place(trained, x, y)
            if self.objective is not None:
                check_objective(self.objective, self.optimizer, network, x, y, loss_on(device, loss))
        optimizer = self.new_optimizer()
        if self.scaffold:
            check_plain_steps(optimizer)
        warn_of_pulls(optimizer, {"--model.proximal": self.schedule.proximal, "--model.personal": self.pull})

    @property
    def _strategy(self) -> FederatedStrategy:
        if not isinstance(self.trainer.strategy, FederatedStrategy):
            raise UserError(
                f"Expected the trainer's strategy to be rffl_pl.strategy.FederatedStrategy, but got "
                f"{type(self.trainer.strategy).__name__}."
            )
        return self.trainer.strategy

    @property
    def data(self) -> FederatedDataModule:
        """The run's data module."""
        data = getattr(self.trainer, "datamodule", None)  # Lightning sets it where mypy cannot see
        if not isinstance(data, FederatedDataModule):
            got = "none" if data is None else type(data).__name__
            raise UserError(
                f"Expected the trainer to be given a FederatedDataModule as datamodule, but got {got}; write a "
                "subclass whose load gives Sources(train=..., test=...)."
            )
        return data

    def new_optimizer(self) -> torch.optim.Optimizer:
        """A participant's optimizer as it is made."""
        return make_optimizer(self.optimizer, self.network)

    def new_cohort(self) -> Cohort:
        """This rank's participants with the initial weights, to train without corrections and objective."""
        return self._cohort_of(self.exchange.hosted, stacked=self.stacked)

    def _cohort_of(
        self,
        participants: Sequence[int],
        *,
        stacked: bool = False,
        scaffold: bool = False,
        objective: Objective | None = None,
    ) -> Cohort:
        return Cohort(
            self.network, participants, self.optimizer, self.exchange.device, loss=self.loss, stacked=stacked,
            channels_last=self.channels_last, scaffold=scaffold, objective=objective, draws=self.draws,
        )  # fmt: skip

    @property
    def loss(self) -> nn.Module | None:
        """What participants train by; None is cross-entropy."""
        return self._loss[0]

    @property
    def objective(self) -> Objective | None:
        """What they minimise in its place; None is the loss alone."""
        return self._objective[0]

    @property
    def models(self) -> Cohort:
        """The hosted participants with the models that are measured and exported."""
        return self.cohort if self.personal is None else self.personal

    def _can_be_stacked(self, x: Tensor) -> bool:
        """Whether the engine is the stacked one; why not is said, if the user asked for it."""
        device = self.exchange.device
        if self.engine == "loop" or (self.engine == "auto" and device.type == "cpu"):
            return False
        network = copy.deepcopy(self.network).to(device)
        precision = self.trainer.precision_plugin.train_step_context
        made = make_optimizer(self.optimizer, network)
        alone = "--model.objective trains each by itself" if self.objective is not None else None
        why = alone or refusal(
            network,
            made,
            x.to(device),
            loss=loss_on(device, self.loss),
            precision=precision,
            moved=self.scaffold or self.pull > 0,
            channels_last=self.channels_last,
        )
        if why is not None:
            asked = "in spite of --model.engine stacked" if self.engine == "stacked" else "on this GPU"
            rank_zero_warn(f"Participants train one after another {asked}, since {why}.")
        return why is None

    def task(self) -> Task:
        """What a server is told before the first round."""
        coordinates = self._strategy.coordinates_of(sum(layer_sizes(self.network)))
        optimizer = self.new_optimizer()
        return Task(
            examples=self.data.shard_sizes,
            classes=self.data.classes,
            layers=layer_sizes(self.network),
            learning_rate=optimizer.param_groups[0]["lr"],
            optimizer=type(optimizer).__name__,
            seed=self.federation.seed_for("server"),
            initial=self.initial_weights()[coordinates.where].cpu(),  # also while Lightning has the network on a GPU
            accuracy=self._validated_accuracy(),
            root=self._root(),
            participation=self.federation.asked_share,
            tolerated=self.federation.tolerated,
            coordinates=coordinates,
        )

    def _validated_accuracy(self) -> Callable[[Tensor], float] | None:
        """Accuracy of weights on the server's validation examples, limited as validation is; None without any."""
        held_out, trainer = self.data.held_out_dataloader(), self.trainer
        if not isinstance(held_out, Batches):
            return None
        made, seed = partial(self._cohort_of, [0]), self.federation.seed_for("validation")
        return Validation(made, held_out, trainer.limit_val_batches, seed, trainer.precision_plugin).accuracy

    def _root(self) -> Root | None:
        """What the server learns itself from validation examples that are everybody's; None without any."""
        examples = self.data.root_examples()
        if examples is None:
            return None
        made, seed = partial(self._cohort_of, [0]), partial(self.federation.seed_for, "root training")
        return Root(made, examples, self.schedule, seed, self.trainer.precision_plugin)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """None, which Lightning would step: every participant has its own."""
        return []

    def training_step(self, batch: dict[int, Shard], batch_idx: int) -> None:
        """The round is the callback's to play: it has the server."""

    def completed(self, losses: dict[int, float], personal_losses: dict[int, float]) -> None:
        """Take note of a round that has been played."""
        self.round += 1
        self.losses, self.personal_losses, self.watched = losses, personal_losses, {}

    def score(self, batches: Evaluated, cohort: Cohort, title: str) -> Scores:
        """Scores of a cohort on the test set outside Lightning's test loop, limited as there.

        Who waits for seconds sees a progress bar of that title.
        """
        hidden = not self.trainer.is_global_zero or self.trainer.progress_bar_callback is None
        limit = self.trainer.limit_test_batches
        some, count = limited(batches, limit), how_many(batches, limit)
        shown = tqdm(some, title, count, leave=False, file=sys.stderr, disable=hidden, unit="batch", delay=2)
        with torch.inference_mode(), self.trainer.precision_plugin.val_step_context():
            return self.evaluation.of(iter(shown), cohort, apart=isinstance(batches, Joint))

    def on_validation_epoch_start(self) -> None:
        self.evaluation.start(self.models, apart=self.data.apart(self.data.watch))

    def on_test_epoch_start(self) -> None:
        self.evaluation.start(self.models, apart=self.data.apart("test"))

    def validation_step(self, batch: Batch | dict[int, Batch], batch_idx: int) -> None:
        """Evaluate every distinct hosted model on a batch."""
        self.evaluation.update(batch, self.models)

    def on_validation_epoch_end(self) -> None:
        """Keep the scores, and the honest participants' mean accuracy for callbacks that watch it.

        Loggers get everything from the report.
        """
        self.watched = self.evaluation.finish()
        mean = self._mean_of_honest(self.watched["accuracy"])
        self.log("accuracy/mean", mean, logger=False, sync_dist=True, reduce_fx="sum")  # to nothing, of the others

    def _mean_of_honest(self, hosted: Tensor) -> float:
        """Mean over the honest, bit for bit the same on any number of ranks, since callbacks compare it between rounds.

        A single-precision sum, rank by rank, would depend on who hosts whom, and so would the end of training. Where as
        many examples are right it is the same too.

        Args:
            hosted: Accuracies of the hosted participants, ``[n]``.

        Returns:
            The mean to six digits on rank 0, nothing elsewhere.
        """
        everybodys = enumerate(self.exchange.gather_rows(hosted[:, None]).flatten().tolist())
        honest = [value for i, value in everybodys if self.federation.is_honest(i)]
        return round(math.fsum(honest) / self.federation.honest, 6)

    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        self.watched = self.evaluation.finish()

    def predict_step(self, batch: Batch | dict[int, Batch], batch_idx: int) -> Tensor | dict[int, Tensor]:
        """Class probabilities of every hosted participant, ``[n, B, C]``; of examples of its own ``[B, C]`` each."""
        if isinstance(batch, dict):
            return {i: self._probabilities(own[0], self.cohort.row[i]) for i, own in batch.items()}
        return torch.stack([self._probabilities(batch[0], k) for k in range(len(self.cohort.participants))])

    def _probabilities(self, x: Tensor, index: int) -> Tensor:
        return self.models.logits(x, index).float().softmax(-1)

    def identity(self) -> Identity:
        """What a checkpoint and the run that loads it must agree on."""
        if self._identity is None:
            self._identity = identity(self.network, self.federation, self.data.identity(), self.new_optimizer())
        return self._identity

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The hosted participants' part; `rffl_pl.runs.checkpoint` says who writes what."""
        cohort = self.cohort
        checkpoint["federation"] = {
            "identity": self.identity(),
            "round": self.round,
            "total": self.federation.total,
            "members": dict(sorted(self.exchange.active.items())),
            "participants": {i: partial(self._state_of, index) for index, i in enumerate(cohort.participants)},
        }

    def _state_of(self, index: int) -> dict[str, Any]:
        """What a checkpoint keeps of a hosted participant."""
        personal = {} if self.personal is None else {"personal": self.personal.state_dict(index)}
        return self.cohort.state_dict(index) | personal

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the hosted participants' rows, wherever they were hosted before.

        Raises:
            UserError: If the checkpoint is of another model, data set or federation.
        """
        saved = checkpoint["federation"]
        training = self.trainer.state.fn == TrainerFn.FITTING
        with sound(self.trainer.ckpt_path):
            if not check_identity(saved["identity"], self.identity(), training=training):
                rank_zero_warn("These are other examples than those that the checkpoint's run was measured on.")
            self.round = saved["round"]
            for index, participant in enumerate(self.cohort.participants):
                state = saved["participants"][participant]
                self.cohort.load_state_dict(index, state, training=training)
                if self.personal is not None:
                    self.personal.load_state_dict(index, _personal(state), training=training)
                elif "personal" in state and index == 0 and not training:
                    rank_zero_warn(
                        "These are the models that participants share; of the checkpoint's run those of their own were "
                        "measured, as with --model.personal."
                    )
            self.exchange.active.update(saved["members"])

    def initial_weights(self) -> Tensor:
        """The weights ``[D]`` that every participant starts from."""
        return flat_parameters(self.network)


def _personal(state: dict[str, Any]) -> dict[str, Any]:
    """A participant's personal model in a checkpoint.

    Raises:
        UserError: If it has none.
    """
    if "personal" not in state:
        raise UserError(
            "Expected the checkpoint of a run with --model.personal, but it has no personal models; leave the option "
            "out, or begin anew."
        )
    found: dict[str, Any] = state["personal"]
    return found
