"""Products of jobs, compressed images, and libraries, in the cache.

Their keys cover everything that determines them, except for the headers that the compiler reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from cuda_ext.builder.scheduler.remembered_compiler import RememberedCompiler
from cuda_ext.cache.dependencies import CachedContent, DependencyCache, FileDigests, Resolve
from cuda_ext.cache.store import Store
from cuda_ext.compiler.jobs import Job, LinkJob
from cuda_ext.compiler.module_plan import LibraryPlan
from cuda_ext.compiler.products import Library
from cuda_ext.compiler.translation_unit import TranslationUnit
from cuda_ext.errors import CompilationError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.facts.codec import decode, encode, key_of, sha256
from cuda_ext.facts.manifest import Compression
from cuda_ext.facts.sources import Options
from cuda_ext.toolchain.cuda_libraries import library_files
from cuda_ext.toolchain.identity import identity_of, linker_files
from cuda_ext.toolchain.programs.header_dependencies import Resolver

# The size in bytes up to which an image is compressed again, since the cache takes as long.
_SMALL = 1 << 15
_REFUSED = b"refused:"  # the text of the failure of a trial follows


class JobCache:
    """The cached output of `compiler`, of the linker and of the packer."""

    def __init__(self, compiler: RememberedCompiler, store: Store, digests: FileDigests) -> None:
        self.compiler = compiler
        self._contents = DependencyCache(store)
        self._digests = digests
        self._resolvers: dict[tuple[Path, ...], Resolver] = {}
        self._headers: dict[int, tuple[Mapping[str, bytes], str]] = {}

    def find(self, job: Job, keys: Sequence[str]) -> CachedContent[tuple[bytes, ...]] | None:
        """Find the encoded product of `job`, which has these `keys`, and the headers that it depends on.

        The images of a job are kept one by one: another job may need one of them without the others.
        """
        resolve = self._resolver(job.units)
        contents: list[bytes] = []
        reads: set[str] = set()
        for key in keys:
            if (known := self._contents.find(key, resolve, bytes)) is None:
                return None
            contents.append(known.content)
            reads |= known.dependencies
        return CachedContent(tuple(contents), frozenset(reads))

    def keep(self, job: Job, keys: Sequence[str], reads: Collection[str], product: Sequence[bytes]) -> None:
        """Keep the encoded `product` of `job`, which has these `keys` and depends on the headers `reads`.

        It is not kept if one of them has changed since the build began.
        """
        if self._are_settled(job.units, reads):
            resolve = self._resolver(job.units)
            for key, content in zip(keys, product, strict=True):
                self._contents.keep(key, reads, resolve, content)

    def write_image(self, architecture: Architecture, image: bytes, compress: Compression) -> bytes:
        """Return a fatbin of one `image`, which is compressed only once if that takes long."""
        from cuda_ext.toolchain.nvfatbin import write_image

        if len(image) < _SMALL:
            return write_image(architecture, image, compress)
        key = key_of("fatbin", self._packer, compress, str(architecture), sha256(image))
        if known := self._contents.find(key, _no_file, bytes):
            return known.content
        fatbin = write_image(architecture, image, compress)
        self._contents.keep(key, (), _no_file, fatbin)
        return fatbin

    def find_library(self, plan: LibraryPlan) -> Library | CompilationError | None:
        """Find the library of `plan`, or the failure of that trial."""

        def outcome_of(content: bytes) -> Library | CompilationError:
            if plan.trial and content.startswith(_REFUSED):
                return CompilationError(content.removeprefix(_REFUSED).decode())
            return decode(Library, content)

        known = self._contents.find(self._library_key(plan), self._resolver(plan.units), outcome_of)
        return known.content if known else None

    def keep_library(self, plan: LibraryPlan, library: Library) -> None:
        """Keep the `library` of `plan`, unless a header that it depends on has changed meanwhile."""
        if self._are_settled(plan.units, library.reads):
            resolve = self._resolver(plan.units)
            self._contents.keep(self._library_key(plan), library.reads, resolve, encode(library))

    def keep_refusal(self, plan: LibraryPlan, text: str) -> None:
        """Keep the `text` of the failure of the trial `plan`, until a header that it lacks exists."""
        missing = [f"?{name}" for name in re.findall(r'cannot open source file "(.+?)"', text)]
        resolve = self._resolver(plan.units)
        self._contents.keep(self._library_key(plan), missing, resolve, _REFUSED + text.encode())

    def keys(self, job: Job) -> tuple[str, ...]:
        """Return a key for each part of the product of `job`. Equal jobs have equal keys."""
        if isinstance(job, LinkJob):
            fields: list[str | bytes] = [job.action, self._linker, str(job.architectures[0])]
            for item in job.inputs:
                fields += [item.name, item.kind, sha256(item.data), sha256(item.text)]
            return (key_of(*fields),)
        source = self._key_of_source(job.unit)
        return tuple(key_of(job.action, source, str(architecture)) for architecture in job.architectures)

    def _library_key(self, plan: LibraryPlan) -> str:
        """Return the key of the library of `plan`, which covers the headers of its units."""
        fields = [plan.compress, plan.emit, plan.stem, str(plan.part), " ".join(map(str, plan.architectures))]
        fields += [encode(plan.launch).decode()] if plan.launch else []
        if plan.link:
            fields += [plan.module, *sorted({unit.kind for unit in plan.units})]
        for unit in plan.units:
            fields += [self._key_of_source(unit), self._key_of_headers(unit)]
        return key_of("library", self._linker, self._packer, *fields)

    def prepare(self, units: Iterable[TranslationUnit]) -> None:
        """Make the tool chain's headers available for `units`, before digests of headers are taken."""
        for unit in units:
            if unit.may_include:
                # Unpack NVRTC's own headers, the first time on this machine.
                self.compiler.search_path(unit)
                self._digests.begin()
                return

    def _resolver(self, units: Sequence[TranslationUnit]) -> Resolve:
        """Return the function that resolves the names that compilations of `units` look up."""
        own: dict[str, str] = {}
        for unit in units:
            own |= unit.header_digests
        if len(units) == 1:
            return lambda name: own.get(name) or self._resolvers_of(units)[0](name)

        def resolve(name: str) -> str | None:
            # One name may lead units to different files.
            digests = [own.get(name), *(resolver(name) for resolver in self._resolvers_of(units))]
            return " ".join(digest or "" for digest in digests) if any(digests) else None

        return resolve

    def files(self, units: Sequence[TranslationUnit], names: Iterable[str]) -> set[str]:
        """Return the compiler's own files, and the tool chain's files that `names` mean in `units`."""
        return {*map(str, self.compiler.files), *self._outside_files(units, names)}

    def _are_settled(self, units: Sequence[TranslationUnit], names: Iterable[str]) -> bool:
        return all(map(self._digests.is_settled, self._outside_files(units, names)))

    def _outside_files(self, units: Sequence[TranslationUnit], names: Iterable[str]) -> Iterator[str]:
        """Yield the files outside of the project that `names` lead `units` to now."""
        own = {name for unit in units for name in unit.headers}
        for name in set(names) - own:
            for resolver in self._resolvers_of(units):
                if file := resolver.file(name):
                    yield file

    def _resolvers_of(self, units: Sequence[TranslationUnit]) -> list[Resolver]:
        """One resolver for each search path of `units`."""
        resolvers: dict[Resolver, None] = {}
        for unit in units:
            path = tuple(self.compiler.search_path(unit))
            if path not in self._resolvers:
                self._resolvers[path] = Resolver(path, self._digests)
            resolvers[self._resolvers[path]] = None
        return list(resolvers)

    @cached_property
    def _linker(self) -> str:
        return identity_of("nvjitlink", linker_files(), self.compiler.version)

    @cached_property
    def _packer(self) -> str:
        return identity_of("nvfatbin", library_files("nvfatbin"), self.compiler.version)

    def _key_of_headers(self, unit: TranslationUnit) -> str:
        # Units that include the same headers share one mapping.
        known = self._headers.get(id(unit.headers))
        if known is None or known[0] is not unit.headers:
            digests = sorted(unit.header_digests.items())
            known = unit.headers, key_of("headers", *(field for item in digests for field in item))
            self._headers[id(unit.headers)] = known
        return known[1]

    @cache  # noqa: B019 - one instance lives as long as the build
    def _key_of_source(self, unit: TranslationUnit) -> str:
        options = self._key_of_options(unit.options)
        constants = ["constants", *unit.constants] if unit.constants else []
        parts: list[str | bytes] = [*map(encode, unit.kernels), *unit.instantiate, *constants]
        return key_of("source 2", options, unit.name, unit.kind, unit.source, *parts)

    @cache  # noqa: B019
    def _key_of_options(self, options: Options) -> str:
        in_order = options._replace(define=dict(sorted(options.define.items())))
        return key_of("options", self.compiler.identity, encode(in_order))


def _no_file(_name: str) -> None:
    """Resolve the names of a content that depends on no file."""
