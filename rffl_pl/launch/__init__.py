"""What the launcher says of this process, in environment variables; alone, it is rank 0 of 1."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sys
from pathlib import Path

from rffl_pl.errors import UserError

FORKED = "RFFL_FORKED_RANKS"
"""The variable by which ranks know that ``--ranks`` started them."""


def world_size() -> int:
    """Ranks of the run.

    Raises:
        UserError: If the launcher says no number.
    """
    return _number("WORLD_SIZE", "1")


def rank() -> int:
    """This process's number in the run.

    Raises:
        UserError: If the run has no rank of that number, as with a variable that another launcher left.
    """
    return _number_below("RANK", "WORLD_SIZE")


def local_world_size() -> int:
    """Ranks of this node.

    Raises:
        UserError: If the launcher says no number.
    """
    return _number("LOCAL_WORLD_SIZE", "1")


def local_rank() -> int:
    """This process's number on its node.

    Raises:
        UserError: If the node has no rank of that number.
    """
    return _number_below("LOCAL_RANK", "LOCAL_WORLD_SIZE")


def on_one_node() -> bool:
    """Whether all ranks are of this node.

    Raises:
        UserError: If the launcher says no numbers.
    """
    return world_size() == local_world_size()


def check() -> None:
    """See that all that the launcher says goes together.

    Raises:
        UserError: If it does not, or something is missing without which ranks do not meet.
    """
    rank(), local_rank()
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if world_size() > 1 and missing:
        raise UserError(
            f"Expected {missing[0]} from the launcher of {world_size()} ranks, but it is "
            f"{'empty' if missing[0] in os.environ else 'not set'}; unset WORLD_SIZE, or start ranks with --ranks or "
            "torchrun."
        )
    if world_size() > 1 and not 1 <= _number("MASTER_PORT", "0") <= 65_535:
        raise UserError(
            "Expected MASTER_PORT to be the number of a port, at least 1 and at most 65535, but got "
            f"{os.environ['MASTER_PORT']}; have the launcher give another."
        )


def _number(name: str, default: str) -> int:
    given = os.environ.get(name, default)
    if not given.isdecimal():
        raise UserError(
            f"Expected {name} to be a whole number, as launchers set it, but got {given!r}; unset this variable."
        )
    return int(given)


def _number_below(name: str, of: str) -> int:
    number, count = _number(name, "0"), _number(of, "1")
    if number >= count:
        raise UserError(
            f"Expected {name} below {of}, which is {os.environ.get(of, 'not set')}, but got {number}; unset {name} if "
            "another launcher left it, or start ranks with --ranks or torchrun."
        )
    return number


def identity() -> str | None:
    """The name of the launch, the same after a restart: Slurm's job or torchrun's run; None for a process alone."""
    named = os.environ.get("SLURM_JOB_ID") or os.environ.get("TORCHELASTIC_RUN_ID")
    return _unnamed() if named == "none" else named


def _unnamed() -> str:
    """What all ranks of a torchrun without ``--rdzv-id`` have in common, before a restart and after it.

    That is the folder which torchrun makes for its ranks; of several nodes, which have one each, where they meet.
    """
    folder = node_folder()
    if on_one_node() and folder is not None:
        return folder.parent.name
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # else the port is another one after a restart
        return f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    return "none"


_TASKS = {"srun": "SLURM_STEP_NUM_TASKS", "mpirun": "OMPI_COMM_WORLD_SIZE"}
"""By which variable launchers say how many processes they have started."""


def _tasks() -> dict[str, int]:
    """How many processes this one is of, by the launcher that started them, where they are several."""
    told = {name: os.environ.get(variable, "1") for name, variable in _TASKS.items()}
    return {name: int(tasks) for name, tasks in told.items() if tasks.isdecimal() and int(tasks) > 1}


def tell_of_tasks() -> None:
    """Say where srun or mpirun have started several processes that know nothing of one another."""
    for launcher, tasks in ({} if launched() else _tasks()).items():
        print(
            f"Warning: {launcher} has started {tasks} processes, and each of them trains a federation of its own; "
            "for the ranks of one have it start torchrun, once on every machine.",
            file=sys.stderr,
            flush=True,
        )


def launched() -> bool:
    """Whether this process knows that it is one of a launch; a shell in a job of Slurm's is none."""
    return world_size() > 1 or "TORCHELASTIC_RUN_ID" in os.environ


def seen_to() -> bool:
    """Whether the process that started this one sees to its end: torchrun, ``--ranks``, srun and mpirun do.

    A shell in which somebody has set WORLD_SIZE and RANK does not: what it left in the background outlives it.
    """
    return "TORCHELASTIC_RUN_ID" in os.environ or bool(launched() and _tasks())


def again(words: list[str]) -> list[str]:
    """The command of another run on as many ranks.

    Args:
        words: Behind ``rffl``; they alone are returned where ranks are of several nodes, or a launcher's of its own.
    """
    ranks = world_size()
    if ranks == 1:
        return ["rffl", *words]
    if FORKED in os.environ:
        return ["rffl", *words, "--ranks", str(ranks)]
    if node_folder() is not None and on_one_node():
        return ["torchrun", f"--nproc_per_node={ranks}", "-m", "rffl_pl", *words]
    return words


def random_seed() -> int:
    """A number of 32 bits that nobody knows before, and that all ranks of this launch have in common.

    They are not connected yet, but torchrun, as ``--ranks``, has drawn a name for the folder of a node's ranks.

    Raises:
        UserError: If there are ranks that have no such folder in common.
    """
    folder = node_folder()
    if world_size() == 1:
        return secrets.randbelow(2**32)
    if folder is None or not on_one_node():
        raise UserError(
            "Expected --seed_everything to be a number for ranks that neither torchrun nor --ranks started on one "
            "machine, since they cannot agree on one before they meet, but got true; give them all the same."
        )
    return int.from_bytes(hashlib.sha256(folder.parent.name.encode()).digest()[:4])


_parent, _own = os.getppid(), os.getpid()


def _note_fork() -> None:
    global _parent, _own
    _parent, _own = _own, os.getpid()


os.register_at_fork(after_in_child=_note_fork)  # what is inherited names the parent, whether that still lives or not


def launcher() -> int:
    """The process that started this one; who asks the system after its end is told another one's number."""
    return _parent


def restarted() -> bool:
    """Whether torchrun or Slurm started this launch before: after a failure, or as a job that was put back."""
    counts = [_number(name, "0") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")]
    return any([*counts, _started_before()])


def starts_again() -> bool:
    """Whether torchrun starts this rank again if it fails."""
    return _number("TORCHELASTIC_RESTART_COUNT", "0") < _number("TORCHELASTIC_MAX_RESTARTS", "0")


def _started_before() -> bool:
    """Whether this node's torchrun started this rank before, which it does not count if another node's ranks failed.

    Every process adds its number to a file in a folder that lasts as long as torchrun does.
    """
    folder = node_folder()
    if folder is None:
        return False
    mark, own = folder.parent / f"started-{local_rank()}", str(os.getpid())
    try:
        before = mark.read_text(encoding="utf-8").split() if mark.exists() else []
        if own not in before:
            mark.write_text(" ".join([*before, own]), encoding="utf-8")
    except OSError:  # no folder to write to
        return False
    return any(number != own for number in before)


def node_folder() -> Path | None:
    """The folder that torchrun makes for the ranks of this node and removes after the run."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")  # <folder of this attempt>/<local rank>/error.json
    return Path(file).parent.parent if file else None


def tell(mistake: str) -> None:
    """Print the sentence on what ends the run, once on each node although every rank may have it to say."""
    say(f"Error: {mistake}")


def say(text: str) -> None:
    """Print a line on standard error, once on each node although every rank may have it to say.

    The first rank that has it leaves its mark in the launch's folder, whichever rank that is: so a mistake that one
    rank alone sees is told as well. Under a launcher without such a folder every rank tells.
    """
    folder = node_folder()
    if folder is not None:
        try:
            (folder / f"told-{hashlib.sha256(text.encode()).hexdigest()[:16]}").touch(exist_ok=False)
        except FileExistsError:
            return
        except OSError:  # no folder to write to: better twice than never
            pass
    with contextlib.suppress(OSError):  # a full disk, a terminal that is gone
        print(f"{_new_line()}{text}", file=sys.stderr, flush=True)


def _new_line() -> str:
    """What ends the line of a progress bar that is being drawn."""
    bars = getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "_instances", ())
    return "\n" if any(not bar.disable and bar.fp == sys.stderr for bar in [*bars]) else ""


def flush() -> None:
    """Have written what was printed, where anything can be written."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as in a process without standard output
            with contextlib.suppress(OSError):
                stream.flush()
