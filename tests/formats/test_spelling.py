"""Name expressions: spellings of one expression are normalized, other expressions stay different."""

from __future__ import annotations

import random

import pytest

from cuda_ext.formats import spelling
from cuda_ext.formats.spelling import normalise, template_name


@pytest.mark.parametrize(
    ("spelling", "others"),
    [
        ("axpy<float>", ["axpy < float >", " axpy<float> ", "axpy\n<\tfloat>"]),
        ("ns::reduce<double, 256>", ["ns :: reduce<double,256>", "ns::reduce< double , 256 >"]),
        ("k<A<B<int>>>", ["k<A<B<int> > >", "k < A < B < int >> >"]),
        ("k<(E)1>", ["k< ( E ) 1 >"]),
        ("k<-1>", ["k< - 1 >"]),
        ("k<- -1>", ["k<- - 1>"]),
        ("k<!b, ~0u>", ["k< ! b, ~ 0u >"]),
        ("k<&f>", ["k< & f >"]),
        ("k<&ns::f<int>>", ["k<& ns::f< int > >"]),
        ("k<'a'>", ["k< 'a' >"]),
        ("k<' '>", ["k< ' ' >"]),
        ("k<'\\''>", ["k< '\\'' >"]),
        ("k<1'000>", ["k< 1'000 >"]),
        ("k<1.5f>", ["k< 1.5f >"]),
        ("k<decltype(x)>", ["k<decltype ( x )>"]),
        ("k<sizeof(int)>", ["k< sizeof (int) >"]),
        ("k<const float*>", ["k<float const*>", "k<const float *>", "k< float const * >"]),
        ("k<const float* const*>", ["k<float const* const*>", "k<const float * const *>"]),
        ("k<const ns::V<int, 3>&>", ["k<ns::V<int,3> const &>"]),
        ("k<const A<int>::B>", ["k<A<int>::B const>"]),
        ("k<const ::ns::A*>", ["k<::ns::A const*>"]),
        ("k<unsigned int>", ["k<unsigned>", "k<unsigned  int>", "k<int unsigned>"]),
        ("k<unsigned long long>", ["k<unsigned long long int>", "k<long long unsigned>"]),
        ("k<long>", ["k<long int>", "k<signed long>"]),
        ("k<const unsigned int*>", ["k<unsigned const*>", "k<unsigned int const *>"]),
        ("k<signed char, unsigned char>", ["k<char signed, char unsigned>"]),
        ("k<T&&, int...>", ["k<T &&, int ...>"]),
        ("k<float(*)(int, const float*)>", ["k<float (*)(int, float const*)>"]),
        ("k<int(&)[3]>", ["k<int (&) [3]>"]),
        ("(void(*)(int*))overloaded", ["( void (*) (int *) ) overloaded"]),
        ("static_cast<void(*)(int*)>(&o)", ["static_cast<void (*)(int *)>( & o )"]),
        ("(anonymous namespace)::k", ["( anonymous  namespace ) :: k"]),
    ],
)
def test_one_spelling(spelling, others):
    assert {normalise(other) for other in (spelling, *others)} == {spelling}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("k<float>", "k<double>"),
        ("k<char>", "k<signed char>"),
        ("k<const float*>", "k<float* const>"),
        ("k<1>", "k<1u>"),
        ("k<'a'>", "k<'A'>"),
        ("k<' '>", "k<'  '>"),
        ("k<A, B>", "k<B, A>"),
        ("k<a - -1>", "k<a + 1>"),
        ("ns::k", "k"),
    ],
)
def test_different_expressions_stay_different(one, other):
    assert normalise(one) != normalise(other)


@pytest.mark.parametrize("junk", ["", "<", ">", "> const", "k<", "const", "::", "a b c", "k<'", "k<\\>"])
def test_junk_is_left_for_the_compiler_to_refuse(junk):
    assert normalise(normalise(junk)) == normalise(junk)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("histogram", "histogram"),
        ("axpy<>", "axpy"),
        ("ns::k<A<int>, (E)1>", "ns::k"),
        ("f<int>(int)", "f<int>(int)"),
    ],
)
def test_a_template_has_a_name_before_its_outer_brackets(expression, name):
    assert template_name(expression) == name


def test_what_seems_normal_is(monkeypatch):
    words = "k ns int unsigned long const 7 0x1 :: : < > , *"
    parts = [*words.split(), ", ", " "]
    numbers = random.Random(0)
    expressions = {"".join(numbers.choices(parts, k=numbers.randint(1, 9))) for _ in range(50_000)}
    seem_normal = [each for each in expressions if spelling._is_normal(each)]
    assert len(seem_normal) > 200
    monkeypatch.setattr(spelling, "_is_normal", lambda _: False)
    assert [each for each in seem_normal if normalise(each) != each] == []
