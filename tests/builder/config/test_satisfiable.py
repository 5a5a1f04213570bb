"""Which conditions hold for some arguments, on some GPU."""

from __future__ import annotations

import pytest

from cuda_ext.builder.config.satisfiable import can_hold
from cuda_ext.formats.variant_conditions import parse


@pytest.mark.parametrize(
    "text",
    [
        *("n > 5 and n < 7", "n % 4 == 1 and n % 6 == 3", "n % 7 == 6 and n < -100 and n > -108", "sm_90a"),
        *("n > 5 or n < 3", "n > 5 and m < 3", "n == 8 and x.shape[0] % 16 == 0", "sm >= 80 and sm < 90"),
        *("not (n > 5 and n < 3)", "n % 1009 == 1 and n % 1013 == 2 and n < 9"),
    ],
)
def test_a_condition_can_hold(text: str) -> None:
    assert can_hold(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "n > 5 and n < 6",
            "n % 4 == 1 and n % 6 == 2",
            "n % 7 == 6 and n < -100 and n > -104",
            "n % 4 < 0",
        ),
        *("n > 5 and n < 3", "x.shape[0] == 8 and x.shape[0] % 16 == 0"),
        *("sm_80 and sm_90", "sm >= 90 and sm < 90", "m > 1 and (n > 5 and (sm_90 and n == 3))"),
    ],
)
def test_a_condition_never_holds(text: str) -> None:
    assert not can_hold(parse(text))
