"""Names that Python's own compiler finds in its standard library, and those that our readers find."""

from __future__ import annotations

import ast
import symtable
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from cuda_ext.text.python_names import bound_names, called_chains, changed_chains, read_chains

FILES = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[::4]


def scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from scopes(child)


def test_bound_and_read_names_are_those_of_the_compiler() -> None:
    for file in FILES:
        top = symtable.symtable(file.read_text("utf-8"), file.name, "exec")
        bound = {each.get_name() for each in top.get_symbols() if each.is_assigned() or each.is_imported()}
        read = {
            each.get_name()
            for scope in scopes(top)
            if scope is top or scope.get_name() != "top"  # symtable takes this name for that of a module
            for each in scope.get_symbols()
            if each.is_referenced() and (scope is top or each.is_global())
        }
        tree = ast.parse(file.read_bytes())
        own = {names[0] for statement in tree.body for names in read_chains(statement)}
        other = {"__class__"} | {
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)
        }
        assert own - other == read - other, file
        assert {name for statement in tree.body for name in bound_names(statement)} - {"*"} == bound, file
    assert len(FILES) > 30


def test_attributes_follow_names() -> None:
    (function,) = ast.parse(
        "def f(x: a.b, y=c.d[e.f]): return lambda z: (x.g, z.h, i.j(k).l, {m: n.o for m in p})"
    ).body
    assert sorted(".".join(each) for each in read_chains(function)) == [
        "a.b",
        "c.d",
        "e.f",
        "i.j",
        "k",
        "n.o",
        "p",
    ]


def test_changes_have_the_names_of_what_they_change() -> None:
    body = ast.parse(
        "a.b.c = d\ne[0] += 1\ndel f.g\nh.i(j, *k, l=m.n)\no = p.q(r)\nfor s in t: u.v(s)\n"
        "w.x.append(1)\nsetattr(y, 'z', 2)"
    ).body
    changed = [[".".join(chain) for chain in changed_chains(each)] for each in body]
    assert changed == [["a.b.c"], ["e"], ["f.g"], [], [], [], ["w.x"], ["y.z"]]
    called = [[".".join(chain) for chain in called_chains(each)] for each in body[:6]]
    assert called == [[], [], [], ["h.i", "j", "k", "m.n"], [], ["u.v", "s"]]
