"""Lowered names: the names and types read from them; unknown encodings are not guessed."""

from __future__ import annotations

import pytest

from cuda_ext.formats.lowered_names.lowered_types import LoweredType, LoweredValue
from cuda_ext.formats.lowered_names.mangling import read_lowered_name

MALFORMED = ("_Z", "_ZN", "_Z4axpyI", "_Z4axpyIf", "_Z9999aIfE", "_Z4axpyILi", "_ZN2ns7weights", "")


@pytest.mark.parametrize(
    ("lowered", "expected"),
    [
        ("_Z4axpyIfEviT_PKS0_PS0_", ["float"]),
        ("_ZL4axpyIhEvv", ["unsigned char"]),
        ("_Z1kIxlymEvv", ["long long", "long", "unsigned long long", "unsigned long"]),
        ("_ZN12_GLOBAL__N_11kINS_1PEEEvv", [""]),
        ("_ZN2ns5inner6reduceIdLi256EEEvPKT_", ["double", 256]),
        ("_Z1kILb1ELc97ELxn5ELm9EEvv", [1, 97, -5, 9]),
        ("_Z1kIN2ns1PELNS0_4ModeE1EEvv", ["ns::P", (1, "(ns::Mode)1")]),
        ("_Z1kISt4byteP6__halfKPKcEvv", ["std::byte", "__half*", "const char* const"]),
        ("_Z1kIN2ns3vecIfLi4EEES2_DF16_EvT_", ["", "", "_Float16"]),
        ("_Z1kILf40200000ELDn0EEvv", [None, None]),
        ("_Z1kIFviEA3_iXadL_Z1fvEEEvv", ["", "", None]),
        ("_Z1kIJEEvDpT_", []),
        *((name, None) for name in ("histogram", "_Z2ovi", "_ZN2ns4fill", "_ZN2ns1kIiE1jEvv", *MALFORMED)),
    ],
)
def test_template_arguments_are_read(lowered, expected):
    name = read_lowered_name(lowered)
    arguments = name and name.arguments
    assert (None if arguments is None else [simplified(each) for each in arguments]) == expected


def simplified(argument: LoweredType | LoweredValue) -> object:
    if isinstance(argument, LoweredType):
        return argument.spelling if argument.is_simple else ""
    return (argument.number, argument.spelling) if argument.is_enumerator else argument.number


@pytest.mark.parametrize(
    ("lowered", "name", "parameters"),
    [
        ("_Z4axpyIfEviT_PKS0_PS0_", "axpy<float>", ["int", "float", "const float*", "float*"]),
        (
            "_ZN2ns5inner6reduceIfLi128EEEvxPKf",
            "ns::inner::reduce<float, 128>",
            ["long long", "const float*"],
        ),
        ("_ZN12_GLOBAL__N_12ns1kEv", "ns::k", []),
        ("_ZN2nsL4fillEv", "ns::fill", []),
        ("_ZNSt2ns4fillEv", "std::ns::fill", []),
        ("_Z1k1PPS_PKS_S2_", "k", ["P", "P*", "const P*", "const P*"]),
        ("_Z1kPVKiPA3_A2_KfPKPKi", "k", ["const volatile int*", "const float(*)[3][2]", "const int* const*"]),
        ("_Z1kPFviPKfEPFvvE", "k", ["void(*)(int, const float*)", "void(*)()"]),
        ("_Z1kM1PiSt4byte", "k", ["int P::*", "std::byte"]),
        ("_Z1kI1WfEvT_IT0_E", "k<W, float>", ["W<float>"]),
        ("_Z1kIJifEEvDpPT_", "k<int, float>", ["int*", "float*"]),
        ("_Z1kIXadL_Z1fvEELb1ELc97EEvv", "k<&f, true, 97>", []),
        # Substitutions within the name of an argument count.
        ("_Z1kIXadL_ZN2ns1fEfEEEvNS0_1PE", "k<&ns::f>", ["ns::P"]),
        ("_Z1kIfXadL_ZN3ops3maxIfEET_S2_S2_EEEvPf", "k<float, &ops::max<float>>", ["float*"]),
        ("_Z1kN4cuda3std3__45arrayIiLm3EEE", "k", ["cuda::std::array<int, 3>"]),
        ("_ZN3cub16_V_300500_SM_9001kEN2ns3BoxINS1_1PEEES3_", "cub::k", ["ns::Box<ns::P>", "ns::P"]),
        ("__nv_static_19__5a0b39e0_5_cd_cu_k__ZN2ns1kEPi", "ns::k", ["int*"]),
    ],
)
def test_names_and_parameters_of_kernels_are_read(lowered, name, parameters):
    found = read_lowered_name(lowered)
    assert found is not None
    assert found.name == name
    assert [p.spelling for p in found.parameters] == parameters
    assert not any(p.is_dependent for p in found.parameters)


def test_a_member_of_an_argument_is_dependent():
    found = read_lowered_name("_ZN2ns3depINS_2TTEEEvPNS_1HIT_E4typeES5_")
    assert [(p.spelling, p.is_dependent) for p in found.parameters] == [
        ("ns::H<ns::TT>::type*", True),
        ("ns::H<ns::TT>::type", True),
    ]


@pytest.mark.parametrize(
    ("lowered", "expected"),
    [
        ("_ZN2ns7weightsE", "ns::weights"),
        ("_ZN2ns12_GLOBAL__N_17weightsE", "ns::weights"),
        ("_ZN32_INTERNAL_0123456789abcdef_4a_cu7weightsE", "weights"),
        ("_ZN2nsL7weightsE", "ns::weights"),
        ("_ZL7weights", "weights"),
        ("_Z5tableIfE", "table<float>"),
        ("__nv_static_19__5a0b39e0_5_cd_cu_k_weights", "weights"),
    ],
)
def test_names_of_variables_are_read(lowered, expected):
    found = read_lowered_name(lowered)
    assert found is not None
    assert (found.name, found.parameters) == (expected, None)


@pytest.mark.parametrize("lowered", ["weights", "_ZZ1kPfE1c", *MALFORMED])
def test_other_names_are_not_read(lowered):
    assert read_lowered_name(lowered) is None


@pytest.mark.parametrize(
    "lowered", ["_Z1f" + "P" * 9999 + "i", "__nv_static_" + "9" * 9999 + "_f", "_ZN" * 9999]
)
def test_absurd_names_are_not_read(lowered: str) -> None:
    assert read_lowered_name(lowered) is None
