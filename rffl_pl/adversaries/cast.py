"""Who plays which adversary: the one place that knows who attacks, and how."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from rffl_pl.adversaries.base import Adversary, OmniscientAdversary, Situation, each_once
from rffl_pl.errors import GO_ON, UserError, is_packaged, ones_own
from rffl_pl.federation import Federation
from rffl_pl.functional.fingerprints import described, left_alone, stays
from rffl_pl.functional.kept import check_tensors, kept_apart
from rffl_pl.functional.streams import random_stream
from rffl_pl.training.schedule import Batches, Examples


class Cast:
    """The adversaries of a federation: adversary j carries out attack j modulo the number of attacks.

    Args:
        federation: Who takes part.
        attacks: What adversaries do, in turn.

    Raises:
        UserError: If there are adversaries but no attack, or fewer than attacks.
    """

    def __init__(self, federation: Federation, attacks: Sequence[Adversary] | None) -> None:
        if federation.adversaries and not attacks:
            raise UserError(
                f"Expected --adversaries to say what the {federation.adversaries} adversaries do, but it is empty; "
                "give for instance --adversaries '[FreeRider]'."
            )
        given: object = attacks or ()
        if not isinstance(given, Sequence) or not all(isinstance(attack, Adversary) for attack in given):
            raise UserError(f"Expected adversaries to be a list of attacks, as [FreeRider()], but got {attacks}.")
        if attacks and 0 < federation.adversaries < len(attacks):
            names = [type(attack).__name__ for attack in attacks]
            idle = names[federation.adversaries :]
            raise UserError(
                "Expected --adversaries to name no more attacks than --federation.adversaries "
                f"{federation.adversaries}, but got {', '.join(names)}, of which {' and '.join(idle)} would not be "
                f"played; give --adversaries '[{', '.join(idle)}]', which takes the place of what a configuration "
                "names, or more adversaries."
            )
        self.federation = federation
        numbers = range(federation.honest, federation.total)
        self.attacks = {i: attacks[j % len(attacks)] for j, i in enumerate(numbers)} if attacks else {}
        """What every adversary does, by participant."""
        self.omniscient = {i: attack for i, attack in self.attacks.items() if isinstance(attack, OmniscientAdversary)}
        """Those who are shown the honest uploads."""

    def prepare(self, num_classes: int) -> None:
        """Have every attack look at its task.

        Raises:
            UserError: If one does not fit it.
        """
        for attack in self.attacks.values():
            with ones_own(attack, "--adversaries", "prepare for its task"):
                attack.prepare(num_classes)

    def rehearse(self, participant: int, x: Tensor, num_classes: int) -> None:
        """Have a copy of an attack make examples to train with and to be measured on: what fails is told before a run.

        That it keeps something of them is told too.

        Args:
            participant: Its number.
            x: Inputs ``[1, ...]``; they are tried with every class.
            num_classes: C.

        Raises:
            UserError: If it fails, makes other classes, or changes itself.
        """
        attack = self.attacks[participant]
        with _copied(attack) as tried:
            self._rehearse_examples(attack, tried, x, num_classes)

    def _rehearse_examples(self, attack: Adversary, tried: Adversary, x: Tensor, num_classes: int) -> None:
        """Try the copy ``tried`` of ``attack`` on examples.

        Raises:
            UserError: If it fails, or makes other classes.
        """
        given = x.expand(num_classes, *x.shape[1:]).clone(), torch.arange(num_classes)
        alone = f"--adversaries {type(attack).__name__} to leave examples as they are"
        if _reported(attack, num_classes):
            doing = "make the examples that its success is measured on"
            with ones_own(attack, "--adversaries", doing), left_alone(f"{alone} in probe", *given):
                tried.probe(*given)
        doing = "make the examples that it trains with"
        with ones_own(attack, "--adversaries", doing), left_alone(f"{alone} in poison or labels", *given):
            x, y = tried.poison(*given)
            whole = len(x) == len(y) and not y.is_floating_point()
            wrong = y[(y < 0) | (y >= num_classes)] if whole else y
        if not whole or len(wrong):
            got = f"class {wrong[0]}" if whole else f"{y.dtype} of shape {list(y.shape)} for {len(x)} of them"
            raise UserError(
                f"Expected --adversaries {_with_options(attack)} to train with a class in 0 .. {num_classes - 1} for "
                f"every example, but got {got}; mend its labels or poison."
            )

    def rehearse_rounds(self, participants: Iterable[int], model: Tensor) -> None:
        """Have a copy of every attack of one's own upload in two rounds, which a run would find out in its course.

        Args:
            participants: Whose attacks are looked at.
            model: Weights ``[D]``.

        Raises:
            UserError: If one fails, uploads what nobody can send, or changes itself.
        """
        theirs = {id(self.attacks[i]): i for i in participants}  # each object once: it may have no hash
        for participant in theirs.values():
            attack = self.attacks[participant]
            if not is_packaged(type(attack)):
                with _copied(attack) as tried:
                    self._rehearse_rounds(attack, tried, participant, model)

    def _rehearse_rounds(self, attack: Adversary, tried: Adversary, participant: int, model: Tensor) -> None:
        """Try the copy ``tried`` of ``attack`` in two rounds.

        Raises:
            UserError: If it fails, or uploads what nobody can send.
        """
        memory: dict[str, Tensor] = {}
        for number in range(2):
            drawn = 0.01 * torch.randn(model.shape).to(model)
            with ones_own(attack, "--adversaries", "play a round"):
                update = drawn if tried.trains_in(number) else torch.zeros_like(drawn)
                known = self._as_many_as_honest(drawn) if isinstance(tried, OmniscientAdversary) else None
                facts: dict[str, Any] = {"memory": memory, "update": update, "model": model.clone(), "honest": known}
                facts["adversaries"] = self.federation.adversaries
                situation = self.situation(participant, number, **facts)
                with _update_left(attack, update):
                    upload = (tried.collude if isinstance(tried, OmniscientAdversary) else tried.upload)(situation)
            _sent(attack, upload, situation)
            self.remember(participant, memory, drawn)

    def _as_many_as_honest(self, update: Tensor) -> Tensor:
        """Different rows ``[h, D]``, one for each of the honest who are asked in the first round."""
        honest = sum(map(self.federation.is_honest, self.federation.asked(range(self.federation.total), 0)))
        return torch.stack([update.roll(1 + k) for k in range(max(1, honest))])

    def trains(self, participant: int, round_index: int) -> bool:
        """Whether a participant trains in a round when it is asked to."""
        attack = self.attacks.get(participant)
        if attack is None:
            return True
        seed = self.federation.seed_for("whether it trains", participant, round_index)
        saying = ones_own(attack, "--adversaries", f"say whether it trains in round {round_index + 1}", GO_ON)
        with random_stream(seed, torch.device("cpu")), saying:
            return attack.trains_in(round_index)

    def examples(self, participant: int, shard: Examples) -> Examples:
        """What a participant takes for its training examples."""
        attack = self.attacks.get(participant)
        return Poisoned(shard, attack.poison) if attack is not None and _poisons(attack) else shard

    def forge(self, situation: Situation) -> Tensor:
        """What an adversary uploads, ``[D]``; of an omniscient one, until it colludes, its update."""
        attack = self.attacks[situation.participant]
        if isinstance(attack, OmniscientAdversary):
            return situation.update
        forging = ones_own(attack, "--adversaries", f"forge its upload in round {situation.round + 1}", GO_ON)
        with self._drawing("forging", situation), forging, _update_left(attack, situation.update):
            upload = attack.upload(situation)
        return _sent(attack, upload, situation)

    def collude(self, situation: Situation) -> Tensor:
        """What an omniscient adversary uploads, ``[D]``."""
        attack = self.omniscient[situation.participant]
        colluding = ones_own(attack, "--adversaries", f"collude in round {situation.round + 1}", GO_ON)
        with self._drawing("colluding", situation), colluding, _update_left(attack, situation.update):
            upload = attack.collude(situation)
        return _sent(attack, upload, situation)

    def _drawing(self, purpose: str, situation: Situation) -> AbstractContextManager[None]:
        """Seed the global streams too, so that attacks draw alike on any rank."""
        seed = self.federation.seed_for(purpose, situation.participant, situation.round)
        return random_stream(seed, situation.update.device)

    def remember(self, participant: int, memory: dict[str, Tensor], download: Tensor) -> None:
        """Keep the step ``[D]`` that an adversary has received, if its attack goes by it."""
        attack = self.attacks.get(participant)
        if attack is not None and attack.keeps_download:
            memory[_DOWNLOAD] = download.clone()

    def situation(self, participant: int, round_index: int, *, memory: dict[str, Tensor], **facts: Any) -> Situation:
        """A participant's situation in a round, with a stream of its own and one that all adversaries have alike."""
        own = self.federation.seed_for("attack", participant, round_index)
        agreed = self.federation.seed_for("agreed attack", round_index)
        return Situation(
            round=round_index,
            participant=participant,
            memory=memory,
            download=memory.get(_DOWNLOAD),
            generator=torch.Generator().manual_seed(own),
            agreed=torch.Generator().manual_seed(agreed),
            **facts,
        )

    def measures(self, num_classes: int) -> Mapping[str, tuple[Metric, Adversary]]:
        """What attacks measure of every model, by name, with the attack that says on which examples.

        Raises:
            UserError: If two attacks that differ report under one name.
        """
        found: dict[str, tuple[Metric, Adversary]] = {}
        for attack in each_once(self.attacks.values()):
            for name, metric in _reported(attack, num_classes).items():
                other = found.setdefault(name, (metric, attack))[1]
                if other.settings() != attack.settings():
                    raise UserError(
                        f"Expected all adversaries that report {name} to do the same, but got "
                        f"{_with_options(other)} and {_with_options(attack)}; take one of them."
                    )
        return found


class Poisoned:
    """A shard as its holder pretends it is.

    Args:
        shard: The examples.
        poison: From a batch, inputs and classes, to the one that is trained with.
    """

    def __init__(self, shard: Examples, poison: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        self.shard, self.poison = shard, poison

    def __len__(self) -> int:
        return len(self.shard)

    @property
    def batches(self) -> int:
        """How many mini-batches a pass has."""
        return self.shard.batches

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """As the shard's, batch for batch."""
        return self._poisoned(self.shard.epoch())

    def steps(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """As the shard's, batch for batch."""
        return self._poisoned(self.shard.steps(count))

    def in_order(self) -> Iterator[tuple[Tensor, Tensor]]:
        """As the shard's, batch for batch."""
        return self._poisoned(self.shard.in_order())

    def _poisoned(self, batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
        """Without those of which nothing is left.

        Raises:
            UserError: If nothing is left of all.
        """
        left = 0
        for x, y in (self.poison(*batch) for batch in batches):
            left += len(y)
            if len(y):
                yield x, y
        if not left:
            raise UserError(
                "Expected poison of --adversaries to leave an example to train with, but it leaves none of a pass; "
                f"{GO_ON}."
            )


_DOWNLOAD = "download"


@contextmanager
def _copied(attack: Adversary) -> Iterator[Adversary]:
    """A copy of an attack, to be rehearsed.

    Raises:
        UserError: If it cannot be copied, or changes itself.
    """
    with ones_own(attack, "--adversaries", "be copied", "have it keep no locks or open files"):
        tried = copy.deepcopy(attack)
    remedy = "keep what belongs to a participant in situation.memory"
    with stays(f"--adversaries {type(attack).__name__}", tried, remedy):
        yield tried


def _poisons(attack: Adversary) -> bool:
    """Whether an attack may train with other examples than its shard has; those of whoever does not stay in memory."""
    poison, labels = type(attack).poison, type(attack).labels
    return poison is not Adversary.poison or labels is not Adversary.labels


def _reported(attack: Adversary, num_classes: int) -> dict[str, Metric]:
    """What an attack measures of every model, by name."""
    with ones_own(attack, "--adversaries", "say what it measures"):
        return {**attack.measures(num_classes)}


def _update_left(attack: Adversary, update: Tensor) -> AbstractContextManager[None]:
    """Where an attack is given its update, which its own model takes, too."""
    if is_packaged(type(attack)):
        return nullcontext()
    return left_alone(f"--adversaries {_with_options(attack)} to leave its update as it is", update)


def _sent(attack: Adversary, upload: Any, situation: Situation) -> Tensor:
    """An upload in the dtype of the update.

    Raises:
        UserError: If it is no tensor of real numbers in the update's shape, or the attack remembers what no checkpoint
            keeps.
    """
    like = situation.update
    dense = upload if isinstance(upload, Tensor) and upload.layout == torch.strided else None
    if dense is None or dense.shape != like.shape or dense.is_complex():
        laid_out = "" if dense is not None or not isinstance(upload, Tensor) else f" and {upload.layout}"
        raise UserError(
            f"Expected --adversaries {_with_options(attack)} to upload a dense tensor of real numbers in the update's "
            f"shape {list(like.shape)}, but got {described(upload, dtype=True)}{laid_out}; have it return one entry "
            "for each of the update's."
        )
    check_tensors(f"--adversaries {_with_options(attack)}", situation.memory)
    kept_apart(situation.memory, like)
    return dense.to(like)


def _with_options(attack: Adversary) -> str:
    """A class with its options, ``LabelFlip (source 1, target 7)``."""
    options = ", ".join(f"{name.removeprefix('.')} {value}" for name, value in attack.settings().items() if name)
    return type(attack).__name__ + (f" ({options})" if options else "")
