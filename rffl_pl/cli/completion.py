"""A completion script for bash: commands, options, and the names that options take."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Sequence

from rffl_pl.cli import catalogue, compare, dashboard, paper, study
from rffl_pl.cli.help import COMMANDS
from rffl_pl.errors import UserError
from rffl_pl.launch.fork import RANKS
from rffl_pl.paper import FIGURES, TABLES

CHOICES = {  # what completes the word behind an option
    "--server": "servers",
    "--adversaries": "adversaries",
    "--adversaries+": "adversaries",
    "--data": "datamodules",
    "--data.split": "splits",
    "--model.network": "networks",
    "--config": "configs",
    "-c": "configs",
}
DEEPER = {"--server": "servers", "--data": "datamodules", "--model.network": "networks"}

SCRIPT = """\
_rffl() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} choices
    if [[ $word == "=" ]]; then word=""; elif [[ $before == "=" ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    if [[ $COMP_CWORD -eq 1 ]]; then
        choices="{commands} --help --version"
    elif [[ ${{COMP_WORDS[1]}} == list ]]; then
        choices="{kinds}"
    elif [[ ${{COMP_WORDS[1]}} == study ]]; then
        choices="{study}"
    elif [[ ${{COMP_WORDS[1]}} == dashboard ]]; then
        choices="{dashboard}"
    elif [[ ${{COMP_WORDS[1]}} == paper ]]; then
        choices="{paper}"
    elif [[ ${{COMP_WORDS[1]}} == compare ]]; then
        [[ $word == -* ]] && choices="{compare}"
    else
        case $before in
{cases}
            --ckpt_path) ;;
            *) [[ $word == -* ]] && choices="{options}" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o default -F _rffl rffl
"""


def answer(words: Sequence[str], run: Callable[[list[str]], None]) -> str:
    """The script, for no words behind the command.

    Raises:
        UserError: If there are some.
    """
    if words:
        raise UserError(f"Expected nothing behind rffl completion, but got {' '.join(words)}.")
    return script(run)


def script(run: Callable[[list[str]], None]) -> str:
    """The script; ``run`` answers ``fit --help``, where the options are read."""
    names = {option: " ".join(catalogue.listed(kind)) for option, kind in CHOICES.items()}
    cases = "\n".join(f'            {option}) choices="{choices}" ;;' for option, choices in names.items() if choices)
    deeper = {f"{option}.{name}" for option, kind in DEEPER.items() for name in catalogue.options(kind)}
    return SCRIPT.format(
        commands=" ".join(COMMANDS),
        kinds=" ".join([*catalogue.KINDS, "configs"]),
        compare=" ".join(compare.options()),
        study=" ".join([*study.options(), *study.packaged()]),
        dashboard=" ".join(dashboard.options()),
        paper=" ".join([*paper.VERBS, *TABLES, *FIGURES, *paper.options()]),
        cases=cases,
        options=" ".join(sorted(_options(run) | deeper | {RANKS})),
    )


def _options(run: Callable[[list[str]], None]) -> set[str]:
    """Every option that the help of ``fit`` names."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        run(["fit", "--help"])
    return set(re.findall(r"(?<![\w-])--[a-z][\w.]*\w", text.getvalue()))
