"""The memory of structures in Python, where launches in C were not compiled."""

from __future__ import annotations

from typing import Any, Self


class Structure:
    """Its bytes, and the arrays whose addresses are in these. A subclass says how many there are."""

    __slots__ = ("_memory", "_objects", "_start")

    _memory: memoryview
    _objects: list[object]
    _start: int

    __size__ = 0
    __references__ = 0

    def __new__(cls, **members: Any) -> Self:
        made = cls._at(memoryview(bytearray(cls.__size__)), [None] * cls.__references__, 0)
        for name, value in members.items():
            setattr(made, name, value)
        return made

    @classmethod
    def __call_directly__(cls, fields: tuple[Field, ...], /) -> None:
        """Make structures of this class, which has these fields, faster; in C alone."""

    @classmethod
    def _at(cls, memory: memoryview, objects: list[object], start: int) -> Self:
        made = super().__new__(cls)
        for name, value in zip(Structure.__slots__, (memory, objects, start), strict=True):
            object.__setattr__(made, name, value)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        field = getattr(type(self), name, None)
        if isinstance(field, Field):
            field.__set__(self, value)
        else:
            self.__assign__(name, value)

    def __assign__(self, name: str, value: object) -> None:
        raise NotImplementedError

    def __view__(self, kind: type[Structure], offset: int, reference: int) -> Any:
        memory = self._memory[offset : offset + kind.__size__]
        return kind._at(memory, self._objects, self._start + reference)

    def __write__(self, offset: int, data: bytes) -> None:
        self._memory[offset : offset + len(data)] = data

    def __refer__(self, number: int, array: object) -> None:
        self._objects[self._start + number] = array

    def __content__(self) -> tuple[bytes, tuple[object, ...]]:
        return bytes(self._memory), tuple(self._objects[self._start : self._start + self.__references__])


class Field:
    """A member of a structure."""

    def __init__(self, parameter: tuple[Any, ...], *_: object) -> None:
        self._name = parameter[0]

    def __get__(self, structure: Any, kind: object) -> Any:
        return self if structure is None else structure.__read__(self._name)

    def __set__(self, structure: Any, value: object) -> None:
        structure.__assign__(self._name, value)
