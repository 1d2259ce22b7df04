"""What is answered at once, without torch: help, version, lists, and a command that does not exist."""

from __future__ import annotations

import shlex

from rffl_pl import __version__
from rffl_pl.cli import catalogue
from rffl_pl.errors import UserError, nearest
from rffl_pl.launch.fork import RANKS, take_ranks

COMMANDS = {
    "fit": ("train a federation", "rffl fit --config digits.yaml"),
    "validate": (
        "score the models of a checkpoint on the validation examples",
        "rffl validate --config runs/digits/RUN/config.yaml --ckpt_path runs/digits/RUN/checkpoints/last.ckpt",
    ),
    "test": (
        "score the models of a checkpoint on the test set",
        "rffl test --config runs/digits/RUN/config.yaml --ckpt_path runs/digits/RUN/checkpoints/last.ckpt",
    ),
    "predict": (
        "write every participant's class probabilities",
        "rffl predict --config runs/digits/RUN/config.yaml --ckpt_path runs/digits/RUN/checkpoints/last.ckpt",
    ),
    "compare": (
        "what differs between runs and what came of it, a table and a page; without folders, all below runs/",
        "rffl compare runs/digits/*",
    ),
    "study": ("run a study's cells that have no result yet, or show its tables", "rffl study studies/digits.yaml"),
    "paper": ("the paper's tables and figures, published beside measured", "rffl paper table accuracy --reduced"),
    "dashboard": (
        "build a workspace and a report in Weights & Biases that compare runs",
        "rffl dashboard --entity me --project rffl_pl",
    ),
    "list": (f"name what there is: {', '.join(catalogue.LISTED)}", "rffl list servers"),
    "completion": ("print a completion script for bash", "rffl completion > ~/.rffl.bash; source ~/.rffl.bash"),
}
TRAINING = ("fit", "validate", "test", "predict")
"""Those that take the options of a run, and ranks."""


def answer(args: list[str]) -> str | None:
    """The answer to a command line that needs no torch; None if it needs a run.

    Raises:
        UserError: If there is no such command, an option stands before it, or there is nothing of that kind to list.
    """
    match args:
        case ["-h" | "--help" | "help", *_] | ["list", "-h" | "--help", *_]:
            return overview()
        case ["completion", "-h" | "--help", *_]:
            what, example = COMMANDS["completion"]
            return (
                f"usage: rffl completion\n\n{what}, with commands, options and the names that they take\n\n  {example}"
            )
        case ["--version", *_]:
            return f"rffl {__version__}"
        case ["list"]:
            return "\n\n".join(f"{kind}:\n{lines(kind)}" for kind in catalogue.LISTED)
        case ["list", kind] if kind in catalogue.LISTED:
            return lines(kind)
        case ["list", "configs", name]:
            return catalogue.config_text(name)
        case ["list", *words]:
            near = nearest(words[0], catalogue.LISTED)
            raise UserError(
                f"Expected one of {', '.join(catalogue.LISTED)} to list, but got {' '.join(words)}{near or '.'}"
            )
    words = take_ranks(args)[1] if args and args[0].partition("=")[0] == RANKS else args
    if words[:1] in (["-h"], ["--help"]):
        return overview()
    _check_command(words, before=args[: len(args) - len(words)])
    return None


def overview() -> str:
    """What the package is, its subcommands and one example each."""
    commands = "\n".join(f"  {name:12}{what}\n              {example}" for name, (what, example) in COMMANDS.items())
    return f"""\
rffl {__version__}: Robust and Fair Federated Learning (Xu & Lyu 2021) with PyTorch Lightning and torch.distributed.

Participants train on their own data and upload what changed; the server weights the uploads by reputation, removes
whoever falls below a threshold and rewards each participant by its reputation.

usage: rffl COMMAND [options], the same as python -m rffl_pl COMMAND [options]
       rffl COMMAND --ranks 4 [options] for several ranks on this machine
       torchrun --nproc_per_node=4 -m rffl_pl COMMAND [options] for several ranks, also on several machines

commands, each with an example:
{commands}

  rffl fit --help lists all options, rffl fit --server.help RFFL those of one class.
  --config takes a file of yours or one of the package's (rffl list configs); later ones overlay earlier ones.
  rffl list configs digits.yaml prints one.

options:
  -h, --help  this text
  --version   the version"""


def lines(kind: str) -> str:
    """One line each: name and first sentence."""
    found = catalogue.listed(kind)
    width = max(map(len, found), default=0)
    return "\n".join(f"  {name:{width}}  {sentence}" for name, sentence in found.items())


def _check_command(words: list[str], before: list[str]) -> None:
    """See that the first word is a command; the parser's own options may stand before it."""
    if not words:
        raise UserError(f"Expected a subcommand: {', '.join(COMMANDS)}; `rffl --help` shows an example of each.")
    word, option = words[0], words[0].partition("=")[0]
    if not word.startswith("-") and word not in COMMANDS:
        near = nearest(word, COMMANDS)
        raise UserError(f"Expected a subcommand: {', '.join(COMMANDS)}, but got {word}{near or '.'}")
    if word.startswith("-") and not (option in ("-c", "--config", "--print_config") and {*words} & {*COMMANDS}):
        place = next((number for number, word in enumerate(words) if word in COMMANDS), len(words))
        command, *behind = words[place:] or ["fit"]
        # Behind --config, over which they win.
        line = " ".join(shlex.join([*before, command, *behind, *words[:place]]).split())
        raise UserError(f"Expected a command first, but got {option}; put options behind it: rffl {line}.")
