"""From the words of a command line to an exit code."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

from rffl_pl import launch
from rffl_pl.cli import catalogue, help
from rffl_pl.cli.process import be_quiet, keep_freed_memory, outlast_readers
from rffl_pl.errors import UserError, lost_a_rank, reason
from rffl_pl.launch.fork import become_ranks, take_ranks


def main(args: list[str] | None = None) -> None:
    """Run the command line.

    A user's mistake is one sentence on each node, and exit code 2.
    """
    outlast_readers()
    args = sys.argv[1:] if args is None else args
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
        if answer is None and args[0] == "compare":
            from rffl_pl.cli import compare

            answer = compare.answer(args[1:])
        if answer is None and args[0] == "dashboard":
            from rffl_pl.cli import dashboard

            answer = dashboard.answer(args[1:])
        if answer is None and args[0] == "study":
            from rffl_pl.cli import study

            sys.exit(study.main(args[1:], run))
        if answer is None and args[0] == "paper":
            from rffl_pl.cli import paper

            sys.exit(paper.main(args[1:], run))
        if answer is None and args[0] == "completion":
            from rffl_pl.cli import completion

            answer = completion.answer(args[1:], run)
        ranks, words = take_ranks(args)
        if answer is None and ranks == 1:  # libraries that read the same variables say less of them
            launch.check()
    except UserError as mistake:
        launch.tell(str(mistake))
        sys.exit(2)
    if answer is not None:
        print(answer)
        return
    run(words, ranks)
    from rffl_pl.strategy import leave_process_group  # torch is imported by what needs it alone

    leave_process_group()


def run(args: list[str], ranks: int = 1) -> None:
    """Run one command line, on so many ranks if more than one; the process group stays open for another."""
    from rffl_pl.cli.arguments import command_line
    from rffl_pl.cli.linked import check_linked
    from rffl_pl.cli.mistakes import check_words, interrupted, mistake_behind, sentence
    from rffl_pl.launch.stopping import STOP, Stopped
    from rffl_pl.strategy import end, store_at

    keep_freed_memory()
    be_quiet()
    if ranks > 1:
        become_ranks(ranks, store_at)
    try:
        check_words(args)
        words = catalogue.with_files(args)
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
            raise
        if mistake is not None:
            launch.tell(sentence(mistake))
            end(2)
        if STOP.heard is not None:
            end(128 + STOP.number)
        time.sleep(10)  # the launcher ends this process meanwhile, and whoever failed says why
        launch.tell(
            "Lost the connection to another rank: it failed, or its machine or network is gone. Go on from the last "
            f"checkpoint with --ckpt_path last. ({reason(error)})"
        )
        end(1)
