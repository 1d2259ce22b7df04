"""The checkpoint's format: a folder with a file for everybody who may have one.

``run.pt`` is Lightning's own state and what every rank may know: written by rank 0, read by all. ``server.pt`` is the
server's state with reputations and memberships, and ``rounds.jsonl`` the run's history: written by rank 0, and the
former read by every rank that serves. ``participant_<i>.pt`` is a participant's model, optimizer, memory and whether it
is a member: written by the rank that hosts it and read by the rank that hosts it then. All but the history are plain
values and tensors that `torch.load` reads with ``weights_only=True``, in archives that have a CRC-32 of everything that
lies in them; that of the history stands in ``server.pt``.

Machines without a file system in common have such a folder each, with ``run.pt`` and the parts of the participants that
they host; the server's are rank 0's machine's. The parts of one checkpoint bear one mark.

A checkpoint is written beside the one that it replaces, waited for until it is on the disk, and renamed; the one before
is kept as ``last.previous.ckpt``.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from rffl_pl.errors import UserError, in_a_line
from rffl_pl.runs.disks import Disk
from rffl_pl.runs.durable import end_if_asked, on_disk, remedy, remove, why_not_written
from rffl_pl.runs.history import History, read_shared

FORMAT, VERSION = "rffl_pl", 3
RUN, SERVER, ROUNDS = "run.pt", "server.pt", "rounds.jsonl"
MARKS = ("format", "version", "round", "mark")

_TRIES = 10
"""So often a checkpoint is read that a run goes on replacing."""

State = dict[str, Any]
T = TypeVar("T")


class CheckpointNotWrittenError(UserError):
    """A checkpoint could not be written; the one before is whole."""


class Stamp(NamedTuple):
    """What tells a checkpoint from another one: the same on every disk that has parts of it.

    Attributes:
        round: The rounds that it has.
        mark: Of the write; None in those of earlier releases.
    """

    round: int
    mark: str | None


def participant_file(participant: int) -> str:
    """The name of a participant's part."""
    return f"participant_{participant}.pt"


def write(
    checkpoint: State,
    target: Path,
    *,
    mark: str,
    first: bool,
    disk: Disk,
    whole: set[Path],
    agree: Callable[[str | None], str | None],
) -> None:
    """Write this rank's parts; the checkpoint that was there stays whole until all of the new one is, on every disk.

    Args:
        checkpoint: What Lightning collected. In ``federation`` lie the ``total`` of all participants, ``members`` and,
            by participant that this rank hosts, a function that gives the ``participants``' states: one copy at a
            time. In ``server`` lies the `History`.
        target: The checkpoint's folder, as this rank sees it.
        mark: What this write has in common on all ranks, and with no other.
        first: Whether this is rank 0.
        disk: How this rank stands to the target's.
        whole: The checkpoints that are known to be whole on every disk; kept up to date here.
        agree: Waits for all ranks; tells all what the first of them says that says something.

    Raises:
        CheckpointNotWrittenError: On every rank, if one of them could not write its parts.
    """
    partial = target.with_name(f".{target.name}.partial")
    history = checkpoint.get("server", {}).get("history") if first else None
    parts = _parts(checkpoint, mark, first=first, leads=disk.leads)
    failure = agree(_failure(target, lambda: _write_parts(parts, history, partial)))
    if failure is not None:
        if disk.leads:
            remove(partial)  # a full disk has room for the rest of the run again
        raise CheckpointNotWrittenError(failure)
    expected = range(checkpoint["federation"]["total"]) if disk.common else ()
    trusted = target in whole
    whole.discard(target)  # as long as disks may differ
    failure = agree(_failure(target, lambda: _put(partial, target, expected, trusted)) if disk.leads else None)
    if failure is not None:
        undone = agree(_failure(target, lambda: _take_back(partial, target, mark)) if disk.leads else None)
        if undone is None and trusted:
            whole.add(target)
        raise CheckpointNotWrittenError(failure)
    whole.add(target)


def _parts(checkpoint: State, mark: str, *, first: bool, leads: bool) -> Iterable[tuple[str, State]]:
    """The files of this rank, by name, one at a time."""
    federation = dict(checkpoint["federation"])
    members, states, total = (federation.pop(name) for name in ("members", "participants", "total"))
    marks = {"format": FORMAT, "version": VERSION, "round": federation["round"], "mark": mark}
    for participant, state in states.items():
        part = {**marks, "participant": participant, "member": members[participant], "state": state()}
        yield participant_file(participant), part
    if leads:
        rest = {key: value for key, value in checkpoint.items() if key not in ("server", "federation")}
        yield RUN, {**marks, **rest, "federation": {**federation, "participants": list(range(total))}}
    if first:
        server = dict(checkpoint.get("server", {}))
        if history := server.pop("history", None):
            server["history"] = history.mark()
        yield SERVER, {**marks, "members": members, **server}


def _write_parts(parts: Iterable[tuple[str, State]], history: History | None, partial: Path) -> None:
    partial.mkdir(parents=True, exist_ok=True)
    written = []
    if history:
        history.share(partial / ROUNDS)
        written.append(partial / ROUNDS)
    for name, part in parts:
        with (partial / name).open("wb") as file:
            torch.save(part, file)
        written.append(partial / name)
    on_disk([*written, partial])


def _put(partial: Path, target: Path, expected: Iterable[int], trusted: bool) -> None:
    """Put a whole checkpoint where another one may be: at every moment one of them is there under a known name.

    What another disk may lack, or what is damaged, does not take the place of the one before.
    """
    missing = [name for name in map(participant_file, expected) if not (partial / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{missing[0]} of another rank is not in {partial}")
    previous = _previous(target)
    if os.path.lexists(target):
        if trusted or not previous.exists():
            remove(previous)
            target.rename(previous)
        else:
            remove(target)
    partial.rename(target)
    on_disk([target.parent])


def _take_back(partial: Path, target: Path, mark: str) -> None:
    """Let the checkpoint before be the last one again where another disk could not put its part in place."""
    remove(partial)
    if os.path.lexists(target) and stamp_of(target).mark == mark:
        remove(target)
    if not os.path.lexists(target) and _previous(target).exists():
        _previous(target).rename(target)


def _failure(target: Path, work: Callable[[], None]) -> str | None:
    """What went wrong in writing, if something did."""
    try:
        work()
    except (OSError, RuntimeError, UserError) as error:
        end_if_asked(error)
        before = os.path.lexists(target) or _previous(target).exists()
        kept = "the one before is kept" if before else "there is none before it"
        return (
            f"Expected to write the checkpoint {target}, but {why_not_written(error)}; {kept}. "
            f"{remedy(error).capitalize()} or give another --run.root and "
            f"{'go on from it' if before else 'start again'}."
        )
    return None


def load(target: Path, hosted: Iterable[int], *, server: bool) -> State:
    """Read what a rank may have.

    Args:
        target: The checkpoint's folder.
        hosted: The participants that the rank hosts.
        server: Whether it serves: then it reads the server's part and knows every membership.

    Returns:
        As Lightning collected it, with ``federation`` of the hosted participants alone.

    Raises:
        UserError: If there is no whole checkpoint of this format and version.
    """
    return _at_rest(target, lambda folder: _load(folder, hosted, server))


def _load(target: Path, hosted: Iterable[int], server: bool) -> State:
    with sound(target):
        run = _read(target / RUN)
        federation = dict(run["federation"])
        everyone: Sequence[int] = federation["participants"]
        mine = [i for i in hosted if i in everyone]
        parts = {i: _read(target / participant_file(i)) for i in mine}
        judged = _read(target / SERVER) if server else {}
        named = {participant_file(i): part for i, part in parts.items()} | ({SERVER: judged} if server else {})
        _check_stamps(target, run, named)
        _check_owners(target, parts)
        members = {i: part["member"] for i, part in parts.items()} | judged.get("members", {})
        participants = {i: part["state"] for i, part in parts.items()}
        run["federation"] = {**federation, "members": members, "participants": participants}
        rest = {key: value for key, value in judged.items() if key not in (*MARKS, "members")}
        if "history" in rest:
            rest["history"] = read_shared(target / ROUNDS, rest["history"])
        return {**run, "server": rest} if rest else run


def _at_rest(target: Path, what: Callable[[Path], T]) -> T:
    """Read something of a checkpoint whose run may be going on, file by file: again where a newer one took its place.

    Args:
        target: The checkpoint's folder.
        what: Reads it from there, or from the one before between the two renames of a write.

    Raises:
        UserError: If it cannot be read though it stays the same one, or never stays for as long as reading takes.
    """
    for _ in range(_TRIES):
        before = _which(target)
        try:
            return what(_existing(target))
        except UserError:
            if _which(target) == before:
                raise
    raise UserError(
        f"Expected --ckpt_path {target} to stay the same while it is read, but a run writes newer ones there; wait for "
        "its end, or give it a --run.checkpoint_every above 1."
    )


def _which(target: Path) -> tuple[int, int] | None:
    """What changes when a newer checkpoint takes a folder's place; None in between, when there is none of them."""
    try:
        found = (target / RUN).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def sound(target: object) -> Iterator[None]:
    """Around what reads the content of a checkpoint.

    Raises:
        UserError: If something is missing in it or is not what it should be.
    """
    try:
        yield
    except UserError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise UserError(
            f"Expected --ckpt_path {target} to hold what a run of rffl_pl leaves there, but it does not "
            f"({in_a_line(error)}); take an earlier one."
        ) from error


def choices(path: Path) -> list[Path]:
    """The checkpoints that a path stands for, newest first: itself, or all that lie in a folder of checkpoints."""
    inside = _inside(path) or _inside(path)  # again: a run may have renamed the only one between two looks
    if (path / RUN).is_file() or not inside:
        return [path]

    try:
        written = {folder: (folder / RUN).stat().st_mtime for folder in inside}
    except FileNotFoundError:  # another run of this name has just put a newer one in its place
        return choices(path)

    def age(folder: Path) -> tuple[float, bool, str]:  # clocks are coarse, and copies have the times of the copying
        replaced_by = next((newer for newer in inside if _previous(newer) == folder), folder)
        return min(written[folder], written[replaced_by]), replaced_by == folder, folder.name

    return sorted(inside, key=age, reverse=True)


def _inside(path: Path) -> list[Path]:
    return [folder for folder in path.glob("*.ckpt") if (folder / RUN).is_file()]


def stamps(path: Path) -> tuple[dict[Stamp, Path], list[str]]:
    """The checkpoints that a path stands for, newest first, and what is wrong with newer ones that cannot be read."""
    found: dict[Stamp, Path] = {}
    wrong = []
    for folder in choices(path):
        try:
            found.setdefault(stamp_of(folder), folder)
        except UserError as error:
            if not found:
                wrong.append(str(error))
    return found, wrong


def common(everybodys: Sequence[Sequence[Stamp]]) -> list[Stamp]:
    """The checkpoints that every rank has its part of, rank 0's newest first.

    Raises:
        UserError: If there is none.
    """
    first = everybodys[0]
    found = [stamp for stamp in first if all(stamp in theirs for theirs in everybodys)]
    if not found:
        rank, theirs = min(enumerate(everybodys), key=lambda one: len(set(first).intersection(one[1])))
        raise UserError(
            "Expected every rank to find its part of one checkpoint at --ckpt_path, but rank 0's (round "
            f"{_rounds(first)}) and rank {rank}'s (round {_rounds(theirs)}) are of different ones; give the folder "
            "checkpoints of one and the same run on every machine."
        )
    return found


def _rounds(given: Sequence[Stamp]) -> str:
    return ", ".join(str(stamp.round) for stamp in given)


def stamp_of(path: Path) -> Stamp:
    """What tells this checkpoint from another one.

    Raises:
        UserError: If there is no checkpoint of this format and version.
    """
    run = _read_run(path)
    with sound(path):
        return _stamp(run)


def _stamp(part: State) -> Stamp:
    return Stamp(part["round"], part.get("mark"))


def _check_stamps(target: Path, run: State, parts: Mapping[str, State]) -> None:
    whole = _stamp(run)
    for name, part in parts.items():
        if (own := _stamp(part)) != whole:
            of = f"of round {own.round}" if own.round != whole.round else "was written with another one"
            raise UserError(
                f"Expected all files of --ckpt_path {target} to be of one checkpoint, but {RUN} is of round "
                f"{whole.round} and {name} {of}; copy checkpoints as whole folders."
            )


def _check_owners(target: Path, parts: Mapping[int, State]) -> None:
    for participant, part in parts.items():
        if (owner := part["participant"]) != participant:
            raise UserError(
                f"Expected {participant_file(participant)} of --ckpt_path {target} to be participant {participant}'s, "
                f"but it is participant {owner}'s; copy checkpoints as whole folders."
            )


def header(path: str | Path) -> State:
    """What ``run.pt`` says, read whole to see that it is not damaged: the ``round``, the ``wandb`` run and so on.

    Of the newest whole checkpoint, if it is a folder of several.

    Raises:
        UserError: If there is no checkpoint of this format and version.
    """
    *newer, oldest = choices(Path(path))
    for checkpoint in newer:
        with suppress(UserError):
            return _read_run(checkpoint)
    return _read_run(oldest)


def _read_run(path: Path) -> State:
    return _at_rest(path, lambda folder: _read(folder / RUN, mmap=True))


def wandb_run(path: str | Path) -> str | None:
    """The W&B run that a checkpoint is of; None if it has none or cannot be read, which loading it will tell."""
    try:
        return header(path).get("wandb")
    except UserError:
        return None


def _previous(target: Path) -> Path:
    return target.with_suffix(f".previous{target.suffix}")


def _existing(target: Path) -> Path:
    """The folder to read: the one before where a write was interrupted between its two renames."""
    if target.name == RUN and target.is_file():
        target = target.parent
    if not os.path.lexists(target) and _previous(target).is_dir():
        return _previous(target)
    if not target.exists():
        raise UserError(f"Expected a checkpoint at --ckpt_path {target}, but there is no such file.")
    if target.is_file():
        raise UserError(_of_a_file(target))
    if not (target / RUN).is_file():
        checkpoints = target / "checkpoints"
        give = checkpoints if checkpoints.is_dir() else "a folder as runs leave it in checkpoints/"
        raise UserError(
            f"Expected --ckpt_path {target} to be a checkpoint of rffl_pl, but it has no {RUN}; give {give}."
        )
    return target


def _of_a_file(path: Path) -> str:
    """The message on a checkpoint that is a file and no folder."""
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
            "checkpoints as whole folders, and start every rank on the machine that has its part."
        )
    part = _read_file(path, mmap)
    if not isinstance(part, dict) or part.get("format") != FORMAT:
        raise UserError(f"Expected --ckpt_path {path.parent} to be a checkpoint of rffl_pl, but {path.name} is not.")
    if part.get("version") != VERSION:
        raise UserError(
            f"Expected --ckpt_path {path.parent} to be a checkpoint of version {VERSION}, but {path.name} is of "
            f"version {part.get('version')}; go on with the release that wrote it, or start anew."
        )
    return part


def _read_file(path: Path, mmap: bool = False) -> Any:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if (damaged := archive.testzip()) is not None:
                    raise ValueError(f"the checksum of {damaged} is wrong")
        # On the CPU: another rank's GPU may not exist here.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # whatever torch makes of a damaged file
        raise UserError(
            f"Expected --ckpt_path {path} to be a whole checkpoint, but it cannot be read "
            f"({type(error).__name__}): it is truncated, damaged or no checkpoint; take an earlier one."
        ) from error
