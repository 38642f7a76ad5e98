"""The evidence of many comparisons in one file, ``evidence.tar.zst``: a folder each, compressed as a whole.

Restored lives of one run tell mostly the same again, and all of them share the reference: together they take a tenth of what they
take apart. Unpacked (``tar --zstd -xf``), each folder is a saved comparison as ``rollproof.parity_saving`` leaves one.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from rollproof.saving import Packed
from scenarios.model import InputError

ARCHIVE = "evidence.tar.zst"
Add = Callable[[str, Packed], None]  # (name of the folder, its files)


@contextlib.contextmanager
def archive_of(folder: Path) -> Iterator[Add]:
    """Write comparisons one after another, as soon as each was measured. No time and no owner is written."""
    with pa.CompressedOutputStream(str(folder / ARCHIVE), "zstd") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:

        def add(name: str, packed: Packed) -> None:
            for file, content in packed.items():
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))

        yield add


def read_archive(folder: Path) -> Iterator[tuple[str, Packed]]:
    """Name and files of each comparison, in the order of writing. Raises InputError that names the file."""
    path = folder / ARCHIVE
    name = ""
    packed: Packed = {}
    try:
        with pa.CompressedInputStream(str(path), "zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                place, _, file = entry.name.partition("/")
                if place != name and packed:
                    yield name, packed
                    packed = {}
                name = place
                content = archive.extractfile(entry)
                packed[file] = b"" if content is None else content.read()
    except (tarfile.TarError, pa.ArrowException, OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read ({type(error).__name__}: {error}): run the comparison again") from None
    if packed:
        yield name, packed
