"""Finding, checking and downloading the files of a data set."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from torchvision.datasets.utils import download_and_extract_archive

from rffl_pl.errors import UserError

_DAMAGED = "is damaged"


def data_dir(given: str | None) -> Path:
    """The data folder: as given, else the environment's ``RFFL_DATA_DIR``, else ``data``."""
    return Path(given or os.environ.get("RFFL_DATA_DIR") or "data")


def ensure(name: str, folder: Path, checksums: Mapping[str, str | None], download: Callable[[], object]) -> None:
    """See that all files are there and whole; download them if not.

    Args:
        name: The data set, for messages.
        folder: Where the files are expected.
        checksums: MD5 of every file by its name; None where it is not known.
        download: Puts the files there.

    Raises:
        UserError: If a file is missing or damaged and cannot be downloaded either.
    """
    faults, above = _faults(folder, checksums), absent(folder)
    if not faults:
        return
    try:
        download()
        reason = ""
    except Exception as error:  # whatever a download can meet: no network, no permission, a damaged archive
        reason = f" and the download failed ({type(error).__name__}; is there a network?)"
    left = _faults(folder, checksums)
    if left:
        remove_empty(above)
        damaged = any(fault.endswith(_DAMAGED) for fault in left)
        own = "; files of your own in that layout want a subclass whose prepare_data() does nothing" if damaged else ""
        raise UserError(
            f"Expected the files of {name} in {folder}/ ({', '.join(checksums)}), but {'; '.join(left)}{reason}; put "
            f"them there, or point --data.data_dir or RFFL_DATA_DIR at the folder above{own}."
        )


def absent(folder: Path) -> list[Path]:
    """The folder and those above it that do not exist, the innermost first."""
    return [path for path in (folder, *folder.parents) if not os.path.exists(path)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those that are there and empty."""
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            folder.rmdir()


def unpack_from(url: str, folder: Path) -> None:
    """Download an archive and unpack it into ``folder``; no broken archive stays behind to be taken for whole."""
    with TemporaryDirectory() as temporary:
        download_and_extract_archive(url, temporary, extract_root=folder)


def _faults(folder: Path, checksums: Mapping[str, str | None]) -> list[str]:
    faults = [f"{file} is missing" for file in checksums if not (folder / file).is_file()]
    present = [(file, md5) for file, md5 in checksums.items() if md5 and (folder / file).is_file()]
    return faults + [f"{file} {_DAMAGED}" for file, md5 in present if _md5(folder / file) != md5]


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
