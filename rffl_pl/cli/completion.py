"""A completion script for bash: commands, options, and the names that options take."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence

from rffl_pl.cli import catalogue, compare, dashboard, paper, study
from rffl_pl.cli.help import COMMANDS
from rffl_pl.errors import UserError
from rffl_pl.launch.fork import RANKS
from rffl_pl.paper import FIGURES, TABLES
from rffl_pl.studies.study import RunWords

_OF_CLASSES = (
    "server", "adversaries", "adversaries+", "data", "data.split", "data.augment", "model.network", "model.optimizer",
    "model.loss", "trainer.callbacks+", "trainer.logger",
)  # fmt: skip
"""Options behind which names of classes complete the word."""
_DEEPER = {"--server": "servers", "--data": "datamodules", "--model.network": "networks"}

SCRIPT = """\
_rffl() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} choices files
    if [[ $word == "=" ]]; then word=""; elif [[ $before == "=" ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    if [[ $COMP_CWORD -eq 1 || ( $COMP_CWORD -eq 3 && ${{COMP_WORDS[1]}} == {ranks} ) ]]; then
        choices="{commands} --help --version"
    elif [[ ${{COMP_WORDS[1]}} == list && $before == configs ]]; then
        choices="{configs}"
    elif [[ ${{COMP_WORDS[1]}} == list ]]; then
        choices="{kinds}"
    elif [[ ${{COMP_WORDS[1]}} == study ]]; then
        choices="{study}" files=yes
    elif [[ ${{COMP_WORDS[1]}} == dashboard ]]; then
        choices="{dashboard}"
    elif [[ ${{COMP_WORDS[1]}} == paper ]]; then
        choices="{paper}"
    elif [[ ${{COMP_WORDS[1]}} == compare ]]; then
        [[ $word == -* ]] && choices="{compare}"
    else
        case $before in
            --config|-c) files=yes ;;
        esac
        case ${{before%.help}} in
{cases}
            --ckpt_path) ;;
            *) [[ $word == -* ]] && choices="{options}" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    [[ $files ]] && COMPREPLY+=($(compgen -f -- "$word"))
}}
complete -o default -F _rffl rffl
"""


def answer(words: Sequence[str], run: RunWords) -> str:
    """The script, for no words behind the command.

    Raises:
        UserError: If there are some.
    """
    if words:
        raise UserError(f"Expected nothing behind rffl completion, but got {' '.join(words)}.")
    return script(run)


def script(run: RunWords) -> str:
    """The script; ``run`` answers ``fit --help``, where the options are read."""
    from rffl_pl.cli.classes import CLASSES  # torch, which the answer needs anyway

    help = _said(run, "fit", "--help")
    choices = {f"--{option}": " ".join(CLASSES[option.rstrip("+")]()) for option in _OF_CLASSES}
    choices |= dict.fromkeys(("--config", "-c"), configs := " ".join(catalogue.configs()))
    choices |= _words(help) | _words(_said(run, "fit", "--server.help", "RFFL"))
    cases = "\n".join(f'            {option}) choices="{words}" ;;' for option, words in choices.items() if words)
    deeper = {f"{option}.{name}" for option, kind in _DEEPER.items() for name in catalogue.options(kind)}
    options = set(re.findall(r"(?<![\w-])--[a-z][\w.]*\w", help))
    return SCRIPT.format(
        commands=" ".join(COMMANDS),
        ranks=RANKS,
        kinds=" ".join(catalogue.LISTED),
        configs=configs,
        compare=" ".join(compare.parser().options()),
        study=" ".join([*study.parser().options(), *study.packaged()]),
        dashboard=" ".join(dashboard.parser().options()),
        paper=" ".join([*paper.VERBS, *TABLES, *FIGURES, *paper.parser().options()]),
        cases=cases,
        options=" ".join(sorted(options | deeper | {RANKS})),
    )


def _said(run: RunWords, *words: str) -> str:
    """What ``run`` prints for these words: a help text."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        run([*words])
    return text.getvalue()


def _words(help: str) -> dict[str, str]:
    """The words that options take, by option, where help names them, ``--exchange {central,sharded}``."""
    found = re.findall(r"(?<![\w-])(--[a-z][\w.]*\w) \{([\w,.-]+)\}", help)
    return {option: words.replace(",", " ") for option, words in found}
