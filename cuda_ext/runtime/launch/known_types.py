"""The types of other libraries that launches in C take: arrays, numbers, and structures.

Other types, such as subclasses of tensors, are read carefully at each launch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from cuda_ext.runtime.launch import _launch

if TYPE_CHECKING:
    from cuda_ext.runtime.launch._launch import Negation

_examined: WeakSet[type] = WeakSet()
_WORD = 8
_IMPLEMENTATION_SIZE = 192  # of c10::TensorImpl, or less
# The careful launcher asks for these before the exchange functions.
_PREFERRED = ("data_ptr", "__cuda_array_interface__")
# A structure with one of these attributes may stand for something other than its bytes.
_CONVERSIONS = {
    *("__index__", "__float__", "__complex__", "__buffer__", "__dlpack__", "ndim", "dtype"),
    *_PREFERRED,
}


def register(kinds: Iterable[type]) -> None:
    """Let launches in C take arguments of these types, where they are known."""
    for kind in kinds:
        meta = type(kind)
        # This runs after a launch, and must neither raise nor run code of a class of types.
        if meta.__hash__ is type.__hash__ and meta.__eq__ is type.__eq__ and kind not in _examined:
            _examined.add(kind)
            with suppress(Exception):
                _register(kind)


def _register(kind: type) -> None:
    tensor, cupy_array = _loaded("torch", "Tensor"), _loaded("cupy", "ndarray")
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if tensor is not None and issubclass(kind, tensor):
        if kind is tensor or kind is _loaded("torch", "nn.Parameter"):  # other subclasses may be anything
            _register_tensor(tensor, kind, capsule)
    elif capsule is not None and not any(hasattr(kind, name) for name in _PREFERRED):
        _launch.register_exchange(kind, capsule, None)
    elif kind is cupy_array:
        dtype = sys.modules["cupy"].dtype
        dtypes = tuple(None if name == "bfloat16" else dtype(name) for name in _launch.DTYPES)
        _launch.register_cupy(kind, sys.modules["cupy"].cuda.get_current_stream, dtypes)
    elif _is_numpy_scalar(kind) or _is_plain_structure(kind):
        number = id(kind)  # another type may have this id later
        _launch.VALUES[number] = ref(kind, partial(_launch.VALUES.pop, number))


def _register_tensor(tensor: Any, kind: type, capsule: object) -> None:
    torch: Any = sys.modules["torch"]
    negation = _negation(torch)
    if capsule is None or not _launch.register_exchange(kind, capsule, negation):
        dtypes = tuple(getattr(torch, name, None) for name in _launch.DTYPES)
        stream = torch._C._cuda_getCurrentRawStream
        _launch.register_torch(kind, negation, tensor.data_ptr, tensor.get_device, stream, dtypes)


def _negation(torch: Any) -> Negation:
    """Find the bits that mark tensors as negated or conjugated views, as native/arrays.h describes them.

    Calling ``Tensor.is_neg`` takes as long as a tenth of a launch. So compare a tensor with such views: their
    sets of dispatch keys differ in the key that the method looks at. The position of the sets is not guessed:
    they are found by their values, and only if these occur in one place.
    """
    tensor = torch.Tensor
    with suppress(Exception):  # another version of PyTorch, or a mode that makes other tensors
        plain = torch.empty(1, device="cpu")
        conjugated = torch.conj(torch.empty(1, device="cpu", dtype=torch.complex64))
        views = plain, torch._neg_view(plain), conjugated
        keys = [torch._C._dispatch_keys(each).raw_repr() for each in views]
        (to_implementation,) = _offsets(map(id, views), tensor.__basicsize__, [each._cdata for each in views])
        (to_keys,) = _offsets((each._cdata for each in views), _IMPLEMENTATION_SIZE, keys)
        own, negated, conjugate = keys[0], keys[1] & ~keys[0], keys[2] & ~keys[0]
        is_one_key = negated.bit_count() == conjugate.bit_count() == 1 and negated != conjugate
        if type(plain) is tensor and is_one_key and keys[1:] == [own | negated, own | conjugate]:
            return tensor.is_neg, to_implementation, to_keys, negated | conjugate
    return tensor.is_neg, 0, 0, 0


def _offsets(addresses: Iterable[int], size: int, values: Sequence[int]) -> list[int]:
    """Find the offsets, within `size` bytes at each of the `addresses`, of its one of the `values`."""
    from ctypes import string_at  # PyTorch has imported it

    contents = [string_at(address, size) for address in addresses]
    words = [each.to_bytes(_WORD, "little") for each in values]
    return [
        offset
        for offset in range(0, size - _WORD + 1, _WORD)
        if all(each.startswith(word, offset) for each, word in zip(contents, words, strict=True))
    ]


def _is_numpy_scalar(kind: type) -> bool:
    """Return True if `kind` is a number or record type of numpy itself; others may convert themselves."""
    bases = [_loaded("numpy", name) for name in ("integer", "floating", "void")]
    return any(base in kind.__mro__ for base in bases) and _loaded("numpy", kind.__name__) is kind


def _is_plain_structure(kind: type) -> bool:
    """Return True if `kind` is a type of ctypes whose values are their bytes and nothing else."""
    bases = [_loaded("ctypes", name) for name in ("Structure", "Union", "Array")]
    own = list(takewhile(lambda each: each not in bases, kind.__mro__))
    return len(own) < len(kind.__mro__) and all(_CONVERSIONS.isdisjoint(vars(each)) for each in own)


def _loaded(library: str, names: str) -> Any:
    """Return an attribute of `library`; ``None`` if it is not loaded, or another thread still imports it."""
    value: Any = sys.modules.get(library)
    for name in names.split("."):
        value = getattr(value, name, None)
    return value
