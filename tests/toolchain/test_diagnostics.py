"""What compilers print and write about a compilation."""

from __future__ import annotations

from cuda_ext.toolchain.diagnostics import read_phases

TABLE = """\
source file name , phase name , phase input files , phase output file , arch , tool, metric , unit
device/a.cu , gcc (preprocessing 1) , device/a.cu  , a.cpp1.ii , compute_90 , nvcc , 84.9090 , ms
device/a.cu ,  , a.cpp1.ii  , a.ptx , compute_90 , nvcc , 279.1990 , ms
 , nvcc (driver) ,  , a.cubin ,  , nvcc , 0.8890 , ms
"""


def test_phases_follow_each_other_and_have_names() -> None:
    phases = [(span.name, round(span.start, 4), round(span.duration, 4)) for span in read_phases(TABLE)]
    assert phases == [("gcc (preprocessing 1)", 0.0, 0.0849), ("nvcc (driver)", 0.0849, 0.0009)]
