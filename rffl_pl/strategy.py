"""The process group, and which device each rank is bound to."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric.plugins import ClusterEnvironment
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl import launch
from rffl_pl.devices import NCCL, agreed_backend, card_of, plan_devices
from rffl_pl.errors import UserError, reason
from rffl_pl.exchange import Exchange, Ranks
from rffl_pl.federation import Federation
from rffl_pl.launch import meeting, network, words
from rffl_pl.launch.watch import Check, Heartbeats, Watch, leave, orphaned, stopped_late
from rffl_pl.runs.disks import Disks
from rffl_pl.runs.keeping import Keeper
from rffl_pl.servers.coordinates import Coordinates
from rffl_pl.sharded import Part
from rffl_pl.training.stack import TRAINER

T = TypeVar("T")


class LaunchEnvironment(ClusterEnvironment):
    """What Lightning hears of the launch: what `rffl_pl.launch` says of it.

    Else it would expect a process alone to be one of a Slurm job's tasks, and believe what another launcher left.
    """

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        return int(os.environ.get("MASTER_PORT", "0"))

    @staticmethod
    def detect() -> bool:
        return True

    def world_size(self) -> int:
        return launch.world_size()

    def set_world_size(self, size: int) -> None:
        """Nothing: the launcher has set it."""

    def global_rank(self) -> int:
        return launch.rank()

    def set_global_rank(self, rank: int) -> None:
        """Nothing: the launcher has set it."""

    def local_rank(self) -> int:
        return launch.local_rank()

    def node_rank(self) -> int:
        return launch.rank() // launch.local_world_size()


class Closing(threading.Thread):
    """Closes connections in a thread of its own, since that may wait for ranks that are gone.

    Args:
        close: Closes them.
    """

    def __init__(self, close: Callable[[], None]) -> None:
        super().__init__(name="closing", daemon=True)
        self._close = close
        self._asked, self._done = threading.Event(), threading.Event()
        self.start()  # now: an interpreter that ends starts none any more

    def run(self) -> None:
        """Wait until that is asked for."""
        self._asked.wait()
        if launch.world_size() > 1:
            # gloo's thread lets go of the barrier, or torch 2.3 waits for it with the interpreter in hand.
            time.sleep(0.1)
        try:
            self._close()
        finally:
            self._done.set()

    def done(self, within: float) -> bool:
        """Have the connections closed; whether they were within so many seconds."""
        self._asked.set()
        return self._done.wait(within)


class _Started(_SubprocessScriptLauncher):
    """Lightning's launcher of processes, which starts none here: all run already, be it a notebook alone."""

    @property
    def is_interactive_compatible(self) -> bool:
        return True


# How long a rank waits for one that is alive but does not come; the watch sees to those that are not.
_PATIENCE = timedelta(hours=12)
_ABSENCE = 60
"""Seconds within which a rank that does not come leaves word of that."""


class FederatedStrategy(DDPStrategy):
    """Ranks without gradient synchronisation: participants meet in the exchange alone.

    Args:
        accelerator: ``auto``, ``gpu``, ``cuda`` or ``cpu``.
        patience: After how many seconds without a sign of life another rank is given up.
        grace: How many seconds a round may go on after SIGTERM.
        exchange: Who the server is: ``central``, rank 0; ``sharded``, every rank for a part of the coordinates, with
            the same bits.

    Raises:
        UserError: If a GPU is asked for and there is none, or what the launcher says does not go together.

    Attributes:
        disks: What the ranks see of the run's folder; from `setup_distributed` on.
        checkpoints: What writes and reads the run's checkpoints; from `setup_distributed` on.
    """

    def __init__(
        self,
        accelerator: str = "auto",
        *,
        patience: float = 60,
        grace: float = 20,
        exchange: Literal["central", "sharded"] = "central",
    ) -> None:
        launch.check()
        ranks = launch.local_world_size()
        devices, backend = plan_devices(accelerator, ranks, torch.cuda.device_count())
        super().__init__(
            parallel_devices=devices,
            cluster_environment=LaunchEnvironment(),
            process_group_backend=NCCL if backend == "nccl" and dist.is_nccl_available() else "gloo",
            timeout=_PATIENCE,
        )
        self.patience, self.grace = patience, grace
        self.sharded = exchange == "sharded"

    @property
    def ranks(self) -> Ranks:
        """The collective operations of this rank, once there is a process group."""
        return Ranks(self.global_rank, self.world_size, self.root_device)

    def exchange_for(self, federation: Federation, dimension: int) -> Exchange:
        """This rank's side of the exchange of vectors ``[dimension]``."""
        blocks = [federation.hosted_by(rank, self.world_size) for rank in range(self.world_size)]
        self.exchange = Exchange(blocks, self.global_rank, self.root_device, dimension, sharded=self.sharded)
        return self.exchange

    def coordinates_of(self, dimension: int) -> Coordinates:
        """Those of vectors ``[dimension]`` that this rank's server has where it is one."""
        if not self.sharded or self.world_size == 1:
            return Coordinates(dimension)
        return Part(dimension, self.ranks)

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = _Started(self.cluster_environment, self.num_processes, self.num_nodes)

    def setup_environment(self) -> None:
        """As the base class does, once it is seen that training may be: before data is read, which would be spoiled."""
        module = self.lightning_module
        if module is not None and module.trainer.state.fn == TrainerFn.FITTING:
            _check_gradients()
        super().setup_environment()

    def setup_distributed(self) -> None:
        """As the base class does; alone it meets itself in memory, not on a port that may be taken."""
        _check_alone()
        _under_way.add(self)
        _watch_over(self)
        if not dist.is_initialized():
            if launch.world_size() > 1:
                self._connect(self._meet())
            else:
                self._begin_process_group(dist.HashStore())
            _closing[:] = [Closing(dist.destroy_process_group)]
        super().setup_distributed()
        mark = self.broadcast(os.urandom(8).hex())
        self.disks = Disks(self, mark)
        self.checkpoints = Keeper(self, self.disks, mark, all_serve=self.sharded)
        if self.world_size > 1:
            meeting.met(partial(_own_connection, mark))

    def teardown(self) -> None:
        """As the base class does; then another thread may have a run, and this rank gives up nobody until the next."""
        super().teardown()
        _PLAYING[:] = [thread for thread in _PLAYING if thread is not threading.current_thread()]  # not who refused it
        _under_way.discard(self)
        if not _under_way:  # cells of a pack play in one process
            module = self.lightning_module
            _rest(failed=module is None or module.trainer.state.status == TrainerStatus.INTERRUPTED)

    def _connect(self, store: dist.Store) -> None:
        """Begin the process group with all other ranks; one that cannot reach them, or is gone, ends them too."""
        _watch_over(self, meeting.absent(partial(_launchers_store, timedelta(seconds=_ABSENCE))))
        try:
            with meeting.told_of_waiting("connect, on any port of the network that GLOO_SOCKET_IFNAME names"):
                self._begin_process_group(store)
        except (RuntimeError, UserError) as error:
            _part()
            if isinstance(error, UserError):
                raise
            raise UserError(meeting.why_not_connected(error)) from error
        _watch_over(self)

    def _begin_process_group(self, store: dist.Store) -> None:
        try:
            dist.init_process_group(
                self._get_process_group_backend(),
                store=store,
                rank=launch.rank(),
                world_size=launch.world_size(),
                timeout=_PATIENCE,
                device_id=self.root_device if self.root_device.type != "cpu" else None,
            )
        except dist.DistBackendError as error:  # NCCL connects at once, and has its reasons
            raise UserError(
                f"Expected rank {launch.rank()} to begin NCCL, but {reason(error)}; NCCL_DEBUG=INFO says more, and "
                "--trainer.accelerator cpu does without GPUs."
            ) from error

    def _meet(self) -> dist.Store:
        """The launcher's store; there the ranks agree on a backend, since one that uses another waits for ever."""
        rank, ranks = launch.rank(), launch.world_size()
        try:
            with meeting.told_of_waiting(f"meet at {meeting.place()}"):
                ours = _launchers_store(meeting.ARRIVAL)
                prefix = meeting.fresh_prefix(ours, rank, ranks)
                store = dist.PrefixStore(prefix, ours)
                card = card_of(self.root_device) if dist.is_nccl_available() else ""
                # All have said something before anybody listens.
                _heartbeats[:] = [Heartbeats(partial(_own_connection, prefix), rank, ranks, self.patience)]
                store.set(f"backend of {rank}", f"{self._get_process_group_backend()} {card}")
                _name_network(store, rank, ranks)
                told = [store.get(f"backend of {other}").decode().partition(" ")[::2] for other in range(ranks)]
        except (RuntimeError, TimeoutError) as error:
            raise UserError(meeting.why_not_met(error)) from error
        offered, cards = zip(*told, strict=True)
        self._process_group_backend, why = agreed_backend(offered, cards)
        if why:
            rank_zero_warn(f"{why}: the exchange runs on gloo instead of NCCL.")
        return store

    def plays(self, number: int) -> None:
        """Tell the other ranks, by heartbeats, which round this one plays."""
        for heartbeats in _heartbeats:
            heartbeats.round = number

    def setup(self, trainer: Any) -> None:
        """As the base class does, less the gradient synchronisation and less copying rank 0's weights everywhere."""
        assert self.accelerator is not None
        assert self.model is not None
        self.accelerator.setup(trainer)
        self.precision_plugin.convert_module(self.model)
        self.model_to_device()
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Every rank writes its own participants' part, rank 0 the server's."""
        self.checkpoints.write(checkpoint, filepath)

    def remove_checkpoint(self, filepath: Any) -> None:
        """On every disk that has it."""
        if (target := self.checkpoints.to_remove(filepath)) is not None:
            self.checkpoint_io.remove_checkpoint(target)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Every rank reads its own participants' part, those that serve the server's too; nothing can run code."""
        return self.checkpoints.read(checkpoint_path, self.exchange.hosted, server=self.exchange.serves)

    def together(self, step: Callable[[], T]) -> T:
        """Take a step on every rank, and hear whether the others could.

        Raises:
            UserError: On every rank, if one of them meets a user's mistake.
        """
        mistake = None
        try:
            done = step()
        except UserError as error:
            mistake = error
        if (found := self.first_word(None if mistake is None else str(mistake))) is not None:
            raise UserError(found) from mistake
        return done

    def first_word(self, word: str | None) -> str | None:
        """The message of the first rank that has one, on all ranks; collective.

        On other nodes it is prefixed with that rank's name; a rank there that has a message gets its own.
        """
        found = self.ranks.first_given(None if word is None else words.spoken(word))
        if found is None:
            return None
        speaker, said = found
        if word is not None and (speaker == self.global_rank or not words.near(said)):
            return word
        return words.heard(said)

    def everybodys(self, obj: Any) -> list[Any]:
        """Every rank's value on all of them, by rank; as JSON."""
        return [self.broadcast(obj, rank) for rank in range(self.world_size)]

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """A rank's value on all of them: as JSON, since what is unpickled can run code.

        Raises:
            UserError: If it is none, or too long.
        """
        return self.ranks.broadcast_json(obj, src)


_watching: list[Watch] = []  # this process's, at most one
_heartbeats: list[Heartbeats] = []  # at most one, from the first meeting of several ranks until they go apart
_closing: list[Closing] = []  # at most one, while there is a process group
_under_way: set[FederatedStrategy] = set()  # those that have a run


def _watch(checks: Sequence[Check]) -> None:
    """Replace the checks that this process is watched by; none for no watching."""
    while _watching:
        _watching.pop().stop()
    if checks:
        _watching.append(Watch(checks))
        _watching[0].start()


def _watch_over(strategy: FederatedStrategy, *more: Check) -> None:
    """Watch over a run: that it ends in time if asked to, and that launcher and other ranks are there."""
    _watch([])  # whose thread would write into the same heartbeats
    for heartbeats in _heartbeats:
        heartbeats.begin(strategy.patience)
    _watch([stopped_late(strategy.grace), *_company(), *more])


def _company() -> list[Check]:
    """Checks that end this rank when its launcher or another rank is gone."""
    return [*([orphaned()] if launch.seen_to() else []), *_heartbeats]


def _rest(*, failed: bool) -> None:
    """After a run: go on sending heartbeats, but give up nobody and end nothing."""
    _watch([])
    for heartbeats in _heartbeats:
        heartbeats.end(failed=failed)
    _watch([heartbeats.between_runs for heartbeats in _heartbeats])


def _name_network(store: dist.Store, rank: int, ranks: int) -> None:
    """Have gloo listen where other machines reach this one: where these, or this one, have met rank 0."""
    if launch.on_one_node():
        return
    store.set(f"rank 0 as {rank} sees it", network.address_of(os.environ["MASTER_ADDR"]))
    if not network.unreached():
        return
    seen = (store.get(f"rank 0 as {other} sees it").decode() for other in [rank, *range(ranks)])
    first = next(filter(None, seen), None)
    name = None if first is None else network.towards(first)
    if name is not None:
        os.environ[network.NAMED] = name


def _launchers_store(timeout: timedelta) -> dist.Store:
    """A connection to the launcher's store, as all ranks have before they have met."""
    store: dist.Store = next(dist.rendezvous("env://", timeout=timeout))[0]
    return store


def _own_connection(prefix: str) -> dist.Store:
    """Another connection to the launcher's store, so that whoever waits on the first one holds up nobody."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.PrefixStore(prefix, dist.TCPStore(host, port, None, False, timedelta(seconds=5)))


def leave_word(sentence: str) -> None:
    """Leave why this rank ends to those that find it gone; to those of other nodes also where they have not met yet.

    Else they would wait half an hour for it. Who is started again may come yet, and leaves nothing.
    """
    if (dist.is_available() and dist.is_initialized()) or launch.on_one_node() or launch.starts_again():
        meeting.leave_word(sentence)
        return
    with suppress(RuntimeError):  # nobody has a store, as where all of them fail
        meeting.leave_absence(_launchers_store(timedelta(seconds=_ABSENCE)), sentence)
        if launch.rank() == 0:
            time.sleep(1)  # without torchrun it is this process that has the store


def store_at(listener: socket.socket) -> dist.Store:
    """The store of a launch, served on a listening socket; what torchrun has in its own process."""
    host, port = listener.getsockname()
    return dist.TCPStore(  # libuv's takes no socket that listens already
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=False
    )


def _check_gradients() -> None:
    """See that training is not in a block without gradients: network or optimizer would be blamed.

    Raises:
        UserError: If it is.
    """
    if not torch.is_grad_enabled():
        block = "inference_mode" if torch.is_inference_mode_enabled() else "no_grad"
        raise UserError(
            f"Expected trainer.fit where torch computes gradients, but it is called within torch.{block}(); call it "
            "outside of that block."
        )


_PLAYING: list[threading.Thread] = []
"""The thread that has a run under way."""
_made_in = os.getpid()  # the process whose connections these are


def _check_alone() -> None:
    """See that this process can have a run now.

    Raises:
        UserError: If another thread has one, whose random streams it would share, or if it was forked from a process
            that had, whose connections it has without the threads that serve them.
    """
    global _made_in
    if dist.is_initialized() and _made_in != os.getpid():
        raise UserError(
            "Expected a run in a process that was started anew, but this one was forked from one that had a run "
            "before; have it spawned, as multiprocessing.get_context('spawn') does."
        )
    _made_in = os.getpid()
    if TRAINER.get() is not None:  # a cell of a pack, of which one works at a time
        return
    here = threading.current_thread()
    if any(thread.is_alive() and thread is not here for thread in _PLAYING):
        raise UserError(
            "Expected one run at a time in a process, but another thread has one, and both would draw from the same "
            "random streams; start a process for each, or run them one after another."
        )
    _PLAYING[:] = [here]


def leave_process_group() -> None:
    """Wait for all ranks and close the connections.

    A gloo process that exits with them open can be aborted by its own threads, and a rank that exits early takes the
    store with it. All work is done by then: a process that cannot close them ends all the same.
    """
    if not dist.is_available() or not dist.is_initialized():
        return
    _watch([])
    for heartbeats in _heartbeats:
        heartbeats.begin(heartbeats.patience)
    _watch(_company())
    dist.barrier()
    _part()
    if dist.get_backend() != "gloo":
        dist.destroy_process_group()
    elif not _closed(within=20):  # seen once, with torch 2.3
        leave(0)


def _part() -> None:
    """Stop watching and heartbeats, since this rank and the others need each other no more."""
    _watch([])
    _heartbeats.clear()
    meeting.left()


def _closed(within: float) -> bool:
    """Whether the connections could be closed within so many seconds."""
    closing = _closing.pop() if _closing else Closing(dist.destroy_process_group)
    return closing.done(within)


@atexit.register
def _leave_at_exit() -> None:
    """An interpreter that ends leaves the process group too, where its program did not; it waits for no other rank.

    These may be at work for hours, or gone.
    """
    if not _closing or _made_in != os.getpid() or not dist.is_initialized():
        return
    _watch([])
    for heartbeats in _heartbeats:
        heartbeats.leave()
    _part()
    _closed(within=5)


def end(code: int | str | None) -> NoReturn:
    """End this process without waiting for the other ranks.

    Connections that are still open would abort it on the way out.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        leave(int(code or 0))
    sys.exit(code)
