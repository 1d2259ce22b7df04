"""Options of a configuration as they are typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rffl_pl.configured import PUBLISHED
from rffl_pl.errors import UserError

_ASIDE = (
    "--run", "--ckpt_path", "--standalone.cache_dir", "--data.num_workers",
    "--trainer.logger", "--trainer.enable_progress_bar", "--trainer.default_root_dir",
)  # fmt: skip
"""Options that change no result."""
_WHERE = "--data.data_dir"
"""Changes no result of the package's own data sets; a user's own class may choose by it which data it reads."""
_LIMITS = ("--trainer.limit_val_batches", "--trainer.limit_test_batches")
_ALL_OR_NONE = ("None", "1.0", "0", "0.0")
_PRECISIONS = {"None": "32-true", "32": "32-true", "bf16": "bf16-mixed"}
"""Lightning's other words for a precision."""


def options_in(file: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """`options_of` a configuration as a run leaves it in a file.

    Raises:
        UserError: If it is none of a run.
    """
    if not all(isinstance(config.get(key), Mapping) for key in ("federation", "server", "data", "trainer")):
        raise UserError(f"Expected {file} to be of a run of rffl_pl, but it says nothing of a federation.")
    return options_of(config)


def options_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Every option that may change the result as it is typed: ``--server.gamma``; a class by its name."""
    return {option: str(value) for option, value in values_of(config).items()}


def values_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same with values as they are."""
    typed = dict(_typed({**config, **_carried_out(config)}, "-"))
    if (precision := str(typed.get("--trainer.precision", ""))) in _PRECISIONS:
        typed["--trainer.precision"] = _PRECISIONS[precision]
    asides = [*_ASIDE, *[_WHERE] * ("." not in str(typed.get("--data")))]
    size = typed.pop("--data.eval_batch_size", None)
    for limit in _LIMITS:
        if str(typed.get(limit)) not in _ALL_OR_NONE:  # else it changes no result
            typed[limit] = f"{typed[limit]} in batches of {size}"
    return {
        option: value
        for option, value in typed.items()
        if not any(option == aside or option.startswith(f"{aside}.") for aside in asides)
    }


def _carried_out(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of the attacks those that an adversary carries out, and of a coalition who is in it."""
    federation = config.get("federation") or {}
    count, members = federation.get("adversaries"), federation.get("coalition")
    told: dict[str, Any] = {}
    if isinstance(count, int) and isinstance(config.get("adversaries"), list):
        told["adversaries"] = config["adversaries"][:count]
    if isinstance(members, list):
        told["federation"] = {**federation, "coalition": sorted(members)}
    return told


def _class(path: str) -> str:
    """A class by its name, one of a user's own by its path: two of those may have the same name."""
    room, _, name = path.rpartition(".")
    return name if room.partition(".")[0] in PUBLISHED else path


def _typed(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key == "class_path":
                yield name, _class(str(below))
            elif key in ("init_args", "dict_kwargs"):
                yield from _typed(below, name)
            else:
                yield from _typed(below, f"--{key}" if name == "-" else f"{name}.{key}")
    elif isinstance(value, list) and (not value or any(isinstance(item, Mapping) for item in value)):
        for number, item in enumerate(value):
            yield from _typed(item, f"{name}.{number}")
    else:
        yield name, value
