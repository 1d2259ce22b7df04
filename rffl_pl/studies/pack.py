"""Several runs in one process whose participants train as one stack of models.

Every run has a thread, of which one works at a time, until it has participants to train; when all have, they are
trained at once. So every run is an ordinary one, with a trainer of its own, and the order in which they take turns is
always the same.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from torch import Tensor
from torch.optim import Optimizer

from rffl_pl.errors import reason
from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.studies.surroundings import Surroundings
from rffl_pl.training.stack import TRAINER, Stack, Turn, repeat

T = TypeVar("T")
Clock = Callable[[], float]
"""Seconds that a run has worked, with its share of what was trained for several."""
Answer = Tensor | BaseException


@dataclass(frozen=True)
class _Wish:
    """What a run wants trained before it goes on."""

    stack: Stack
    turns: Sequence[Turn]
    rates: Sequence[float]
    in_round: bool  # at whose end the run looks whether it shall end


class _Strand(Generic[T]):
    """A run in a thread of its own, which works while whoever resumes it waits, until it has a wish or ends."""

    def __init__(self, body: Callable[[Clock], T]) -> None:
        self.wish: _Wish | None = None
        self.ended = False
        self.seconds = 0.0
        self._body = body
        self._since = 0.0
        self._result: T
        self._failure: BaseException | None = None
        self._errand: Callable[[], Answer] | None = None
        self._answer: Answer
        self._surroundings = Surroundings()
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)  # who leaves at once waits for no thread

    def begin(self) -> None:
        """Work until there is a wish."""
        self._thread.start()
        self._resume()

    def go_on(self, answer: Answer) -> None:
        """Work with the losses that were wished for, or with an exception in their place."""
        self._errand, self._answer = None, answer
        self._resume()

    def do(self, errand: Callable[[], Answer]) -> Answer:
        """Have the thread that has a wish do something, in the precision in which it wishes it done."""
        self._errand, before = errand, self.seconds
        self._resume()
        self.seconds = before
        if self._failure is not None:
            raise self._failure
        return self._answer

    def end(self, why: Stopped) -> None:
        """End the run where it trains next, if it began."""
        while self.wish is not None and not self.ended:
            self.go_on(why)
        if self.ended:
            self._thread.join()
        self._surroundings.leave()

    def result(self) -> T:
        """What the run returned, after its end."""
        self._thread.join()
        self._surroundings.leave()
        if self._failure is not None:
            raise self._failure
        return self._result

    def _resume(self) -> None:
        with self._surroundings.around():
            self._since = time.monotonic()
            self._go.release()
            while not self._back.acquire(timeout=0.1):
                pass  # a signal that comes just before this thread waits is heard when it wakes
            self.seconds += time.monotonic() - self._since

    def _live(self) -> None:
        self._go.acquire()
        TRAINER.set(self._wished)
        try:
            self._result = self._body(lambda: self.seconds + time.monotonic() - self._since)
        except BaseException as error:
            self._failure = error
        self.ended = True
        self._back.release()

    def _wished(self, stack: Stack, turns: Sequence[Turn], rates: Sequence[float]) -> Tensor:
        """Called where the run trains: wait for those who train, and do their errands meanwhile."""
        self.wish = _Wish(stack, turns, rates, STOP.deferred)
        self._hand_over()
        while self._errand is not None:
            try:
                self._answer = self._errand()
            except BaseException as error:  # is whose errand it is to answer, not this run
                self._failure = error
            self._hand_over()
        self.wish = None
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def _hand_over(self) -> None:
        self._back.release()
        self._go.acquire()


def together(bodies: Sequence[Callable[[Clock], T]]) -> Generator[tuple[int, T], None, None]:
    """Have functions that train federations do so together, and tell the result of each as it ends, by its number.

    Ctrl-C ends each where it trains next; a second one ends all at once. SIGTERM does as Ctrl-C where that is how it is
    answered, else it is kept in mind for them (`STOP`), who end after their round.

    Args:
        bodies: Functions of a clock that says how long they have worked; all train in one precision.
    """
    strands = dict(enumerate(map(_Strand, bodies)))
    trainers = _Trainers()
    with _listening() as told:
        try:
            for number, strand in list(strands.items()):
                if told.number:
                    raise KeyboardInterrupt
                strand.begin()
                if strand.ended:
                    yield number, strands.pop(number).result()
            while strands:
                ending = {number: told.answer() for number, strand in strands.items() if told.ends(strand)}
                answers = ending | trainers.train({k: strand for k, strand in strands.items() if k not in ending})
                for number, strand in list(strands.items()):
                    strand.go_on(answers[number])
                    if strand.ended:
                        yield number, strands.pop(number).result()
            if told.number:  # while the last ones worked that have nothing more to train
                raise KeyboardInterrupt
        finally:  # whoever iterates no more ends all
            for strand in strands.values() if not told.impatient else ():
                strand.end(told.answer())


class _Trainers:
    """One stack for all that can train in it; it lasts, and the examples on the device with it."""

    def __init__(self) -> None:
        self._stacks: list[Stack] = []
        self._warned: set[str] = set()
        self._serving: WeakKeyDictionary[Stack, Stack] = WeakKeyDictionary()
        self._apart: WeakKeyDictionary[Optimizer, WeakSet[Optimizer]] = WeakKeyDictionary()

    def train(self, strands: Mapping[int, _Strand[T]]) -> dict[int, Answer]:
        """Fulfil all wishes: losses, or what went wrong, by number."""
        alike: dict[tuple[Stack, tuple[float, ...]], dict[int, _Strand[T]]] = {}
        for number, strand in strands.items():
            assert strand.wish is not None
            key = (self._serves(strand.wish.stack), tuple(strand.wish.rates))
            alike.setdefault(key, {})[number] = strand
        answers: dict[int, Answer] = {}
        for (stack, _), several in alike.items():
            answers |= self._trained(stack, several)
        return answers

    def _serves(self, stack: Stack) -> Stack:
        """The stack in which another's turns are trained."""
        if stack not in self._serving:
            serving = next((known for known in self._stacks if known.serves(stack)), stack)
            if serving is stack:
                self._stacks.append(stack)
            self._serving[stack] = serving
        return self._serving[stack]

    def _trained(self, stack: Stack, strands: Mapping[int, _Strand[T]]) -> dict[int, Answer]:
        """Fulfil wishes of one stack; where that fails, one after another, so that it fails for whom it must."""
        wishes = {number: strand.wish for number, strand in strands.items() if strand.wish is not None}
        first: dict[int, int] = {}  # whose wish is the same: such as the reference that several runs have in common
        for number, wish in wishes.items():
            same = (k for k in dict.fromkeys(first.values()) if self._same(stack, wishes[k], wish))
            first[number] = next(same, number)
        asked = {number: wishes[number] for number in dict.fromkeys(first.values())}
        begun = time.monotonic()
        answers = self._done(stack, strands, asked)
        for number, known in first.items():
            if known != number and isinstance(answers[known], Tensor):
                repeat(wishes[known].turns, wishes[number].turns)
        total = sum(len(wish.turns) for wish in wishes.values())
        for number, wish in wishes.items():
            strands[number].seconds += (time.monotonic() - begun) * len(wish.turns) / total
        return {number: answers[known] for number, known in first.items()}

    def _same(self, stack: Stack, one: _Wish, other: _Wish) -> bool:
        """Whether two runs want the same trained; cohorts that once differed are remembered, and not compared again."""
        first, second = one.turns[0].optimizer, other.turns[0].optimizer
        apart = self._apart.setdefault(first, WeakSet())
        if second not in apart and not stack.same(one.turns, other.turns):
            apart.add(second)
        return second not in apart

    def _done(self, stack: Stack, strands: Mapping[int, _Strand[T]], wishes: Mapping[int, _Wish]) -> dict[int, Answer]:
        """Losses of each of some different wishes, or what went wrong."""
        sizes = [len(wish.turns) for wish in wishes.values()]
        turns = [turn for wish in wishes.values() for turn in wish.turns]
        number, wish = next(iter(wishes.items()))
        answer = strands[number].do(lambda: _attempt(stack, turns, wish.rates))
        if isinstance(answer, Tensor):
            return dict(zip(wishes, answer.split(sizes), strict=True))
        if len(wishes) == 1:
            return {number: answer}
        if (why := reason(answer)) not in self._warned:
            self._warned.add(why)
            warnings.warn(f"{len(wishes)} cells of a pack train one after another, since: {why}.", stacklevel=2)
        answer.__traceback__ = None  # which keeps the memory that may have been too short
        alone = [self._done(stack, strands, {number: wish}) for number, wish in wishes.items()]
        return {number: found for each in alone for number, found in each.items()}


def _attempt(stack: Stack, turns: Sequence[Turn], rates: Sequence[float]) -> Answer:
    """Losses, with everybody trained; or what went wrong, with everybody as before.

    Raises:
        Exception: If some are trained and some are not, so that no run can go on but from its checkpoint.
    """
    try:
        rows, losses = stack.trained(turns, rates)
    except BaseException as error:
        return error
    rows.put_back()
    return losses


class _Told:
    """Whether the user wants all to end.

    Attributes:
        number: The signal that said so; 0 before.
        impatient: Whether it was said twice.
    """

    def __init__(self) -> None:
        self.number, self.impatient = 0, False

    def ends(self, strand: _Strand[T]) -> bool:
        """Whether a run is told now."""
        assert strand.wish is not None
        return self.number != 0 or (STOP.heard is not None and not strand.wish.in_round)

    def answer(self) -> Stopped:
        """What a run is told in place of losses."""
        return Stopped(self.number or signal.SIGTERM)

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal whose default is to raise KeyboardInterrupt: anywhere, with a thread at work beside."""
        self.impatient = self.number != 0
        self.number = number
        if self.impatient:
            raise KeyboardInterrupt

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal whose default is to kill: runs look after every round whether it came."""
        STOP.heard = STOP.heard or time.monotonic()


@contextlib.contextmanager
def _listening() -> Iterator[_Told]:
    """Keep the wish to end in mind, which only this thread hears."""
    told, answers = _Told(), {signal.default_int_handler: _Told.hear, signal.SIG_DFL: _Told.pass_on}
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = {number: handler for number, handler in before.items() if handler in answers}
    STOP.heard = None
    for number, handler in before.items():
        signal.signal(number, partial(answers[handler], told))
    try:
        yield told
    finally:
        STOP.heard = None
        for number, handler in before.items():
            signal.signal(number, handler)
