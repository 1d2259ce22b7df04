"""The standalone reference: what every participant reaches alone."""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from rffl_pl.callbacks.checkpointing import rounds_kept
from rffl_pl.callbacks.ending import over
from rffl_pl.datamodules.augmenting import changed
from rffl_pl.errors import at_home
from rffl_pl.files import replaced, user_cache
from rffl_pl.functional.fingerprints import raw
from rffl_pl.functional.streams import random_stream
from rffl_pl.module import FederatedModule
from rffl_pl.runs.settings import attributes, data_settings, loss_settings, optimizer_settings
from rffl_pl.runs.written import code, sources
from rffl_pl.strategy import FederatedStrategy
from rffl_pl.training.parameters import modes_kept, sharing_copy, trainable
from rffl_pl.training.schedule import Schedule, loss_on, make_optimizer

_SAMPLE = 32
"""Examples of a data set by which it is known again, where its inputs do not lie in memory."""

_FEW = 4
"""Examples of a data set that the network is known again by."""

_TRIED = 8
"""Examples that the network is trained on for a few steps, whose losses tell one way of training from others."""

_STEEP = (1.0, 1e3)
"""Factors on the loss in these steps: a bound on gradients, say, may only act on the larger one."""

Known = tuple[Tensor, Tensor]
"""Test accuracies of the initial network and of whoever trains alone, ``[P]`` each."""


class StandaloneReference(Callback):
    r"""Trains every participant without communication, after the run: the x of fairness.

    Adversaries too, honestly, so that what they took can be told. Same initial weights, shards, schedule, seeds and
    number of rounds as the run, without what draws to a shared model; :math:`w_i \leftarrow w_i + \Delta_i`. Every
    rank trains the participants it hosts.
    The result depends on nothing else, so it is trained once and kept.

    Args:
        enabled: Whether to train it at all; without it there is no fairness.
        cache_dir: Where references are kept; by default ``rffl_pl/standalone`` in the user's cache folder.

    Attributes:
        accuracies: Test accuracies of all participants, ``[P]``, on rank 0 after training; else None.
        initial: Test accuracies ``[P]`` of the network that everybody starts from, on rank 0 after training, else None;
            the same for all that are measured on the same examples.
    """

    def __init__(self, enabled: bool = True, cache_dir: str | None = None) -> None:
        self.enabled = enabled
        self.cache_dir = cache_dir and at_home("--standalone.cache_dir", cache_dir)
        self.accuracies: Tensor | None = None
        self.initial: Tensor | None = None
        self._sources: dict[str, str] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A run that was interrupted after its last round has no training left to end."""
        assert isinstance(pl_module, FederatedModule)
        self.accuracies = self.initial = None  # of another trainer's run
        if self.enabled:  # now: while the run lasts somebody may write on
            layers = [*pl_module.network.modules(), *(pl_module.loss.modules() if pl_module.loss else ())]
            kinds = {type(layer) for layer in layers}
            data = pl_module.data
            theirs = map(type, (data, data.split, *([] if data.augment is None else [data.augment])))
            self._sources = sources([*kinds, *map(type, pl_module.cohort.optimizers), *theirs])
        if over(trainer, pl_module):
            self.on_train_end(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Train the reference or read it from the cache."""
        assert isinstance(pl_module, FederatedModule)
        if self.enabled:
            with rounds_kept(trainer):
                self._take(trainer, pl_module)

    def _take(self, trainer: Trainer, pl_module: FederatedModule) -> None:
        path = self._folder() / f"{self._key(trainer, pl_module)}.json"
        known = self._read(path) if trainer.is_global_zero else None
        if not trainer.strategy.broadcast(known is not None):
            known = self._train(trainer, pl_module)
            if trainer.is_global_zero:
                self._write(path, known)
        if trainer.is_global_zero:
            assert known is not None
            self.initial, self.accuracies = known

    def _train(self, trainer: Trainer, module: FederatedModule) -> Known:
        """Test accuracies of the initial network and of all participants, on rank 0."""
        data = module.data
        cohort = module.new_cohort()
        cohort.train_in_stack_of(module.cohort)  # the examples lie on the device once
        hosted, shards = dict(enumerate(cohort.participants)), next(iter(data.train_dataloader()))
        test, schedule = data.test_dataloader(), _alone(module.schedule)
        initial = module.score(test, cohort, "initial network")["accuracy"]
        rounds = tqdm(
            range(module.round),
            desc="standalone reference",
            unit="round",
            file=sys.stderr,
            disable=not trainer.is_global_zero or trainer.progress_bar_callback is None,
        )
        with torch.enable_grad(), trainer.precision_plugin.train_step_context():
            for round_index in rounds:
                seeds = {k: module.federation.seed_for("training", i, round_index) for k, i in hosted.items()}
                cohort.train_all({k: shards[i] for k, i in hosted.items()}, schedule, round_index, seeds)
                trainer.strategy.barrier("standalone")  # so that the bar shows the slowest rank
        accuracies = module.score(test, cohort, "standalone evaluation")["accuracy"]
        initial, accuracies = module.exchange.gather_rows(torch.stack([initial, accuracies], 1)).cpu().unbind(1)
        return initial, accuracies

    def _folder(self) -> Path:
        return Path(self.cache_dir) if self.cache_dir else user_cache() / "standalone"

    def _key(self, trainer: Trainer, module: FederatedModule) -> str:
        """A digest of what the reference depends on: of inputs not in memory, and of everybody's own, a sample.

        Of the network, what it prints, keeps, starts from, and makes of the sample; of its training, the options, and
        the losses of some steps; of the data, its options, and what is made of the sample at random; how a user's own
        classes are written, and what of the package trains and measures.
        """
        data, optimizer = module.data, module.new_optimizer()
        parts = (
            "initial network and everybody",
            module.identity(),
            repr(_alone(module.schedule)),
            optimizer_settings(optimizer),
            type(module.cohort.optimizers[0]).__name__,
            module.round,
            {name: value for name, value in data_settings(data).items() if name != "--data.watch"},
            data.batch_size,
            str(trainer.precision),
            str(trainer.limit_test_batches),
            None if str(trainer.limit_test_batches) == "1.0" else data.eval_batch_size,
            module.exchange.device.type,
            repr(module.network),
            {name: attributes(layer) for name, layer in module.network.named_modules()},
            self._sources,
            code("adversaries", "launch", "rehearsal", "round", "runs", "servers"),
            torch.__version__,
            data.test_sample,
            *(["stacked"] if module.stacked else []),
            *_of_some(module.network, optimizer),
            *([loss_settings(module.loss)] if module.loss else []),
            _of_steps(trainer, module),
        )
        digest = hashlib.sha256(json.dumps([*parts, *_of_own_inputs(trainer, module)], sort_keys=True).encode())
        with random_stream(0, module.exchange.device):  # a dataset may draw at random
            inputs = [x for x, _ in data.common_examples(_SAMPLE)]
            given = [_logits(module.network, x) for x, _ in data.common_examples(_FEW, in_memory=True)]
            seen = data.common_examples(_SAMPLE, in_memory=True) if data.augment else []  # images are read for it
            made = _augmented(module, [x for x, _ in seen])
        for tensor in (module.initial_weights(), *module.network.buffers(), *inputs, *given, *made):
            digest.update(raw(tensor))
        return digest.hexdigest()[:24]

    @staticmethod
    def _read(path: Path) -> Known | None:
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            accuracies = torch.tensor(known["accuracies"], dtype=torch.float32)
            return torch.tensor(known["initial"], dtype=torch.float32).expand(len(accuracies)), accuracies
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return None  # absent or damaged: train it again

    @staticmethod
    def _write(path: Path, known: Known) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(path) as partial:  # which another run may be doing too
                told = {"initial": known[0].tolist(), "accuracies": known[1].tolist()}
                partial.write_text(json.dumps(told), encoding="utf-8")
        except OSError as error:
            warnings.warn(f"The standalone reference cannot be kept in {path.parent}: {error}.", stacklevel=2)


def _alone(schedule: Schedule) -> Schedule:
    """The schedule of participants who train alone: without the proximal term, for want of a shared model."""
    return replace(schedule, proximal=0.0)


def _of_some(network: nn.Module, optimizer: Optimizer) -> list[list[list[int]]]:
    """Which parameters each group of an optimizer has, by their places; nothing of one that has all in one."""
    places = {id(p): place for place, p in enumerate(trainable(network))}
    groups = [[places[id(p)] for p in group["params"]] for group in optimizer.param_groups]
    return [] if groups == [[*places.values()]] else [groups]


def _of_steps(trainer: Trainer, module: FederatedModule) -> list[str]:
    """The losses of some steps of training on participant 0's examples, in three digits; the same on every rank.

    What a dropout, a loss or an optimizer goes by may come from outside, and then no option and no file says it. Losses
    alone: weights that they hardly depend on, as a bias before BatchNorm, go where rounding has them go.
    """
    device = module.exchange.device
    with random_stream(0, device):  # a dataset may draw at random
        x, y = module.data.example(module.exchange.hosted[0], _TRIED)
    at = torch.arange(max(2, len(y))) % len(y)  # batch normalisation has no variance of a single example
    x, y = module.cohort.placed(x[at]), y[at].to(device, torch.int64)
    losses = []
    for times in _STEEP:
        network = sharing_copy(module.network).to(device).train()
        optimizer, criterion = make_optimizer(module.optimizer, network), loss_on(device, module.loss)
        with torch.enable_grad(), random_stream(0, device):
            try:
                for _ in range(3):
                    optimizer.zero_grad()
                    with trainer.precision_plugin.train_step_context():
                        logits = network(x)
                        loss = criterion(logits.float() if module.loss else logits, y)
                    losses.append(f"{float(loss.detach()):.2e}")
                    (times * loss).backward()
                    optimizer.step()
            except Exception as error:  # steps that are so steep may lead to where nobody trains
                losses.append(type(error).__name__)
    assert isinstance(trainer.strategy, FederatedStrategy)
    told = trainer.strategy.everybodys((module.exchange.hosted[0], losses))
    return next(theirs for first, theirs in told if first == 0)  # participants are dealt out: 0 is its host's first


def _logits(network: nn.Module, x: Tensor) -> Tensor:
    """What a network makes of inputs: what it computes by may be nothing that it prints or keeps."""
    with modes_kept(network), torch.inference_mode():
        logits: Tensor = network.eval()(x.to(next(network.parameters()).device))
    return logits


def _augmented(module: FederatedModule, inputs: list[Tensor]) -> list[Tensor]:
    """What an augmentation, if there is one, makes of inputs: that may depend on what no option says."""
    augment = module.data.augment
    return [] if augment is None else [changed(augment, x.clone()) for x in inputs]


def _of_own_inputs(trainer: Trainer, module: FederatedModule) -> list[list[tuple[int, str]]]:
    """Of everybody's own examples a sample's digests, by participant, the same on every rank; else nothing."""
    if not module.data.apart("training"):
        return []
    told: list[tuple[int, str]] = []
    for i in module.exchange.hosted:
        with random_stream(0, module.exchange.device):  # a dataset may draw at random
            inputs = [x for x, _ in module.data.own_examples(i, _SAMPLE).values()]
            samples = [*inputs, *(_logits(module.network, x) for x in inputs), *_augmented(module, inputs)]
        told.append((i, hashlib.sha256(b"".join(map(raw, samples))).hexdigest()[:16]))
    assert isinstance(trainer.strategy, FederatedStrategy)
    return [sorted((i, digest) for theirs in trainer.strategy.everybodys(told) for i, digest in theirs)]
