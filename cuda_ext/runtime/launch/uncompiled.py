"""Replaces ``_launch`` where that was not compiled: every launch is a careful one."""

from __future__ import annotations

from typing import Any, Self


class Launch:
    def __new__(cls, *_arguments: object, **_keywords: object) -> Self:
        return super().__new__(cls)

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        return self.__launch_carefully__(*arguments, **keywords)

    def __launch_carefully__(self, /, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError


class Overloads(Launch):
    def __choose_by__(self, *_: object) -> None:
        pass

    def __remember__(self, *_: object, **named: object) -> None:
        pass
