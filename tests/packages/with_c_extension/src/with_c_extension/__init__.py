"""A package with a C extension beside its kernels."""

from with_c_extension._answer import answer as answer
