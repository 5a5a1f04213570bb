"""What lies in a store, counted, and the records of compilation on demand told from all other entries."""

from __future__ import annotations

from dataclasses import dataclass

from cuda_ext.cache.store import LocalStore, StoredFile
from cuda_ext.cli.output import progress
from cuda_ext.runtime.jit.entry import BEGINNING, Record, read_record

__all__ = ["KeptRecord", "Survey", "survey"]


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """The entry of a record, with what is in it; ``kernels`` are name expressions."""

    entry: StoredFile
    architecture: str
    kernels: tuple[str, ...]


@dataclass(slots=True)
class Survey:
    """How much of each kind there is; ``size`` is that of the entries, ``references`` lead to records."""

    records: list[KeptRecord]
    entries: int = 0
    size: int = 0
    references: int = 0
    unfinished: int = 0
    strays: int = 0


def survey(store: LocalStore) -> Survey:
    """Look at all of `store`; of the records, what was used last comes first."""
    found = Survey([])
    with progress("looking at entries") as show:
        for file in store.files():
            match file.kind:
                case "stray":
                    found.strays += 1
                case "unfinished":
                    found.unfinished += 1
                case "entry":
                    show(file.share)
                    _count(store, file, found)
    found.records.sort(key=lambda record: (-record.entry.modified, record.entry.key))
    return found


def _count(store: LocalStore, entry: StoredFile, found: Survey) -> None:
    found.entries += 1
    found.size += entry.size
    if store.peek(entry, len(BEGINNING)) != BEGINNING:
        return  # without reading all of it
    record = read_record(store.peek(entry))
    if isinstance(record, Record):
        kernels = tuple(kernel.expression for kernel in record.kernels)
        found.records.append(KeptRecord(entry, record.architecture, kernels))
    elif record is not None:
        found.references += 1
