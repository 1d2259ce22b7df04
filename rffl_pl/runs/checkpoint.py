"""The checkpoint's format: a folder with a file for everybody who may have one.

``run.pt`` is Lightning's own state and what every rank may know: written by rank 0, read by all. ``server.pt`` is the
server's state with reputations, memberships and the history: rank 0's alone. ``participant_<i>.pt`` is a participant's
model, optimizer, memory and whether it is a member: written by the rank that hosts it and read by the rank that hosts
it then. All are plain values and tensors that `torch.load` reads with ``weights_only=True``.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rffl_pl.errors import UserError

FORMAT, VERSION = "rffl_pl", 2
RUN, SERVER = "run.pt", "server.pt"

State = dict[str, Any]


def participant_file(participant: int) -> str:
    """The name of a participant's part."""
    return f"participant_{participant}.pt"


def write(checkpoint: State, target: Path, *, first: bool, meet: Callable[[], object]) -> None:
    """Write this rank's parts; the checkpoint that was there stays whole until all of the new one is.

    Args:
        checkpoint: What Lightning collected. In ``federation`` lie ``members`` and, by participant that this rank
            hosts, a function that gives the ``participants``' states: one copy at a time.
        target: The checkpoint's folder.
        first: Whether this is rank 0.
        meet: Waits for all ranks.

    Raises:
        UserError: On rank 0, if another rank's parts have not arrived.
    """
    partial = target.with_name(f".{target.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    federation = dict(checkpoint["federation"])
    members, states = federation.pop("members"), federation.pop("participants")
    marks = {"format": FORMAT, "version": VERSION, "round": federation["round"]}
    for participant, state in states.items():
        part = {**marks, "participant": participant, "member": members[participant], "state": state()}
        torch.save(part, partial / participant_file(participant))
    if first:
        rest = {key: value for key, value in checkpoint.items() if key not in ("server", "federation")}
        torch.save({**marks, **rest, "federation": {**federation, "participants": sorted(members)}}, partial / RUN)
        torch.save({**marks, "members": members, **checkpoint.get("server", {})}, partial / SERVER)
    meet()
    if first:
        missing = [name for name in map(participant_file, members) if not (partial / name).is_file()]
        if missing:
            raise UserError(
                f"Expected every rank's part of the checkpoint in {partial}, but {missing[0]} is not there; give "
                "--run.root on a file system that all nodes share."
            )
        _swap(partial, target)


def load(target: Path, hosted: Iterable[int] | None = None, *, server: bool) -> State:
    """Read what a rank may have.

    Args:
        target: The checkpoint's folder.
        hosted: The participants that the rank hosts; all if None.
        server: Whether it is rank 0, which has the server's part and knows every membership.

    Returns:
        As Lightning collected it, with ``federation`` of the hosted participants alone.

    Raises:
        UserError: If there is no whole checkpoint of this format and version.
    """
    target = _existing(target)
    run = _read(target / RUN)
    federation = dict(run["federation"])
    everyone: Sequence[int] = federation["participants"]
    parts = {i: _read(target / participant_file(i)) for i in (everyone if hosted is None else hosted) if i in everyone}
    judged = _read(target / SERVER) if server else {}
    named = {participant_file(i): part for i, part in parts.items()} | ({SERVER: judged} if server else {})
    _check_rounds(target, run, named)
    members = {i: part["member"] for i, part in parts.items()} | judged.get("members", {})
    participants = {i: part["state"] for i, part in parts.items()}
    run["federation"] = {**federation, "members": members, "participants": participants}
    rest = {key: value for key, value in judged.items() if key not in ("format", "version", "round", "members")}
    return {**run, "server": rest} if rest else run


def _check_rounds(target: Path, run: State, parts: Mapping[str, State]) -> None:
    for name, part in parts.items():
        if part["round"] != run["round"]:
            raise UserError(
                f"Expected all files of --ckpt_path {target} to be of one round, but {RUN} is of round {run['round']} "
                f"and {name} of round {part['round']}; copy checkpoints as whole folders."
            )


def read(path: str | Path) -> State:
    """A whole checkpoint, for tools: every participant's part and the server's.

    Raises:
        UserError: If there is no whole checkpoint of this format and version.
    """
    return load(Path(path), server=True)


def header(path: str | Path) -> State:
    """What ``run.pt`` says, its tensors mapped instead of read: the ``round``, the ``wandb`` run and so on.

    Raises:
        UserError: If there is no checkpoint of this format and version.
    """
    return _read(_existing(Path(path)) / RUN, mmap=True)


def wandb_run(path: str | Path) -> str | None:
    """The W&B run that a checkpoint is of; None if it has none or cannot be read, which loading it will tell."""
    try:
        return header(path).get("wandb")
    except UserError:
        return None


def _swap(partial: Path, target: Path) -> None:
    """Put a whole checkpoint where another one may be: at every moment one of them is there under a known name."""
    before = _before(target)
    if os.path.lexists(target):
        _remove(before)
        target.rename(before)
    partial.rename(target)
    _remove(before)


def _before(target: Path) -> Path:
    return target.with_name(f".{target.name}.before")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _existing(target: Path) -> Path:
    """The folder to read: what was there before where a write was interrupted between its two renames."""
    if target.name == RUN and target.is_file():
        target = target.parent
    if not os.path.lexists(target) and _before(target).is_dir():
        return _before(target)
    if not target.exists():
        raise UserError(f"Expected a checkpoint at --ckpt_path {target}, but there is no such file.")
    if target.is_file():
        raise UserError(_of_a_file(target))
    if not (target / RUN).is_file():
        raise UserError(
            f"Expected --ckpt_path {target} to be a checkpoint of rffl_pl, but it has no {RUN}; give a folder as runs "
            "leave it in checkpoints/."
        )
    return target


def _of_a_file(path: Path) -> str:
    """What is wrong with a checkpoint that is a file."""
    content = _read_file(path)
    if isinstance(content, dict) and "federation" in content:
        return (
            f"Expected --ckpt_path {path} to be a checkpoint of version {VERSION}, a folder, but it is a file of "
            "version 1; go on with the release that wrote it, or start anew."
        )
    return (
        f"Expected --ckpt_path {path} to be a checkpoint of rffl_pl, but it holds no federation; exported weights of "
        "single participants load into the bare network only."
    )


def _read(path: Path, mmap: bool = False) -> State:
    if not path.is_file():
        raise UserError(
            f"Expected --ckpt_path {path.parent} to be a whole checkpoint, but {path.name} is missing; copy "
            "checkpoints as whole folders."
        )
    part = _read_file(path, mmap)
    if not isinstance(part, dict) or part.get("format") != FORMAT:
        raise UserError(f"Expected --ckpt_path {path.parent} to be a checkpoint of rffl_pl, but {path.name} is not.")
    if part["version"] != VERSION:
        raise UserError(
            f"Expected --ckpt_path {path.parent} to be a checkpoint of version {VERSION}, but {path.name} is of "
            f"version {part['version']}; go on with the release that wrote it, or start anew."
        )
    return part


def _read_file(path: Path, mmap: bool = False) -> Any:
    try:
        # On the CPU: another rank's GPU may not exist here.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError, KeyError) as error:
        raise UserError(
            f"Expected --ckpt_path {path} to be a whole checkpoint, but it cannot be read "
            f"({type(error).__name__}): it is truncated, damaged or no checkpoint; take an earlier one."
        ) from error
