"""Lines of text files, and rows of ``.csv``, ``.tsv`` and ``.jsonl`` files."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rffl_pl.datamodules.class_names import column_name
from rffl_pl.errors import UserError, nearest

COLUMNS = (".csv", ".tsv", ".jsonl")
"""Endings of files whose rows have columns."""

_GZIP = b"\x1f\x8b"

Record = dict[str, Any]
"""What a row has in each column."""


def records(path: Path, option: str, encoding: str, needed: Mapping[str, str]) -> Iterator[tuple[int, Record]]:
    """Every row, with the number of the line in which it ends.

    In a ``.csv`` file a field with commas, quotation marks or several lines stands in quotation marks, and those within
    are doubled; blanks behind a comma are no part of a field. In a ``.tsv`` file quotation marks are part of the text.
    Of the ways to write a name's characters in Unicode all are one (NFC). Rows with nothing in any field are none.

    Args:
        path: The file.
        option: By which it was given, as it is typed.
        encoding: Of a text.
        needed: The columns that every row has to have, each with what to do where one does not.

    Raises:
        UserError: If the file cannot be read, is of another kind, or a row is not one, or lacks a column.
    """
    kind, read_from = path.suffix.lower(), path.expanduser()
    if kind not in COLUMNS:
        raise UserError(f"Expected {option} to be a .csv, .tsv or .jsonl file, but got {path}.")
    lines = read_lines(read_from, option, encoding)
    file = f"{option} {path}"
    yield from _of_json(lines, file, needed) if kind == ".jsonl" else _of_fields(lines, file, needed, kind)


def columns_of(path: Path, option: str, encoding: str) -> list[str]:
    """The columns that the first row of a file has; none of a file without rows.

    Raises:
        UserError: If the file, or its first row, cannot be read.
    """
    return next((list(record) for _, record in records(path, option, encoding, {})), [])


def check_characters(text: str, column: str, where: str) -> None:
    """See that no half of a character stands alone, which JSON can say and no tokenizer or file can take.

    Raises:
        UserError: If one does.
    """
    half = None if text.isascii() else re.search("[\ud800-\udfff]", text)  # of most fields at once
    if half is not None:
        raise UserError(
            f"Expected whole characters in column {column}, but {where} has \\u{ord(half[0]):04x}, half of one; "
            "correct it, or leave the line out."
        )


def _check_columns(record: Record, needed: Mapping[str, str], where: str, file: str) -> None:
    """See that a row has every column that is read."""
    for column, remedy in needed.items():
        if column not in record:
            has = ", ".join(map(str, record)) or "none"
            near = nearest(column, map(str, record))
            mend = f"{near} {remedy[0].upper()}{remedy[1:]}" if near else f"; {remedy}"
            raise UserError(f"Expected a column {column} in {file}, but {where} has {has}{mend}.")


def _of_json(lines: list[str], file: str, needed: Mapping[str, str]) -> Iterator[tuple[int, Record]]:
    """Of a JSON object in every line; what one lacks that others have is None.

    Lines are parsed twice: all objects at once would take several times the file's memory.
    """

    def parsed() -> Iterator[tuple[int, Record]]:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _parsed(line, f"line {number}", file, needed)

    everything = dict.fromkeys(column for _, record in parsed() for column in record)
    for number, record in parsed():
        whole = everything | record
        _check_columns(whole, needed, f"line {number}", file)
        yield number, whole


def _parsed(line: str, where: str, file: str, needed: Mapping[str, str]) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"Expected a JSON object in {where} of {file}, but it is no JSON ({error}).") from error
    if not isinstance(record, dict):
        raise UserError(f"Expected a JSON object in {where} of {file}, but got {type(record).__name__}.")
    names = [column_name(name) for name in record]
    _check_once(names, needed, where, file)
    return dict(zip(names, record.values(), strict=True))


def _check_once(names: Sequence[str], needed: Mapping[str, str], where: str, file: str) -> None:
    """See that no column that is read is there twice: nobody could say which is meant."""
    if len({*names}) == len(names):
        return
    if twice := [name for name in needed if names.count(name) > 1]:
        raise UserError(
            f"Expected a column {twice[0]} once in {file}, but {where} has it {names.count(twice[0])} times; give the "
            "others another name."
        )


def _of_fields(lines: list[str], file: str, needed: Mapping[str, str], kind: str) -> Iterator[tuple[int, Record]]:
    """Of fields between commas or tabs, whose names stand in the first line."""
    blank = next((number for number, line in enumerate(lines) if line.strip()), 0)
    quoted = {"strict": True, "skipinitialspace": True}  # as in: 1, "Zürich, West"
    how: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if kind == ".tsv" else quoted
    reader = csv.reader((line + "\n" for line in lines[blank:]), **how)
    read = blank
    try:
        names = _names(reader, blank, file, needed, kind)
        read += reader.line_num
        for fields in reader:
            read = blank + reader.line_num
            where = f"line {read}"
            if len(fields) in (0, 1, len(names)) and not "".join(fields).strip():
                continue  # a line with nothing in it, or with commas alone, as Excel leaves them below a table
            if len(fields) != len(names):
                raise _of_another_length(names, fields, where, file, kind, needed)
            if column_name(fields[0].strip()) == names[0] and [column_name(one.strip()) for one in fields] == names:
                raise UserError(
                    f"Expected the names of columns in the first line of {file} alone, but {where} has them again, as "
                    "where files are put together; take it out."
                )
            yield read, dict(zip(names, fields, strict=True))
    except csv.Error as error:
        raise _unreadable(f"line {read + 1}", file, kind, error) from error


def _names(reader: Any, blank: int, file: str, needed: Mapping[str, str], kind: str) -> list[str]:
    """The names of columns, from the first line that a reader gives, behind so many blank ones.

    Raises:
        UserError: If that has something else, or lacks a column.
    """
    names = [column_name(name.strip()) for name in next(reader, [])]
    _check_separator(names, file, kind)
    _check_once(names, needed, "its first line", file)
    if names and not needed.keys() <= {*names}:
        below: list[str] = next(reader, [])
        if len(names) == 1 < len(below):
            raise _of_another_length(names, below, f"line {blank + reader.line_num}", file, kind, needed)
        _check_columns(dict.fromkeys(names), needed, "its first line", file)
    return names


def _unreadable(where: str, file: str, kind: str, error: csv.Error) -> UserError:
    """The mistake where a line is no row."""
    remedy = "save it with the line ends of Unix or Windows, and quotation marks within a field in quotes and doubled"
    if "field larger than field limit" in str(error):
        remedy = "shorten it, or give a .jsonl file, which has no such limit"
    return UserError(
        f"Expected {file} to be a {kind} file with a line for each row, but {where} cannot be read ({error}); {remedy}."
    )


def _check_separator(names: list[str], file: str, kind: str) -> None:
    """See that fields are separated as they are in files of a kind: of others a line is one field."""
    others = {"semicolons": ";", "tabs": "\t"} if kind == ".csv" else {"semicolons": ";", "commas": ","}
    found = next((word for word, mark in others.items() if len(names) == 1 and mark in names[0]), None)
    if found:
        right = "commas" if kind == ".csv" else "tabs"
        raise UserError(f"Expected {right} between the columns of {file}, but its first line has {found}; save it so.")


def _of_another_length(
    names: Sequence[str], fields: Sequence[str], where: str, file: str, kind: str, needed: Mapping[str, str]
) -> UserError:
    """The mistake where a line has more fields than the first, or fewer."""
    remedy = _remedy(kind, more=len(fields) > len(names))
    if len(names) == 1 and names[0] not in needed:  # a title, or a remark, stands above the names
        return UserError(
            f"Expected the names of columns in the first line of {file}, but it has {names[0]!r} alone, and {where} "
            f"has {len(fields)} fields; take out what stands above the names, or {remedy}."
        )
    return UserError(
        f"Expected {len(names)} field{'s' * (len(names) > 1)} in every line of {file}, as in its first, but {where} "
        f"has {len(fields)}; {remedy}."
    )


def _remedy(kind: str, *, more: bool) -> str:
    """What to do about a line with more fields than the first, or fewer."""
    if not more:
        within = ", and take ends of lines out of fields" if kind == ".tsv" else ""
        return f"have nothing stand between {'tabs' if kind == '.tsv' else 'commas'} where there is nothing{within}"
    return "take tabs out of fields" if kind == ".tsv" else "put fields with commas in quotes"


def read_lines(path: Path, option: str, encoding: str) -> list[str]:
    r"""The lines of a file, cut at ``\n`` and ``\r\n`` alone.

    Raises:
        UserError: If the file cannot be read or is in another encoding; ``option`` is how the user gave it.
    """
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"Expected a file at {option} {path}, but it cannot be read ({reason}).") from error
    try:
        text = content.decode(encoding)
    except (UnicodeError, LookupError) as error:
        if not isinstance(error, UnicodeDecodeError):
            raise UserError(
                f"Expected {option} {path} to be {encoding}, but {error}; save the file as UTF-8."
            ) from error
        if content.startswith(_GZIP):
            raise UserError(f"Expected {option} {path} to be a text, but it is packed by gzip; unpack it.") from error
        line, byte = content[: error.start].count(b"\n") + 1, content[error.start]
        raise UserError(
            f"Expected {option} {path} to be {encoding}, but line {line} has the byte 0x{byte:02x}, which is not; save "
            "the file as UTF-8."
        ) from error
    lines = text.split("\n")  # in files that were put together each may begin with a mark of byte order
    return [line.removesuffix("\r").removeprefix("\ufeff") for line in (lines[:-1] if lines[-1] == "" else lines)]
