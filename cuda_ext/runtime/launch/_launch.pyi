from collections.abc import Callable
from typing import Any, Self

# A parameter: its name, its kind, a letter of native/arguments.h, its size, the dtypes of arrays, and perhaps
# the class of the structures that it takes.
Description = tuple[str, str, int, tuple[str, ...]] | tuple[str, str, int, tuple[str, ...], type[Structure]]
# A hidden parameter: its position among all, its size, and a source of native/hidden.h; of a shape or stride,
# the position of the argument, and the axis.
Hidden = tuple[int, int, str, int, int]
# What a candidate requires: its number; the position of an argument, a part of it and an axis, as in
# native/extents.h; a modulus or 0, an operator and a number.
Term = tuple[int, int, str, int, int, str, int]
# The terms, and the candidate that is taken otherwise, or -1: see native/choice.h.
Choice = tuple[tuple[Term, ...], int]
Extents = tuple[int, int, int]
# Tensor.is_neg, and where tensors have the same: see native/arrays.h.
Negation = tuple[Callable[[Any], bool], int, int, int]

# The dtypes of arrays that are known by name.
DTYPES: tuple[str, ...]
# Weak references to the types of values that C converts, by the addresses of these.
VALUES: dict[int, object]

class Launch:
    __takes_grid__: bool  # true if brackets of numbers are a grid
    def __new__(
        cls,
        parameters: tuple[Description, ...] | None,
        candidates: tuple[Launch, ...] = (),
        is_bound: bool = False,
        hidden: tuple[Hidden, ...] = (),
        constants: tuple[tuple[str, object], ...] = (),
        order: tuple[str, ...] = (),
        given: dict[str, object] | None = None,
        is_in_order: bool = False,
        stream: int | None = None,
        device: int = -1,
        like: object = None,
    ) -> Self: ...
    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any: ...
    def _set_loaded(
        self,
        device: int,
        function: int,
        context: int,
        largest_grid: Extents,
        largest_block: Extents,
        most_threads: int,
        allowed_shared: int,
        best_block: int,
        best_shared: int,
        /,
    ) -> None: ...
    def _set_prepared(
        self,
        device: int,
        grid: Extents,
        block: Extents,
        shared: int,
        attributes: tuple[tuple[int, ...], ...],
        scratch: int = 0,
        pool: int = 0,
        /,
    ) -> None: ...
    def _set_choice(self, device: int, choice: Choice, /) -> None: ...

class Structure:
    __size__: int
    __references__: int
    def __new__(cls, **members: Any) -> Self: ...
    def __view__(self, kind: type[Structure], offset: int, reference: int, /) -> Any: ...
    def __write__(self, offset: int, data: bytes, /) -> None: ...
    def __refer__(self, number: int, array: object, /) -> None: ...
    def __content__(self) -> tuple[bytes, tuple[object, ...]]: ...
    @classmethod
    def __call_directly__(cls, fields: tuple[Field, ...], /) -> None: ...

class Field:
    def __new__(cls, parameter: tuple[Any, ...], offset: int, reference: int, is_careful: bool) -> Self: ...
    def __get__(self, structure: Any, kind: object) -> Any: ...
    def __set__(self, structure: Any, value: object) -> None: ...

class GridLaunch:
    def __new__(cls, kernel: Launch | Overloads, grid: object) -> Self: ...
    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any: ...

class Overloads:
    __takes_grid__: bool
    def __new__(cls, kernels: tuple[Launch, ...], choosing: tuple[str, ...]) -> Self: ...
    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any: ...
    def choose(self, /, **constants: Any) -> Any: ...
    def __choose_by__(
        self, constants: dict[str, dict[type, dict[object, object]]], order: tuple[str, ...], fewest: int, /
    ) -> None: ...
    def __remember__(self, kernel: Launch, /, *arguments: object, **named: object) -> None: ...

def connect(gpu_count: int, /, *functions: int) -> None: ...
def disconnect() -> None: ...
def register_exchange(kind: type, capsule: object, negation: Negation | None, /) -> bool: ...
def register_torch(
    kind: type,
    negation: Negation,
    data_ptr: Callable[[Any], int],
    get_device: Callable[[Any], int],
    current_stream: Callable[[int], int],
    dtypes: tuple[object, ...],
    /,
) -> None: ...
def register_cupy(
    kind: type, current_stream: Callable[[int], Any], dtypes: tuple[object, ...], /
) -> None: ...
