"""What is seen to before anything is made: options of Lightning, and of classes that are not this package's."""

from __future__ import annotations

import inspect
import itertools
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from rffl_pl.callbacks.watching import check_logged
from rffl_pl.cli.classes import constructors
from rffl_pl.cli.configurations import text_of
from rffl_pl.cli.mistakes import mistake_behind
from rffl_pl.cli.own import why_not
from rffl_pl.datamodules import Split
from rffl_pl.errors import UserError, brief, check_folder, reason
from rffl_pl.runs import RunFolder
from rffl_pl.trainer import check_callbacks, check_options


def check_values(given: Any, option: str = "-") -> None:
    """See that no option is null whose class takes none, and that whole numbers are such as a machine counts with.

    Args:
        given: The configuration, or a part of it.
        option: What that part is called.

    Raises:
        UserError: If one is.
    """
    if isinstance(given, list):
        for item in given:
            check_values(item, option)
    elif isinstance(given, Namespace):
        kind, options = given.get("class_path"), given.get("init_args", given)
        if kind is not None and isinstance(options, Namespace):
            _check_more(kind, given.get("dict_kwargs"), option)
            for name in _never_null(pkgutil.resolve_name(kind)):
                if name in options and options[name] is None:
                    raise UserError(f"Expected {option}.{name} to have a value, but got null; leave it out.")
        for name, value in vars(options).items():
            check_values(value, _inside(option, name))
    elif isinstance(given, int) and abs(given) >= 2**63:
        raise UserError(f"Expected {option} to be a whole number of 64 bits, but got {brief(given)}.")


def _inside(option: str, name: str) -> str:
    """What an option of an option's is called as it is typed; ``-`` is the configuration itself."""
    called = f"{option}.{name}" if option != "-" else f"--{name}"
    return called.replace("--model.adversaries", "--adversaries")  # where they are linked to


def _check_more(kind: str, more: Any, option: str) -> None:
    """See that a class that is given options beyond those that it names takes such."""
    if not more:
        return
    own = constructors(pkgutil.resolve_name(kind))[:1]
    arguments = [argument for made in own for argument in inspect.signature(made).parameters.values()]
    if not any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
        raise UserError(
            f"Expected {option} {kind.rpartition('.')[2]} to have every option that is given, but got "
            f"{option}.dict_kwargs.{next(iter(more.keys()))}; leave it out."
        )


def _never_null(kind: Any) -> set[str]:
    """The arguments of a class, and of those it passes others on to, that have a value and are not to be null."""
    arguments = [argument for made in constructors(kind) for argument in inspect.signature(made).parameters.values()]
    return {
        argument.name
        for argument in arguments
        if argument.default not in (None, argument.empty)
        and argument.annotation is not argument.empty
        and not re.search("None|Optional|Any", str(argument.annotation))
    }


_CHOSEN = r"server|adversaries|data|model\.(?:network|optimizer|loss|objective)"
"""The options that take a class, or several."""


def tell_of_dropped(words: Sequence[str], config: Namespace) -> None:
    """Warn of every option of a class that was typed and is not there: another class behind it has dropped it.

    Args:
        words: As they were typed.
        config: What became of them.
    """
    for place, (word, following) in enumerate(itertools.pairwise([*words, ""]), 1):
        found = re.fullmatch(rf"--({_CHOSEN})\.(?:init_args\.)?(\w+)(?:=(.*))?", word)
        if found is None or found[2] in ("help", "class_path", "init_args", "dict_kwargs"):
            continue
        chosen = config.get(found[1])
        every = [one for one in (chosen if isinstance(chosen, list) else [chosen]) if isinstance(one, Namespace)]
        having = [one.init_args[found[2]] for one in every if found[2] in (one.get("init_args") or ())]
        names = " and ".join(one.class_path.rpartition(".")[2] for one in every)
        if every and not having:
            stands, has = ("stands", "has") if len(every) == 1 else ("stand", "have")
            rank_zero_warn(
                f"Nothing goes by --{found[1]}.{found[2]}: {names}, which {stands} behind it, {has} no such option."
            )
        elif found[1] == "adversaries" and _are_others(words[place:], found[3] or following, having):
            rank_zero_warn(
                f"Nothing goes by --{found[1]}.{found[2]}: {names}, which stand behind it, are others than it was "
                "given for; give each its own in the list."
            )


def _are_others(behind: Sequence[str], typed: str, having: Sequence[Any]) -> bool:
    """Whether adversaries are listed behind an option of them, and none of these has what was typed."""
    listed = any(word.partition("=")[0] == "--adversaries" for word in behind)
    return listed and not any(_alike("None" if typed == "null" else typed, one) for one in having)


def tell_of_rate(words: Sequence[str]) -> None:
    """Warn where an optimizer that is typed keeps the learning rate of another one, of a configuration.

    Args:
        words: As they were typed, with configurations as files, each behind a ``--config``.
    """
    chosen = whose = ""
    rate = None
    for before, word in itertools.pairwise(["", *words]):
        option, equals, value = word.partition("=")
        option, value = (option, value) if equals else (before, word)
        if option in ("--model.optimizer.lr", "--model.optimizer.init_args.lr"):
            return
        said = _optimizer_in(option, value)
        chosen = str(said.get("class_path") or chosen).rpartition(".")[2]
        options = said.get("init_args") or said
        if "lr" in options:
            rate, whose = options["lr"], chosen
    if rate is not None and chosen != whose:
        rank_zero_warn(
            f"--model.optimizer {chosen} has the learning rate {rate} of the configuration's {whose}; give it one of "
            "its own with --model.optimizer.lr."
        )


def _optimizer_in(option: str, value: str) -> dict[str, Any]:
    """What an option says of the optimizer: its class, options of it, both or nothing."""
    said: Any = None
    if option in ("--model.optimizer", "--model.optimizer.class_path"):
        said = yaml.safe_load(value)
    elif option in ("--config", "--model"):
        model = (_content_of(value).get("model") or {}) if option == "--config" else _content_of(value)
        said = model.get("optimizer")
    return said if isinstance(said, dict) else {"class_path": said}


def tell_of_stages(words: Sequence[str], config: Namespace) -> None:
    """Warn where a run begins with the configuration of one that went on with other options: it does not repeat it.

    Args:
        words: As they were typed, with configurations as files, each behind a ``--config``.
        config: What became of them.
    """
    if config.get("ckpt_path") is not None:
        return
    for run in _whose_configurations(words):
        with suppress(UserError):  # an earlier one is damaged, which nothing here needs
            for number, _ in run.earlier_configs()[-1:]:
                rank_zero_warn(
                    f"{run.config_file} has the options of its run after round {number}; the rounds before went by "
                    f"config.{number}.yaml beside it, and this run goes by the later ones from its first round."
                )


def _whose_configurations(words: Sequence[str]) -> list[RunFolder]:
    """The runs whose own configurations are given."""
    files = [Path(word) for before, word in itertools.pairwise(words) if before == "--config" and "{" not in word]
    return [RunFolder(file.parent) for file in files if file.name == RunFolder(file.parent).config_file.name]


def tell_of_overlaid(words: Sequence[str]) -> None:
    """Warn of every option before a configuration where that says something else: what stands later wins.

    Args:
        words: As they were typed, with configurations as files, each behind a ``--config``.
    """
    contents = {place: _content_of(words[place + 1]) for place, word in enumerate(words) if word == "--config"}
    options = [word.partition("=")[0] for word in words]
    for place, (word, following) in enumerate(itertools.pairwise([*words, ""])):
        option, equals, value = word.partition("=")
        option, value = option.rstrip("+"), value if equals else following
        later = [_said(content, option) for behind, content in contents.items() if behind > place]
        said = [one for one in later if one is not None]
        if word.startswith("--") and option not in options[place + 1 :] and said and not _alike(value, said[-1]):
            rank_zero_warn(
                f"Nothing goes by {option} {value}: a configuration behind it says {said[-1]}; give options behind "
                "every --config."
            )


def _said(content: Any, option: str) -> Any:
    """What a configuration says of an option, of a class, or of several, the names; None if nothing."""
    for name in option.removeprefix("--").split("."):
        inside = content if isinstance(content, dict) else {}
        content = inside.get(name, (inside.get("init_args") or {}).get(name))
    if isinstance(content, list):
        return [*map(_named, content)]
    return content.get("class_path") if isinstance(content, dict) else content


def _alike(typed: str, said: Any) -> bool:
    """Whether a word is what a configuration says: a value, or a class or several, by the ends of their names."""
    if isinstance(said, list):
        listed = yaml.safe_load(typed) if typed.startswith("[") else [typed]
        return [*map(_named, listed)] == said
    with suppress(ValueError, TypeError):
        return float(typed) == float(said)  # 3 is 3.0, and 1e-3 no number to YAML
    return typed.lower() == str(said).lower() or typed == str(said).rpartition(".")[2]


def _named(item: Any) -> Any:
    """An element of a list, of which a class goes by the end of its name."""
    name = item.get("class_path") if isinstance(item, dict) else item
    return name.rpartition(".")[2] if isinstance(name, str) else name


def _content_of(given: str) -> dict[str, Any]:
    content = yaml.safe_load(text_of(given))
    return content if isinstance(content, dict) else {}


def check_checkpoint(given: str | None) -> None:
    """See that a checkpoint may be one on this machine.

    Raises:
        UserError: If it lies elsewhere, or is one of Lightning's words for another one.
    """
    if given is None:
        return
    if "://" in given:
        raise UserError(f"Expected --ckpt_path to be a folder on this machine, but got {given}; copy it here first.")
    check_folder("--ckpt_path", given)
    if given in ("best", "hpc") or given.startswith("registry"):
        raise UserError(
            f"Expected --ckpt_path to be a folder as runs leave it in checkpoints/, but got {given}; give "
            "runs/<name>/<date and time>/checkpoints/last.ckpt."
        )


def check_whose(words: Sequence[str], command: str, checkpoint: str) -> None:
    """See that a run's own configuration does not stand for the models of another run, which it went on from.

    Args:
        words: As they were typed, with configurations as files, each behind a ``--config``.
        command: What is done to the models.
        checkpoint: Theirs.

    Raises:
        UserError: If that run has checkpoints of its own, and nobody typed which are meant.
    """
    if any(word.startswith("--ckpt_path") for word in words):
        return
    for run in _whose_configurations(words):
        own = Path(checkpoint).resolve().is_relative_to(run.path.resolve())
        if run.newest_checkpoint() is not None and not own and run.config().get("ckpt_path") == checkpoint:
            raise UserError(
                f"Expected --ckpt_path to say whose models to {command}, but {run.config_file} alone names "
                f"{checkpoint}, which its run went on from; give --ckpt_path {run.checkpoints}."
            )


def check_split(given: Any) -> None:
    """Say what keeps a split of one's own from being taken, of which the parser leaves no more than its name.

    Raises:
        UserError: If the name is an import path, and nothing was made of it.
    """
    if not isinstance(given, str) or "." not in given:
        return
    if why := why_not(given):
        raise UserError(
            f"Expected --data.split to be a class, but got {given}, {why}{'' if why.endswith('?') else '.'}"
        )
    if not re.fullmatch(r"[\w.]+", given):
        raise UserError(
            f"Expected --data.split to be a class by its name, or as my_package.MySplit, but got {given}; give options "
            "behind it, as in --data.split DIR --data.split.alpha 0.5."
        )
    kind = pkgutil.resolve_name(given)
    if not (isinstance(kind, type) and issubclass(kind, Split)):
        raise UserError(f"Expected --data.split to be a class derived from Split, but got {given}, which is none.")
    if lacking := " and no ".join(sorted(kind.__abstractmethods__)):
        raise UserError(
            f"Expected --data.split to be a class that can be made, but {given} has no {lacking}; write it."
        )
    raise UserError(
        f"Expected --data.split {given} with the options that it needs and no others, but some are not given or not "
        f"there; see `rffl fit --data Digits --data.split.help {given}`."
    )


def check_trainer(config: Mapping[str, Any]) -> None:
    """See that Lightning's trainer is told what a federation can do.

    Raises:
        UserError: If not.
    """
    check_options(config)
    if config["default_root_dir"] is not None:
        raise UserError(
            f"Expected --trainer.default_root_dir to be left alone, but got {config['default_root_dir']}; for the "
            "folder of all runs give --run.root."
        )
    callbacks = config["callbacks"] or []
    check_callbacks(callbacks)
    check_logged(callbacks)


@contextmanager
def naming_inner_options(option: str, given: Any) -> Iterator[None]:
    """Around what makes an object: a class does not know that it is made for an option of another one's.

    Args:
        option: What the outer class is given by, ``--server``.
        given: The configuration of it, with ``init_args``.

    Raises:
        UserError: Of an inner class, with its options as they are typed: ``--server.rule.trim``.
    """
    try:
        yield
    except Exception as error:
        mistake = mistake_behind(error)
        for path in (given.get("init_args") or {}).keys():  # noqa: SIM118  # rule.init_args.trim
            *outer, name = path.replace("init_args.", "").split(".")
            if outer and isinstance(mistake, UserError) and re.search(rf"{option}\.{name}\b", str(mistake)):
                said = str(mistake).replace(f"{option}.", ".".join([option, *outer, ""]))
                raise UserError(said) from error
        raise


def constructed(config: Namespace, kind: type, /, *args: Any, **kwargs: Any) -> Any:
    """An object of a class that an option names.

    Args:
        config: The configuration, which says by which option.
        kind: The class.
        *args: What it is given.
        **kwargs: Likewise.

    Raises:
        UserError: If it is another's class and refuses what it is given; this package's say what they expect.
    """
    try:
        return kind(*args, **kwargs)
    except Exception as error:
        if kind.__module__.startswith(("rffl_pl.", "torch.optim.")) or mistake_behind(error) is not None:
            raise  # these say themselves what they expect, and an optimizer is made by who knows its option
        named = " ".join([*itertools.islice(_options_of(kind, config), 1), kind.__name__])
        raise UserError(
            f"Expected {named} to take the options that it is given, but {reason(error)}; mend its options, or the "
            "class."
        ) from error


def _options_of(kind: type, given: Any, option: str = "-") -> Iterator[str]:
    """The options that name a class, in a part of the configuration that is called so."""
    for item in given if isinstance(given, list) else [given]:
        if isinstance(item, Namespace):
            path = item.get("class_path")
            if path is not None and pkgutil.resolve_name(path) is kind:
                yield option
            for name, value in vars(item.get("init_args", item)).items():
                yield from _options_of(kind, value, _inside(option, name))
