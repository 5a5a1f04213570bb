"""What compilers print and write about a compilation."""

from __future__ import annotations

from pathlib import Path

from cuda_ext.toolchain.diagnostics import read_phases, without_warnings_in

TABLE = """\
source file name , phase name , phase input files , phase output file , arch , tool, metric , unit
device/a.cu , gcc (preprocessing 1) , device/a.cu  , a.cpp1.ii , compute_90 , nvcc , 84.9090 , ms
device/a.cu ,  , a.cpp1.ii  , a.ptx , compute_90 , nvcc , 279.1990 , ms
 , nvcc (driver) ,  , a.cubin ,  , nvcc , 0.8890 , ms
"""


def test_phases_follow_each_other_and_have_names() -> None:
    phases = [(span.name, round(span.start, 4), round(span.duration, 4)) for span in read_phases(TABLE)]
    assert phases == [("gcc (preprocessing 1)", 0.0, 0.0849), ("nvcc (driver)", 0.0849, 0.0009)]


IN_CUB = """\
/cuda/include/cub/block.cuh(60): warning #1444-D: typedef "T" was declared deprecated
  typedef T U;
          ^
"""
REMARK = 'Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"\n'
OWN = 'device/a.cu(3): warning #177-D: variable "x" was declared but never referenced\n  int x;\n      ^\n'
ERROR = '/cuda/include/cub/block.cuh(61): error: identifier "y" is undefined\n  y;\n  ^\n'


def test_warnings_about_headers_of_the_tool_chain_are_left_out() -> None:
    directories = [Path("/cuda/include"), Path("/other")]
    assert without_warnings_in(f"{IN_CUB}\n{REMARK}\n{IN_CUB}", directories).strip() == ""
    kept = f"{OWN}\n{REMARK}\n{ERROR}"
    assert without_warnings_in(f"{OWN}\n{REMARK}\n{IN_CUB}\n{ERROR}", directories) == kept
    assert without_warnings_in(kept, directories) == kept
