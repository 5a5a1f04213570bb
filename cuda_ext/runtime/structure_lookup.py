"""Look up structures by name: a class, or a template of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, NoReturn

from cuda_ext.errors import ArgumentError, KernelNotFoundError, join_names
from cuda_ext.facts.kernels import Kernel
from cuda_ext.facts.manifest import Manifest, names_of
from cuda_ext.facts.structures import Structure
from cuda_ext.formats.spelling import normalise, template_name
from cuda_ext.runtime.structure_types import StructureObject, make_class

# C++ names a structure so where a function has its name.
_KEYWORD = "struct "


class StructureTemplate:
    """Several structures of one template; brackets choose one by its template arguments."""

    def __init__(self, name: str, structures: Sequence[str], choose: Callable[[str], Any]) -> None:
        self.__name = name
        self.__structures = structures
        self.__choose = choose

    def __getitem__(self, arguments: str | int | tuple[str | int, ...]) -> Any:
        each = arguments if isinstance(arguments, tuple) else (arguments,)
        return self.__choose(normalise(f"{self.__name}<{', '.join(map(str, each))}>"))

    def __call__(self, **_: object) -> NoReturn:
        first = self.__structures[0].removeprefix(self.__name)[1:-1]
        raise ArgumentError(
            f"is one of {join_names(self.__structures)}",
            where=self.__name,
            remedy=f'choose one as in {self.__name}["{first}"]',
        )

    def __repr__(self) -> str:
        return f"<structure template {self.__name}: {join_names(self.__structures)}>"


class Structures:
    """The structures of a `module` with this manifest, and their classes, each made at its first use."""

    def __init__(self, manifest: Manifest, module: str) -> None:
        self._manifest = manifest
        self._module = module
        self._on_demand: dict[tuple[int, str], Structure] = {}
        self._classes: dict[Structure, type[StructureObject]] = {}

    def add(self, structures: Iterable[Structure], unit: int) -> None:
        """Add structures of a kernel of `unit` that was compiled on demand."""
        self._on_demand |= {(unit, each.name): each for each in structures}

    def of(self, kernel: Kernel) -> tuple[type[StructureObject] | None, ...]:
        """Return the class of each parameter of `kernel` that is a known structure; ``None`` for others."""
        found = (
            self._class_of(kernel.unit, p.type) if p.kind == "struct" else None for p in kernel.parameters
        )
        return tuple(found)

    def find(self, name: str) -> Any:
        """Find the class of the structure `name`, or the template; ``None`` if there is none.

        Raises :class:`~cuda_ext.errors.KernelNotFoundError` for a structure whose members are not known, and
        for different ones of one name.
        """
        wanted = name.removeprefix(_KEYWORD)
        found = self._called(wanted) or [s for (_, each), s in self._on_demand.items() if each == wanted]
        if len(set(found)) > 1:
            sources = (self._manifest.units[each.units[0]].title for each in found)
            raise KernelNotFoundError(
                f"{' and '.join(sources)} each have a structure {wanted} of their own",
                where=self._module,
                remedy="rename one, or pass its members to the kernel in a dict",
            )
        for structure in found:
            if not structure.fields:
                raise KernelNotFoundError(
                    f"the members of {wanted} are not known: {structure.obstacle}",
                    where=self._module,
                    remedy=f"pass its {structure.size} bytes, as of a ctypes.Structure or a numpy scalar",
                )
            return self._class(structure, structure.units[0])
        known = (each.name for each in self._manifest.structures if each.is_known)
        alike = list(dict.fromkeys(each for each in known if template_name(each) == wanted != each))
        if len(alike) == 1:
            return self.find(alike[0])
        return StructureTemplate(wanted, alike, self.find) if alike else None

    def _called(self, name: str) -> list[Structure]:
        """List the structures of the manifest called `name`."""
        structures = self._manifest.structures
        return [structures[position] for position, each in enumerate(self._names) if each == name]

    @cached_property
    def _names(self) -> list[str]:
        return names_of(self._manifest.structures)

    def _class_of(self, unit: int, name: str) -> type[StructureObject] | None:
        """Return the class of the structure `name` of `unit`; ``None`` if its members are not known."""
        built = (each for each in self._called(name) if unit in each.units)
        structure = next(built, self._on_demand.get((unit, name)))
        return self._class(structure, unit) if structure and structure.fields else None

    def _class(self, structure: Structure, unit: int) -> type[StructureObject]:
        if structure not in self._classes:
            made = make_class(structure, self._module, partial(self._class_of, unit))
            self._classes.setdefault(structure, made)
        return self._classes[structure]
