"""Lowered names: the names and template arguments read from them; unknown encodings are not guessed."""

from __future__ import annotations

import pytest

from cuda_ext.formats.mangling import (
    LoweredValue,
    namespaces,
    nested_name,
    template_arguments,
)


@pytest.mark.parametrize(
    ("lowered", "expected"),
    [
        ("_Z4axpyIfEviT_PKS0_PS0_", ["float"]),
        ("_ZL4axpyIhEvv", ["unsigned char"]),
        ("_Z1kIxlymEvv", ["long long", "long", "unsigned long long", "unsigned long"]),
        ("_ZN12_GLOBAL__N_11kINS_1PEEEvv", [""]),
        ("_ZN2ns5inner6reduceIdLi256EEEvPKT_", ["double", LoweredValue(256, False)]),
        ("_Z1kILb1ELc97ELxn5ELm9EEvv", [LoweredValue(number, False) for number in (1, 97, -5, 9)]),
        ("_Z1kIN2ns1PELNS0_4ModeE1EEvv", ["ns::P", LoweredValue(1, True)]),
        ("_Z1kISt4byteP6__halfKPKcEvv", ["std::byte", "__half*", "const char* const"]),
        ("_Z1kIN2ns3vecIfLi4EEES2_DF16_EvT_", [""] * 3),
        ("_Z1kILf40200000ELDn0EEvv", [LoweredValue(None, False)] * 2),
        ("_Z1kIJEEvDpT_", []),
        *((name, None) for name in ("histogram", "_Z2ovi", "_ZN2ns4fill", "_ZN2ns1kIiE1jEvv")),
        *((name, None) for name in ("_Z1kIFviEEvv", "_Z1kIXadL_Z1fvEEEvv", "_Z1kIA3_iEvv")),
        *((name, None) for name in ("_Z", "_ZN", "_Z4axpyI", "_Z4axpyIf", "_Z9999aIfE", "_Z4axpyILi")),
    ],
)
def test_template_arguments_are_read(lowered, expected):
    arguments = template_arguments(lowered)
    assert (None if arguments is None else list(arguments)) == expected


@pytest.mark.parametrize(
    ("lowered", "expected"),
    [
        ("_ZN2ns5inner6reduceIfLi128EEEvxPKf", ("ns", "inner")),
        ("_ZNSt2ns4fillEv", ("std", "ns")),
        ("_ZN12_GLOBAL__N_12ns1kEv", ("ns",)),
        ("_ZN2nsL4fillEv", ("ns",)),
        *((name, ()) for name in ("_Z4axpyIfEviT_PKS0_PS0_", "histogram", "_ZN", "_Z", "", "_ZN4fillE")),
    ],
)
def test_namespaces_are_read(lowered, expected):
    assert namespaces(lowered) == expected


@pytest.mark.parametrize(
    ("lowered", "expected"),
    [
        ("_ZN2ns7weightsE", "ns::weights"),
        ("_ZN2ns12_GLOBAL__N_17weightsE", "ns::weights"),
        ("_ZN32_INTERNAL_0123456789abcdef_4a_cu7weightsE", "weights"),
        ("_ZN2nsL7weightsE", "ns::weights"),
        *((name, name) for name in ("weights", "_Z1ki", "_ZN2ns1kIiEE", "_ZN2ns7weights", "_ZNSt4byteE")),
    ],
)
def test_nested_names_are_read(lowered, expected):
    assert nested_name(lowered) == expected
