"""From the words of a command line to an exit code."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import NoReturn

from rffl_pl import launch
from rffl_pl.cli import help
from rffl_pl.cli.configurations import with_files
from rffl_pl.cli.process import be_quiet, importing, keep_freed_memory, outlast_readers
from rffl_pl.errors import BY_ITSELF, UserError, lost_a_rank, reason
from rffl_pl.launch.fork import RANKS, become_ranks, take_ranks
from rffl_pl.launch.meeting import last_word
from rffl_pl.launch.words import heard, near

_OF_ONE_PROCESS = help.COMMANDS.keys() - {"list", *help.TRAINING}


def main(args: list[str] | None = None) -> None:
    """Run the command line.

    A user's mistake is one sentence on each node, and exit code 2.
    """
    outlast_readers()
    args = sys.argv[1:] if args is None else args
    if args[:1] == ["help"] and args[1:] and args[1] in help.COMMANDS:
        args = [args[1], "--help"]
    with suppress(OSError):  # of a folder that has been deleted
        if os.getcwd() not in sys.path:  # `rffl` finds a user's own classes in the folder, as `python -m` does
            sys.path.insert(0, os.getcwd())
    try:
        _obey(args)
    except KeyboardInterrupt:  # before or behind what a run answers itself
        launch.tell("Interrupted.")
        sys.exit(130)


def _obey(args: list[str]) -> None:
    """Answer at once, or run."""
    try:
        answer = help.answer(args)
        ranks, words = take_ranks(args)
        if answer is None and words[0] in _OF_ONE_PROCESS:
            if words != args:
                raise UserError(
                    f"Expected {RANKS} with fit, validate, test or predict, but got it with {words[0]}; leave it out."
                )
            answer = _answer(words[0], words[1:])
        if answer is None and ranks == 1:  # libraries that read the same variables say less of them
            launch.check()
        if answer is None and words[0] == "fit":
            launch.tell_of_tasks()
    except UserError as mistake:
        _refuse(args, str(mistake))
    except PermissionError as error:
        why = f"{error.strerror}: {error.filename}"
        _refuse(args, f"Expected files that can be read and written, but {why}; see to its permissions.")
    if answer is not None:
        print(answer)
        return
    run(words, ranks)
    from rffl_pl.strategy import leave_process_group  # torch is imported by what needs it alone

    try:
        leave_process_group()
    except RuntimeError as error:
        if not lost_a_rank(error):
            raise
        _end_without(error)


def _refuse(args: list[str], mistake: str) -> NoReturn:
    """End for a mistake in the words themselves, which another node's may not have."""
    launch.tell(mistake)
    with suppress(UserError):  # the launcher's variables are the mistake
        launch.check()
        if not launch.on_one_node() and args and args[0] not in {"list", *_OF_ONE_PROCESS}:
            from rffl_pl.strategy import leave_word

            leave_word(mistake)
    sys.exit(2)


def _answer(command: str, words: list[str]) -> str:
    """What a command that is none of Lightning's prints at its end; of those that run cells it ends the process."""
    if command == "compare":
        from rffl_pl.cli import compare

        return compare.answer(words)
    if command == "dashboard":
        from rffl_pl.cli import dashboard

        return dashboard.answer(words)
    if command == "study":
        from rffl_pl.cli import study

        sys.exit(study.main(words, run))
    if command == "paper":
        from rffl_pl.cli import paper

        sys.exit(paper.main(words, run))
    from rffl_pl.cli import completion

    return completion.answer(words, run)


def run(args: list[str], ranks: int = 1) -> None:
    """Run one command line, on so many ranks if more than one; the process group stays open for another."""
    with importing():
        from rffl_pl.cli.arguments import command_line
        from rffl_pl.cli.linked import check_linked
        from rffl_pl.cli.mistakes import interrupted, mistake_behind, sentence
        from rffl_pl.cli.typed import check_words
        from rffl_pl.launch.stopping import Stopped
        from rffl_pl.strategy import end, leave_word, store_at

    keep_freed_memory()
    be_quiet()
    if ranks > 1:
        become_ranks(ranks, store_at)
    try:
        check_words(args)
        words = with_files(args)
        check_linked(words)
        command_line(words)
    except Stopped as stopped:
        end(stopped.code)
    except SystemExit as exit_:
        if interrupted(exit_):
            exit_.code = 130
        raise
    except Exception as error:
        mistake = mistake_behind(error)
        if mistake is None and not lost_a_rank(error):
            leave_word(f"Failed with {reason(error)}; the traceback is there.")
            raise
        if mistake is None:
            _end_without(error)
        launch.tell(sentence(mistake))
        leave_word(sentence(mistake))
        end(2)


def _end_without(lost: Exception) -> NoReturn:
    """End a process whose connection to another rank broke, with the message that this rank left, if it left one."""
    from rffl_pl.launch.stopping import STOP
    from rffl_pl.strategy import end

    if STOP.heard is not None:
        end(128 + STOP.number)
    time.sleep(10)  # the launcher ends this process meanwhile, and whoever failed says why
    said = last_word()
    if said is None:
        launch.tell(
            "Lost the connection to another rank: it failed, or its machine or network is gone. Go on from the last "
            f"checkpoint with {BY_ITSELF}. ({reason(lost)})"
        )
    elif not near(said):
        launch.tell(heard(said))
    end(1)
