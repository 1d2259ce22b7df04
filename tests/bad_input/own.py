"""Classes of a user's own, each with one mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torchmetrics import Metric

from rffl_pl import launch
from rffl_pl.adversaries import Adversary, Situation
from rffl_pl.datamodules import FederatedDataModule, Pool, Sources, Split
from rffl_pl.servers import Consensus, Evidence, FedAvg, Server, Task, Verdict

X = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
GOOD = TensorDataset(X, Y)


class Streamed(IterableDataset[Any]):
    """Has no numbered examples."""

    def __iter__(self) -> Iterator[Any]:
        return iter([(X[0], 0)])

    def __len__(self) -> int:
        return 200


class Numbered(Dataset[Any]):
    """Fifty examples, each of which ``item`` makes."""

    def __init__(self, item: Any, length: int = 50) -> None:
        self.item, self.length = item, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


class Labelled(Numbered):
    """Likewise, with labels that need no reading."""

    targets = tuple(i % 2 for i in range(50))


def torn(index: int) -> Any:
    """An example that the disk does not give."""
    if index == 30:
        raise OSError("disk gone")
    return X[index], index % 2


def raising(error: Exception) -> Any:
    """What a user's own code meets."""
    raise error


LOADED: dict[str, Any] = {
    "all that is needed": lambda: Sources(train=GOOD, test=GOOD),
    "nothing": lambda: None,
    "a pair": lambda: (GOOD, GOOD),
    "no training set": lambda: Sources(train=None, test=GOOD),  # type: ignore[arg-type]
    "no test set": lambda: Sources(train=GOOD, test=None),  # type: ignore[arg-type]
    "a stream": lambda: Sources(train=Streamed(), test=GOOD),
    "dictionaries": lambda: Sources(train=Numbered(lambda i: {"x": X[i], "label": 0}), test=GOOD),
    "a loader": lambda: Sources(train=DataLoader(GOOD), test=GOOD),  # type: ignore[arg-type]
    "a generator": lambda: Sources(train=((x, 0) for x in X), test=GOOD),  # type: ignore[arg-type]
    "a file name": lambda: Sources(train="train.csv", test=GOOD),  # type: ignore[arg-type]
    "a tensor": lambda: Sources(train=X, test=GOOD),  # type: ignore[arg-type]
    "a negative length": lambda: Sources(train=Numbered(lambda i: (X[i], 0), -1), test=GOOD),
    "no examples": lambda: Sources(train=TensorDataset(X[:0], Y[:0]), test=GOOD),
    "no test examples": lambda: Sources(train=GOOD, test=TensorDataset(X[:0], Y[:0])),
    "double precision": lambda: Sources(train=TensorDataset(X.double(), Y), test=TensorDataset(X.double(), Y)),
    "NaN": lambda: Sources(train=TensorDataset(X / 0 * 0, Y), test=GOOD),
    "features of a network": lambda: Sources(train=TensorDataset(nn.Linear(2, 2)(X), Y), test=GOOD),
    "features one by one": lambda: Sources(train=GOOD, test=Labelled(lambda i: (nn.Linear(2, 2)(X[i]), i % 2))),
    "a class too many": lambda: Sources(train=TensorDataset(X, Y + 1), test=GOOD),
    "half a class": lambda: Sources(train=TensorDataset(X, Y + 0.5), test=GOOD),
    "three tensors": lambda: Sources(train=TensorDataset(X, Y, Y), test=GOOD),
    "other inputs than the test's": lambda: Sources(train=TensorDataset(X[:, :1], Y), test=GOOD),
    "other inputs to validate": lambda: Sources(train=GOOD, test=GOOD, validation=TensorDataset(X[:, :1], Y)),
    "complex inputs": lambda: Sources(train=TensorDataset(X + 1j, Y), test=GOOD),
    "ragged inputs": lambda: Sources(train=GOOD, test=Labelled(lambda i: (torch.zeros(2 + i % 2), 0))),
    "names of classes": lambda: Sources(train=Numbered(lambda i: (X[i], "cat")), test=GOOD),
    "several classes": lambda: Sources(train=TensorDataset(X, torch.stack([Y, Y, Y], 1)), test=GOOD),
    "words as inputs": lambda: Sources(train=Numbered(lambda i: ("cat", 0)), test=GOOD),
    "a torn file": lambda: Sources(train=Numbered(torn), test=GOOD),
    "a torn file found late": lambda: Sources(train=GOOD, test=Labelled(torn)),
    "no file": lambda: raising(FileNotFoundError(2, "No such file or directory", "rings.npz")),
    "a bug": lambda: raising(KeyError("rings")),
}


class Data(FederatedDataModule):
    """Loads what its option says."""

    num_classes = 2

    def __init__(self, federation: Any, *, what: str, **kwargs: Any) -> None:
        super().__init__(federation, **kwargs)
        self.what = what

    def load(self) -> Sources:
        loaded: Sources = LOADED[self.what]()
        return loaded


class Alone(Data):
    """Has nobody told that it is a data module."""

    def __init__(self, federation: Any, **kwargs: Any) -> None:
        self.what = "all that is needed"


class Begun(Data):
    """Does in setup what it means to, and not what is to be done."""

    def setup(self, stage: str) -> None:
        self.scale = 2.0


class Moving(Data):
    """Changes batches where Lightning does, which is not where participants train."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


class Narrow(FederatedDataModule):
    """Passes none of its base's options on."""

    num_classes = 2

    def __init__(self, federation: Any) -> None:
        super().__init__(federation)

    def load(self) -> Sources:
        return Sources(train=GOOD, test=GOOD)


class Elsewhere(Data):
    """Loads well on the server's rank alone."""

    def load(self) -> Sources:
        if launch.rank():
            raise OSError("rank 1 has no such file")
        return super().load()


class Unnumbered(Data):
    """Does not say how many classes there are."""

    num_classes = None  # type: ignore[assignment]


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flat: nn.Module = nn.Flatten()
        self.linear: nn.Module = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Any:
        return self.linear(self.flat(x))


class Frozen(_Network):
    """Trains nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Double(_Network):
    """Has other numbers than travel."""

    def __init__(self) -> None:
        super().__init__()
        self.double()


class Paired(_Network):
    """Gives more than logits."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), x


class Searching(_Network):
    """Looks for what is not there."""

    def forward(self, x: Tensor) -> Any:
        found: dict[str, Any] = {}
        return found["logits"]


class Detached(_Network):
    """Lets no gradient through."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x).detach()


class Assisted(_Network):
    """Gives more than logits in training."""

    def forward(self, x: Tensor) -> Any:
        return (super().forward(x), x) if self.training else super().forward(x)


class Crashing(_Network):
    """Looks for what is not there in training."""

    def forward(self, x: Tensor) -> Any:
        found: dict[str, Any] = {}
        return found["logits"] if self.training else super().forward(x)


class Unnormalised(_Network):
    """Nothing is wrong with it: its normalisation goes by the batch at hand, in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Sequential(nn.Linear(64, 10), nn.BatchNorm1d(10, track_running_stats=False))


class Outer:
    """Has a network inside."""

    class Inner(_Network):
        """Nothing is wrong with it."""

    @classmethod
    def made(cls) -> nn.Module:
        return cls.Inner()


def made(width: int = 10) -> nn.Module:
    """A network by a function, likewise."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width))


MADE = made()
"""One that there is before any seed is set."""


def unsaid(width=10):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Likewise, but does not say so, which is the mistake."""
    return made(width)


class Nameless(torch.optim.Optimizer):
    """Calls its learning rate something else."""

    def __init__(self, params: Any, *, step_size: float = 0.1) -> None:
        super().__init__(params, {"step_size": step_size})

    def step(self, closure: Any = None) -> Any:
        """Nothing."""


class Stately(_Network):
    """Keeps what is no tensor."""

    def get_extra_state(self) -> Any:
        return {"version": 3}


class Unmade(nn.Module):
    """Forgets its base."""

    def __init__(self) -> None:
        self.linear = nn.Linear(64, 10)


class Learned(nn.Module):
    """A loss that would be trained by nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return self.scale * nn.functional.cross_entropy(logits, y)


class Averaged(nn.Module):
    """A loss that goes by the batches before."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(logits, y)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        return loss / self.mean


class Warming(nn.Module):
    """A loss that counts its batches, where nobody sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        self.batches += 1
        return nn.functional.cross_entropy(logits, y) / self.batches


class Wrong(nn.Module):
    """A loss that counts mistakes."""

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return (logits.argmax(1) != y).float().mean()


class Unlike(nn.Module):
    """Calls no constructor of torch's."""

    def __init__(self) -> None:
        self.power = 2.0

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, y) ** self.power


class Several(nn.Module):
    """A loss that gives more than a number."""

    def forward(self, logits: Tensor, y: Tensor) -> Any:
        return nn.functional.cross_entropy(logits, y), {"extra": 0}


class _Measure(Metric):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("seen", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, logits: Tensor, y: Tensor) -> None:
        self.seen = self.seen + len(y)

    def compute(self) -> Any:
        return self.seen


class Reputation(_Measure):
    """Is called as something else."""


class AccuracyMean(_Measure):
    """Likewise in the tables of studies."""


class AttackSuccess(_Measure):
    """Likewise by attacks."""


class Eleventh(_Measure):
    """Looks for a class too many."""

    def update(self, logits: Tensor, y: Tensor) -> None:
        self.seen = self.seen + logits[:, 10].sum()


class Late(_Measure):
    """Fails with all examples, which it does not with one batch."""

    def compute(self) -> Any:
        return {64: 1.0}[int(self.seen)]


class Unborn(Metric):
    """Calls no constructor of torchmetrics'."""

    def __init__(self) -> None:
        pass

    def update(self, logits: Tensor, y: Tensor) -> None:
        pass

    def compute(self) -> Any:
        return torch.zeros(())


class Every(_Measure):
    """Gives more than one number."""

    def compute(self) -> Any:
        return self.seen.expand(10)


class Seen(_Measure):
    """Nothing is wrong with it: it gives a number of Python's."""

    def compute(self) -> Any:
        return int(self.seen)


class Cut(Split):
    """Cuts what its option says."""

    CUTS: dict[str, Any] = {  # noqa: RUF012
        "nothing": None,
        "none": [],
        "lists": [[1, 2]] * 5,
        "matrices": [torch.zeros(2, 2).long()] * 5,
        "numbers": [torch.rand(5)] * 5,
        "elsewhere": [torch.arange(5) + 10**6] * 5,
    }

    def __init__(self, *, what: str) -> None:
        self.what = what

    def cut(self, pool: Pool) -> list[Tensor]:
        cut: list[Tensor] = self.CUTS[self.what]
        return cut


class Particular(FedAvg):
    """A server that wants more."""

    def __init__(self, *, k: int = 3) -> None:
        super().__init__()
        if k < 3:
            raise ValueError("k is too small")


class Choosy(Adversary):
    """An attack likewise."""

    def __init__(self, *, k: int = 3) -> None:
        if k < 3:
            raise RuntimeError("k is too small")


class Starting(FedAvg):
    """Fails before the first round."""

    def start(self, task: Task) -> None:
        raise KeyError("x")


class Beginning(Consensus):
    """Begins without its base."""

    def start(self, task: Task) -> None:
        self.asked = task.asked


@dataclass
class Lengths:
    """Options of a rule that belong together."""

    most: float = 1.0


class Grouped(Consensus):
    """Has its options in a group; nothing is wrong with it."""

    def __init__(self, *, lengths: Lengths = Lengths(), classes: int = 10) -> None:  # noqa: B008  # as users write it
        super().__init__()
        self.lengths, self.classes = lengths, classes


class Mode(Enum):
    """How hard a rule cuts."""

    HARD = "hard"
    SOFT = "soft"


class Elaborate(Consensus):
    """Has options of every kind that Python names; nothing is wrong with it."""

    def __init__(
        self,
        *,
        mode: Mode | None = None,
        act: Callable[[Tensor], Tensor] = torch.abs,
        dtype: torch.dtype = torch.float32,
        note: Path | None = None,
    ) -> None:
        super().__init__()
        self.mode, self.act, self.dtype, self.note = mode, act, dtype, note


class Weighing(Consensus):
    """Asks for what evidence has not."""

    def weigh(self, evidence: Evidence) -> Tensor:
        return evidence.inner_products[0]  # type: ignore[attr-defined, no-any-return]


class Silent(Server):
    """Forgets to return."""

    def rule(self, evidence: Evidence) -> Verdict:
        return None  # type: ignore[return-value]


class Unwritten(Server):
    """Has no rule."""


class Keeping(FedAvg):
    """Keeps one entry too few."""

    def kept(self, update: Tensor) -> Tensor:
        return update[1:]


class Generous(FedAvg):
    """Sends more than there is."""

    def rule(self, evidence: Evidence) -> Verdict:
        verdict = super().rule(evidence)
        return replace(verdict, quotas=5 * verdict.quotas)


class Sending(FedAvg):
    """Fails when somebody is to download."""

    def rule(self, evidence: Evidence) -> Verdict:
        return replace(super().rule(evidence), download=lambda participant: raising(KeyError("nobody")))


class Counting(Consensus):
    """Weighs by whole numbers."""

    def weigh(self, evidence: Evidence) -> Tensor:
        return torch.ones(len(evidence.senders), dtype=torch.int64)


class Attacking(Adversary):
    """Fails when it is to attack from some round on, counted from 0."""

    def __init__(self, *, since: int = 2) -> None:
        self.since = since

    def upload(self, situation: Situation) -> Tensor:
        if situation.round >= self.since:
            raise RuntimeError("no upload today")
        return situation.update


class NoCut(Split):
    """Forgets what a split is for."""


class Cutting(Split):
    """Needs an option."""

    def __init__(self, *, piece: int) -> None:
        self.piece = piece

    def cut(self, pool: Pool) -> list[Tensor]:
        return [torch.arange(i, len(pool.labels), pool.participants)[: self.piece] for i in range(pool.participants)]


class Untyped(FedAvg):
    """A server of one's own whose option nobody can read: that its argument has no type is the mistake."""

    def __init__(self, share) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        super().__init__()
