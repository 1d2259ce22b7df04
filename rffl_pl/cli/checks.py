"""What is seen to before anything is made: options of Lightning, and of classes that are not this package's."""

from __future__ import annotations

import inspect
import itertools
import pkgutil
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jsonargparse import Namespace

from rffl_pl.callbacks.watching import check_logged
from rffl_pl.cli.classes import constructors
from rffl_pl.cli.mistakes import mistake_behind
from rffl_pl.cli.own import no_class, not_whole
from rffl_pl.datamodules import Split
from rffl_pl.errors import UserError, brief, check_folder, reason
from rffl_pl.studies.own import of_package
from rffl_pl.trainer import check_callbacks, check_options

_LINKED = ("params", "federation")
"""What an optimizer and a data module are given later."""


def check_values(given: Any, option: str = "-") -> None:
    """See that no option is null whose class takes none, whole numbers can be counted with, and no network is made yet.

    What a module of one's own makes when it is imported is drawn before any seed is set, and another in every run. What
    a class needs and gives no type of, the parser leaves null where nobody gives it.

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
            _check_null(kind, options, option)
        for name, value in vars(options).items():
            check_values(value, _inside(option, name))
    elif isinstance(given, torch.nn.Module) and any(True for _ in given.parameters()):
        raise UserError(
            f"Expected {option} to be a class, or a function that makes a network, but got a {type(given).__name__} "
            "that is made already, before any seed; give the class and its options."
        )
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
    if of_package(kind) or not any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
        raise UserError(
            f"Expected an option of {option} {kind.rpartition('.')[2]}, but got "
            f"{option}.dict_kwargs.{next(iter(more.keys()))}; leave it out."
        )


def _check_null(kind: str, options: Namespace, option: str) -> None:
    """See that what a class needs is given, and what it has a value of is not null."""
    made = pkgutil.resolve_name(kind)
    if option == "--model.optimizer" and not isinstance(made, type):  # which the parser would call, with no parameters
        raise UserError(
            f"Expected --model.optimizer to be a class where it is given options, but got {kind}, a function; give the "
            "function alone, or write a class."
        )
    for name in [name for name, value in vars(options).items() if value is None]:
        found = [inspect.signature(one).parameters.get(name) for one in constructors(made)]
        arguments = [argument for argument in found if argument is not None]
        if any(map(_never_null, arguments)):
            raise UserError(f"Expected {option}.{name} to have a value, but got null; leave it out.")
        if arguments and _is_needed(arguments[0]) and name not in _LINKED:
            raise UserError(
                f"Expected {option}.{name}, which {kind} needs, but got none; give it, or give the argument a default."
            )


def _never_null(argument: inspect.Parameter) -> bool:
    """Whether an argument has a value and is not to be null."""
    return (
        argument.default not in (None, argument.empty)
        and argument.annotation is not argument.empty
        and not re.search("None|Optional|Any", str(argument.annotation))
    )


def _is_needed(argument: inspect.Parameter) -> bool:
    """Whether an argument must be given, and may be anything."""
    return argument.default is argument.empty and argument.annotation is argument.empty


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


def check_split(given: Any) -> None:
    """Say what keeps a split of one's own from being taken, of which the parser leaves no more than its name.

    Raises:
        UserError: If the name is an import path, and nothing was made of it.
    """
    if not isinstance(given, str) or "." not in given:
        return
    if said := no_class("--data.split", given):
        raise UserError(said)
    if not re.fullmatch(r"[\w.]+", given):
        raise UserError(
            f"Expected --data.split to be a class by its name, or as my_package.MySplit, but got {given}; give options "
            "behind it, as in --data.split DIR --data.split.alpha 0.5."
        )
    kind = pkgutil.resolve_name(given)
    if not (isinstance(kind, type) and issubclass(kind, Split)):
        raise UserError(f"Expected --data.split to be a class derived from Split, but got {given}, which is none.")
    if said := not_whole("--data.split", given):
        raise UserError(said)
    raise UserError(
        f"Expected --data.split {given} with all options that it requires and no others, but some are missing or "
        f"unknown; see `rffl fit --data Digits --data.split.help {given}`."
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
    """Context that names options in an inner class's error as typed: the class only knows its own names.

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
        **kwargs: What it is given by name.

    Raises:
        UserError: If it is another's class and refuses what it is given; this package's say what they expect.
    """
    try:
        return kind(*args, **kwargs)
    except Exception as error:
        if f"{kind.__module__}.".startswith(("rffl_pl.", "torch.optim.")) or mistake_behind(error) is not None:
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
