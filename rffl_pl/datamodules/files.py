"""Finding, checking and downloading the files of a data set."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError

from torchvision.datasets.utils import download_and_extract_archive

from rffl_pl.errors import UserError, at_home, reason
from rffl_pl.files import absent, remove_empty

Download = Callable[[Path], object]
"""Puts a data set's files where they belong below a root."""

_DAMAGED = "is damaged"
_ARCHIVES = (".gz", ".tgz", ".zip")
_NETWORK = "; is there a network?"


def data_dir(given: str | None) -> Path:
    """The data folder: as given, else the environment's ``RFFL_DATA_DIR``, else ``data``."""
    return Path(at_home("--data.data_dir or RFFL_DATA_DIR", given or os.environ.get("RFFL_DATA_DIR") or "data"))


def ensure(name: str, root: Path, folder: str, checksums: Mapping[str, str | None], download: Download) -> None:
    """See that all files are there and whole; download those that are not.

    They are downloaded into a folder beside and moved here, each at once: others who read here, or download too, never
    see half a file. What was damaged stays, as ``<file>.damaged``.

    Args:
        name: The data set, for messages.
        root: The data folder.
        folder: Where in it the files are expected.
        checksums: MD5 of every file by its name; None where it is not known.
        download: Puts the files where they belong below another root.

    Raises:
        UserError: If a file is missing or damaged and cannot be downloaded either.
    """
    place = root / folder
    faults, above = _faults(place, checksums), absent(place)
    if not faults:
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".download-", dir=root) as scratch:
            for each in ("", folder):
                _lend(root / each, Path(scratch) / each)
            download(Path(scratch))
            for found in sorted((Path(scratch) / folder).iterdir()):
                if found.is_file() and not found.is_symlink():  # of EMNIST those of other parts too
                    _take(found, place / found.name, checksums.get(found.name))
        why = ""
    except Exception as error:  # whatever a download can meet: no network, no permission, a damaged archive
        why = f" and the download failed ({reason(error)}{_NETWORK if _of_network(error) else ''})"
    left = _faults(place, checksums)
    if left:
        remove_empty(above)
        damaged = any(fault == _DAMAGED for fault in left.values())
        own = "; files of your own in that layout want a subclass whose prepare_data() does nothing" if damaged else ""
        faulty = "; ".join(f"{file} {fault}" for file, fault in left.items())
        raise UserError(
            f"Expected the files of {name} in {place}/ ({', '.join(checksums)}), but {faulty}{why}; put "
            f"them there, or point --data.data_dir or RFFL_DATA_DIR at the folder above{own}."
        )


def _lend(folder: Path, scratch: Path) -> None:
    """Show the archives of a folder to who downloads elsewhere: of what lies there already nothing is fetched."""
    scratch.mkdir(parents=True, exist_ok=True)
    for archive in folder.iterdir():
        if archive.suffix in _ARCHIVES and not (scratch / archive.name).exists():
            (scratch / archive.name).symlink_to(archive.resolve())


def _take(found: Path, file: Path, md5: str | None) -> None:
    """Move a file that has been downloaded to its place, where another process may have put it meanwhile."""
    fault = _fault(file, md5)
    if fault is not None and _fault(found, md5) is None:
        if file.exists():
            file.replace(file.with_name(f"{file.name}.damaged"))
        found.replace(file)


def _of_network(error: BaseException) -> bool:
    return isinstance(error, URLError | ConnectionError | TimeoutError) or "Error downloading" in str(error)


def unpack_from(url: str, folder: Path) -> None:
    """Download an archive and unpack it into ``folder``, without the archive."""
    with TemporaryDirectory() as temporary:
        download_and_extract_archive(url, temporary, extract_root=folder)


def _faults(folder: Path, checksums: Mapping[str, str | None]) -> dict[str, str]:
    """What is wrong with files, by name; nothing of those that are whole."""
    found = {file: _fault(folder / file, md5) for file, md5 in checksums.items()}
    return {file: fault for file, fault in found.items() if fault is not None}


def _fault(path: Path, md5: str | None) -> str | None:
    """What is wrong with a file."""
    try:
        if not path.is_file():
            return "is missing"
        with path.open("rb") as file:
            whole = md5 is None or hashlib.file_digest(file, "md5").hexdigest() == md5
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if whole else _DAMAGED
