"""Data sets of Hugging Face's ``datasets``: where they lie, which splits are what, and what the classes are."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rffl_pl.datamodules.base import FederatedDataModule
from rffl_pl.datamodules.group_names import check_groups
from rffl_pl.datamodules.labelled import Groups, Labelled, Lines, by_number, check_alike, label_of, written_alike
from rffl_pl.datamodules.shards import held_out
from rffl_pl.datamodules.sources import HARM
from rffl_pl.datamodules.splits import check_group
from rffl_pl.errors import UserError, nearest, words_of
from rffl_pl.federation import Federation


class HuggingFaceData(FederatedDataModule):
    """Base of data modules that read a Hugging Face data set by the names of its splits and columns.

    Args:
        federation: Who takes part.
        path: A folder, either saved with ``save_to_disk`` or of Parquet, CSV, JSON or image files; else the name of a
            data set on the hub, which is downloaded.
        name: Which configuration, where it has several.
        label: Column of the label: class labels, whole numbers or strings, which sorted are the classes. Blanks around
            a string are no part of it, and one of blanks alone is no label.
        train: Split for training.
        test: Split for the test; by default ``test``, unless ``test_share`` is given.
        val: Split for watching; by default a share of the training examples is held out.
        test_share: Share of the training split that becomes the test set, where there is no split for it.
        group: Column of the training split that says which examples belong together, for ``--data.split GROUPS``.
        kwargs: See `FederatedDataModule`.

    Raises:
        UserError: If an argument is out of range, and in `prepare_data` and `setup` if the data set cannot be read,
            lacks a split or a column, or its labels are no classes.
    """

    num_classes = 0
    places: Sequence[str] = ("path",)

    def __init__(
        self,
        federation: Federation,
        *,
        path: str,
        name: str | None = None,
        label: str = "label",
        train: str = "train",
        test: str | None = None,
        val: str | None = None,
        test_share: float | None = None,
        group: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(federation, **kwargs)
        if test_share is not None and not 0 < test_share < 1:
            raise UserError(f"Expected --data.test_share to lie between 0 and 1, but got {test_share}; try 0.1.")
        if test_share is not None and test is not None:
            raise UserError(
                f"Expected --data.test or --data.test_share, but got both, {test} and {test_share}; leave one out."
            )
        self.path, self.configuration, self.label, self.test_share = os.fspath(path), name, label, test_share
        check_group(group, self.split)
        self.group = group
        self._class_labels = False  # until the training split is read
        self.split_names = {"train": train, "test": None if test_share is not None else test or "test", "val": val}

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str]:
        """The columns that the inputs are made of, each with the option that names it."""

    def prepare_data(self) -> None:
        self._found()

    def parts(self) -> tuple[Labelled, Labelled | None, Labelled]:
        """Training, validation and test examples; sets the classes."""
        found = self._found()
        train = self._split(found, "train")
        names = self._names(train)
        if self.group is not None:
            self._check_groups(train, self.group)
        trained = tested = None
        if self.test_share is None:
            test = self._split(found, "test")
        else:
            self._labelled(train, names, "train")  # what it tells of an example is where that lies in the file
            trained, tested = self._divided(train, self.test_share)
            train, test = train.select(trained), train.select(tested)
        val = None if self.split_names["val"] is None else self._split(found, "val")
        self.class_names, self.num_classes = tuple(names), len(names)
        return (
            self._labelled(train, names, "train", trained),
            None if val is None else self._labelled(val, names, "val"),
            self._labelled(test, names, "test", tested),
        )

    def option_of(self, which: str) -> str:
        """What names the split that training, validation or test examples are of, for messages."""
        return "--data.train" if which == "test" and self.test_share is not None else f"--data.{which}"

    def _divided(self, rows: Any, share: float) -> tuple[list[int], list[int]]:
        """Numbers of training and test rows, drawn at random.

        Where classes are known by labels alone, one of each stays among the training rows.
        """
        labels = [] if hasattr(rows.features[self.label], "names") else _labels(rows, self.label)
        return held_out(len(rows), labels, share, self.federation.seed_for("test"))

    def _found(self) -> Mapping[str, Any]:
        """Every split by its name."""
        datasets = _library()
        folder = Path(self.path).expanduser()
        self._check_path(folder)
        try:
            if any((folder / file).is_file() for file in ("dataset_dict.json", "state.json")):
                found = datasets.load_from_disk(str(folder))
            else:
                # By its whole path: `csv` alone is a format, of whatever files there are.
                where = str(folder.absolute()) if folder.is_dir() else self.path
                found = datasets.load_dataset(where, self.configuration)
        except Exception as error:  # whatever formats, files and networks can meet
            raise UserError(self._cannot_be_read(error, local=folder.is_dir())) from error
        return found if isinstance(found, dict) else {str(found.split or "train"): found}

    def _check_path(self, folder: Path) -> None:
        if folder.is_file():
            raise UserError(
                f"Expected --data.path to be a folder or a name on the Hugging Face hub, but {folder} is a file; give "
                "the folder that it lies in."
            )
        if not folder.exists() and (self.path.startswith((".", "/", "~")) or self.path.count("/") > 1):
            raise UserError(
                "Expected --data.path to be a folder or a name on the Hugging Face hub, but there is no folder "
                f"{folder}."
            )

    def _cannot_be_read(self, error: Exception, *, local: bool) -> str:
        cause = error.__cause__ or error
        reason = " ".join(str(cause).partition("Example of usage")[0].split()).rstrip(".")
        if "config" in reason.lower():
            remedy = "name one of its configurations with --data.name"
        elif isinstance(cause, IndexError) or "corresponds to no data" in reason:
            remedy = "a split without rows is none that it reads: give it rows, or write the folder without that split"
        elif local:
            remedy = "mend what it says, or write the folder anew"
        else:
            remedy = "is the name right, and is there a network?"
        return (
            f"Expected --data.path {self.path} to be a data set that Hugging Face's datasets can read, but it cannot "
            f"({type(cause).__name__}: {reason}); {remedy}{'' if remedy.endswith('?') else '.'}"
        )

    def _split(self, found: Mapping[str, Any], which: str) -> Any:
        name = self.split_names[which]
        assert name is not None
        if name not in found:
            share = ", or hold out a share for the test with --data.test_share 0.1" if which == "test" else ""
            raise UserError(
                f"Expected --data.{which} to be a split of --data.path {self.path}, but got {name} and it has "
                f"{', '.join(found)}{_nearest(name, found)} one with --data.{which}{share}."
            )
        self._check_apart(which, name)
        if self.label in self.columns:
            raise UserError(
                f"Expected --data.label to be another column than those of {self.columns[self.label]}, but got "
                f"{self.label} in both; a model would be told what it is to find out."
            )
        if self.group in (self.label, *self.columns):
            raise UserError(
                f"Expected --data.group to be another column than the label and what is read, but got {self.group}; "
                "name another, or leave it out."
            )
        rows = found[name]
        named = {**self.columns} if which == "predict" else {**self.columns, self.label: "--data.label"}
        if self.group is not None and which == "train":
            named[self.group] = "--data.group"
        for column, option in named.items():
            if column not in rows.column_names:
                near = _nearest(column, rows.column_names)
                raise UserError(
                    f"Expected {option} to be a column of split {name} of --data.path {self.path}, but got {column} "
                    f"and it has {', '.join(rows.column_names)}{near} yours with {option}."
                )
        self.check_rows(rows, which)
        return rows

    def check_rows(self, rows: Any, which: str) -> None:
        """See that the inputs of all rows of a split, ``train`` say, can be used; nothing by default.

        Raises:
            UserError: If not.
        """

    def _check_apart(self, which: str, name: str) -> None:
        """See that no two of training, validation and test examples are the same."""
        earlier = {"test": ("train",), "val": ("train", "test")}
        for other in earlier.get(which, ()):
            if name == self.split_names[other]:
                raise UserError(
                    f"Expected --data.{which} to be another split than --data.{other}, but both are {name}; "
                    f"{HARM[other]}; name another."
                )

    def _names(self, train: Any) -> Sequence[str]:
        """What the classes are called."""
        feature = train.features[self.label]
        self._class_labels = hasattr(feature, "names")
        if self._class_labels:
            return list(feature.names)
        if not all(_named(value) for value in column_of(train, self.label)):
            raise UserError(
                f"Expected whole numbers or strings as labels in column {self.label} of --data.path {self.path}, but "
                f"it holds {feature}; name another column with --data.label."
            )
        labels = [label for label in _labels(train, self.label) if label is not None]
        names = sorted({*labels}, key=by_number)
        if not 2 <= len(names) < len(labels):
            number = f"{len(names)} in {len(labels)} examples"
            raise UserError(
                f"Expected at least two classes in column {self.label} of --data.path {self.path}, and several "
                f"examples of some, but there are {number}; name another column with --data.label."
            )
        check_alike(names, "classes", f"column {self.label} of --data.path {self.path}")
        return names

    def _labelled(self, rows: Any, names: Sequence[str], which: str, places: Sequence[int] | None = None) -> Labelled:
        """A part with its labels as numbers of classes; ``places`` are its rows' numbers within their split."""
        labels = _labels(rows, self.label)
        numbers: dict[str | None, int] = {name: number for number, name in enumerate(names)}
        unknown = next((i for i, label in enumerate(labels) if label not in numbers), None)
        if unknown is not None:
            told = self._told_by_number(rows, labels[unknown], names) or _unlike(labels[unknown], names)
            raise UserError(
                f"Expected a label in column {self.label} of every example of --data.{which}, but example {unknown} "
                f"has {told}."
            )
        return Labelled(
            rows=rows,
            labels=[numbers[label] for label in labels],
            groups=self._groups(rows) if which == "train" else None,
            places=Lines("row", range(len(rows)) if places is None else places),
        )

    def _told_by_number(self, rows: Any, label: str | None, names: Sequence[str]) -> str | None:
        """What a plain number is that stands where the training split has class labels, and what to do."""
        if not self._class_labels or hasattr(rows.features[self.label], "names"):
            return None
        named = dict(zip(map(str, range(len(names))), names, strict=True)).get(label or "")
        return named and (
            f"label {label}, a plain number, where --data.train has class labels, of which that is {named}; cast it "
            f"with cast_column({self.label!r}, train.features[{self.label!r}])"
        )

    def _groups(self, rows: Any) -> Groups | None:
        """The group that every training example is of."""
        return None if self.group is None else Groups([group or "" for group in _labels(rows, self.group)])

    def _check_groups(self, train: Any, column: str) -> None:
        """See that every training example is of a group."""
        found = _labels(train, column)
        if None in found:
            raise UserError(
                f"Expected a group, a text or a number, in column {column} of every example of --data.train, but "
                f"{found.count(None)} of {len(found)} have none; name another column with --data.group, or leave such "
                "examples out."
            )
        check_groups([group for group in found if group is not None], f"column {column} of --data.train")


def _unlike(label: str | None, names: Sequence[str]) -> str:
    """What a label is that is no class, and what to do."""
    if label is None:
        return "no label; name another split or column, or leave such examples out"
    if alike := written_alike(label, names):
        return f"label {label}, which is {alike} written in another way; write them alike"
    return f"label {label}, which no training example has; name another split or column, or leave such examples out"


def _nearest(name: str, known: Iterable[str]) -> str:
    """What may have been meant, and the beginning of what to do."""
    near = nearest(name, known)
    return f"{near} Name" if near else "; name"


def column_of(rows: Any, name: str) -> list[Any]:
    """What rows have in a column, as Python's own values, in whatever format they were saved."""
    return list(rows.select_columns([name]).with_format(None)[:][name])


def _named(value: Any) -> bool:
    """Whether this is a label, or none: among whole numbers with gaps they are read as fractions, and gaps as NaN."""
    return isinstance(value, int | str | None) or (
        isinstance(value, float) and (math.isnan(value) or value.is_integer())
    )


def _labels(rows: Any, name: str) -> list[str | None]:
    """What the class of every example is called; None where it has no label."""
    feature, values = rows.features[name], column_of(rows, name)
    if hasattr(feature, "names"):  # numbers below 0 stand for no label, as in tests whose answers are kept secret
        return [feature.names[value] if value is not None and value >= 0 else None for value in values]
    return [label_of(value) or None for value in values]


def _library() -> Any:
    try:
        import datasets  # here: it takes seconds to import, and is an extra
    except ImportError as error:
        raise UserError(
            "Expected the package datasets for --data HFDataset and HFText, but it cannot be imported "
            f"({words_of(error)}); install it with pip install datasets."
        ) from error
    if not hasattr(datasets, "load_from_disk"):
        where = datasets.__file__ or next(iter(datasets.__path__))
        raise UserError(
            "Expected the package datasets for --data HFDataset and HFText, but "
            f"{where} stands in its place; give that another name."
        )
    return datasets
