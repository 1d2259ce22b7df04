"""What the tests of all servers share: a task, unfit uploads, and a way through a file."""

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.servers import Server, Task, Verdict

KINDS = ("NaN", "one NaN", "Inf", "-Inf", "1e38")
every_kind = pytest.mark.parametrize("kind", KINDS)


class Compass:
    """What a server learns of itself: one direction in all rounds, which has no entry of 0."""

    def __init__(self, entries: int) -> None:
        self.direction = 0.1 + torch.rand(entries, generator=torch.Generator().manual_seed(5))

    def __len__(self) -> int:
        return 100

    def update(self, weights: Tensor, count: int, round_index: int) -> Tensor:
        return self.direction.to(weights)


def task(examples: Sequence[int], layers: Sequence[int], **others: Any) -> Task:
    """A task of that many participants and entries; ``others`` replace what most rules do not ask for."""
    defaults: dict[str, Any] = {
        "classes": [10] * len(examples),
        "learning_rate": 0.1,
        "seed": 1,
        "initial": torch.zeros(sum(layers)),
        "accuracy": None,
        "root": Compass(sum(layers)),
    }
    return Task(examples=examples, layers=layers, **(defaults | others))


def shards(participants: int) -> list[int]:
    """Unequal shard sizes: 11, 18, 25, ..."""
    return [11 + 7 * i for i in range(participants)]


def spoil(rows: Tensor, bad: Iterable[int], kind: str) -> Tensor:
    """The rows with those of the given indices made unfit to compute with."""
    spoiled = rows.clone()
    for i in bad:
        if kind == "one NaN":
            spoiled[i, i % rows.shape[1]] = math.nan
        elif kind == "1e38":
            spoiled[i] = torch.where(rows[i] < 0, -1e38, 1e38)
        else:
            spoiled[i] = {"NaN": math.nan, "Inf": math.inf, "-Inf": -math.inf}[kind]
    return spoiled


def sent(server: Server, updates: Tensor, memories: Sequence[dict[str, Tensor]] | None = None) -> Tensor:
    """The uploads behind the payloads of participants who start from weights of 0."""
    rows = [
        server.unpack(server.pack(server.outgoing(update, memory, torch.zeros_like(update))), len(update))
        for update, memory in zip(updates, memories or [{} for _ in updates], strict=True)
    ]
    return torch.stack(rows) if rows else updates


def downloads(verdict: Verdict) -> Tensor:
    """Every participant's download, ``[P, D]``."""
    return torch.stack([verdict.download(i) for i in range(len(verdict.members))])


def finite_fraction(verdict: Verdict) -> float:
    """The fraction of finite numbers among all that come out; a similarity may be missing."""
    values = [verdict.weights, verdict.reputations, verdict.quotas, downloads(verdict).flatten()]
    return torch.cat([v.double() for v in values]).isfinite().double().mean().item()


def assert_equal(one: Verdict, other: Verdict) -> None:
    """Two verdicts agree to the last bit in everything that reaches a participant or the next round."""
    for name in ("weights", "reputations", "quotas", "members"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    torch.testing.assert_close(one.similarities, other.similarities, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(downloads(one), downloads(other))
    assert one.removed == other.removed


def through_file(state: Any) -> Any:
    """What a checkpoint brings back, read without trust."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_refused(attempt: Callable[[], object], *named: str) -> None:
    """The attempt ends in one sentence in which all of ``named`` stand."""
    with pytest.raises(UserError) as refusal:
        attempt()
    message = str(refusal.value)
    assert [part for part in named if part not in message] == [], message
    assert message.startswith("Expected "), message
    assert message.endswith("."), message
    assert not re.search(r"\.\s+[A-Z]", message), message
