"""One build of a project, from its configuration to the packages. What a build opens is closed here."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.config.resolve_variants import with_variants
from cuda_ext.builder.package.generate import Package, generate
from cuda_ext.builder.project import Project
from cuda_ext.builder.report import open_build_log
from cuda_ext.builder.scheduler.batch import Batch, BuiltLibrary, PlannedLibrary
from cuda_ext.builder.scheduler.job_keys import JobKeys
from cuda_ext.builder.scheduler.progress import Progress, progress_for
from cuda_ext.builder.scheduler.remembered_compiler import RememberedCompiler
from cuda_ext.builder.scheduler.timings import Timings
from cuda_ext.builder.scheduler.worker_count import worker_count
from cuda_ext.builder.sources.globs import check_overrides
from cuda_ext.builder.sources.plan import Sources, compiler_choice, native_capabilities, plan_module
from cuda_ext.cache.dependencies import DependencyCache, FileDigests
from cuda_ext.cache.open_store import open_store
from cuda_ext.cache.store import Store
from cuda_ext.compiler.module_plan import ModulePlan, assemble, library_plans, source_plans
from cuda_ext.errors import BuildError, ConfigError
from cuda_ext.toolchain.compilers import CompilerChoice
from cuda_ext.toolchain.process import ending_in_order

if TYPE_CHECKING:
    from cuda_ext.builder.config.modules import ModuleConfig
    from cuda_ext.builder.scheduler.task import Task

__all__ = ["build", "build_project", "compile_source", "plan"]


def build_project(
    project: Project,
    report: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
) -> list[Package]:
    """Build the packages of all modules, and show the progress.

    A terminal shows the progress of the build; elsewhere `report` receives a line for each finished step.
    `environ` has the settings of the machine (``MAX_JOBS``, ``CUDA_EXT_CACHE``). Raises :class:`BuildError`
    as :func:`build` does. SIGTERM ends the build with everything that it started.
    """
    with ending_in_order(), closing(progress_for(sys.stderr, report)) as progress:
        return build(project, environ, progress)


def build(
    project: Project, environ: Mapping[str, str], progress: Progress, fallback: Path | None = None
) -> list[Package]:
    """Build the packages of all modules of `project`. Without a usable cache, use one in `fallback`.

    Raises :class:`BuildError`: for a mistake in the configuration before the first compilation, unless only
    the kernels show it, and for failed compilations with all of them.
    """
    with _session(project, environ, progress, fallback) as session:
        return session.build()


def compile_source(
    project: Project, source: str, environ: Mapping[str, str], progress: Progress, fallback: Path
) -> set[str]:
    """Compile what `source` contributes to each module of `project`, for a later :func:`build`.

    Both need the same `fallback`. Returns the paths of all files that the products depend on. Raises
    :class:`BuildError`.
    """
    with _session(project, environ, progress, fallback) as session:
        return session.compile(source)


def plan(project: Project, environ: Mapping[str, str] = os.environ) -> list[ModulePlan]:
    """Plan what :func:`build` would build; compile nothing. Raises :class:`BuildError`."""
    with _session(project, environ, progress_for(io.StringIO(), lambda _: None)) as session:
        return [module.plan for module in session.plan()]


@contextmanager
def _session(
    project: Project, environ: Mapping[str, str], progress: Progress, fallback: Path | None = None
) -> Iterator[_Session]:
    """Open a session, and keep what it learned for the next one, however it ends."""
    with closing(open_store(environ, progress.message, fallback)) as store:
        session = _Session(project, environ, progress, store)
        try:
            yield session
        finally:
            session.save()


@dataclass(frozen=True, slots=True)
class _PlannedModule:
    """A module with its plan, and the keys of what its compiler makes."""

    config: ModuleConfig
    plan: ModulePlan
    keys: JobKeys

    @property
    def libraries(self) -> list[PlannedLibrary]:
        return [PlannedLibrary(library, self.keys) for library in library_plans(self.plan)]

    def libraries_of(self, source: str) -> list[PlannedLibrary]:
        """What can be compiled of `source` alone."""
        return [PlannedLibrary(library, self.keys) for library in source_plans(self.plan, source)]


class _Session:
    def __init__(
        self, project: Project, environ: Mapping[str, str], progress: Progress, store: Store
    ) -> None:
        self._project = project
        self._environ = environ
        self._progress = progress
        self._store = store
        self._digests = FileDigests(store)
        self._timings = Timings(store, tuple(module.name for module in project.modules))
        self._keys: dict[CompilerChoice, JobKeys] = {}

    def build(self) -> list[Package]:
        """Build all packages."""
        project, environ = self._project, self._environ
        log = open_build_log(
            project.name,
            project.root,
            environ.get("CUDA_EXT_REPORT") or project.settings.report,
            environ.get("CUDA_EXT_TRACE") or project.settings.trace,
            worker_count(environ),  # a mistake in MAX_JOBS is an error even if nothing is to be compiled
        )
        modules = self.plan()
        batch = Batch(DependencyCache(self._store), self._timings, self._progress, log)
        libraries = [module.libraries for module in modules]
        results = iter(batch.run([each for group in libraries for each in group], self._open_executor))
        packages: list[Package] = []
        built: list[tuple[Package, list[BuiltLibrary]]] = []
        failures: list[BuildError] = []
        for module, group in zip(modules, libraries, strict=True):
            try:
                own = _succeeded([next(results) for _ in group])
                packages.append(_package(module, own))
                built.append((packages[-1], own))
                if all(library.known for library in own):
                    self._progress.note(f"{module.plan.name}: nothing has changed since it was compiled")
            except ConfigError as error:  # it names the module itself
                failures.append(error)
            except BuildError as error:
                failures.append(_name_module(error, module.plan.name))
        _raise_all(failures)
        for text in dict.fromkeys(text for package in packages for text in package.log):
            self._progress.message(text)
        if log:
            log.write([(package, [each.library for each in own]) for package, own in built])
        return packages

    def compile(self, source: str) -> set[str]:
        """Compile `source`; return the files that the products depend on."""
        root = self._project.root
        libraries = [library for module in self.plan(source) for library in module.libraries_of(source)]
        batch = Batch(DependencyCache(self._store), self._timings, self._progress)
        files = {str(root / source)}
        results = _succeeded(batch.run(libraries, self._open_executor))
        for planned, built in zip(libraries, results, strict=True):
            for log in built.library.log:
                self._progress.message(log)
            units = planned.plan.compiled_units
            own = {name for unit in units for name in unit.headers}
            files.update(str(root / name) for name in own & built.reads)
            files |= planned.keys.files(units, built.reads)
        return files

    def save(self) -> None:
        """Keep what this session learned for the next one."""
        self._digests.save()
        self._timings.save()
        self._store.prune()

    def plan(self, source: str | None = None) -> list[_PlannedModule]:
        """Plan the modules, or what concerns `source`; compile nothing.

        The compiler is only asked what the cache does not know.
        """
        modules = self._project.modules
        sources = [Sources(module, self._project.root) for module in modules]
        check_overrides((m, own.names) for m, own in zip(modules, sources, strict=True))
        if source is not None:
            for own in sources:
                own.restrict(source)
        return [self._plan(module, own) for module, own in zip(modules, sources, strict=True)]

    def _plan(self, module: ModuleConfig, sources: Sources) -> _PlannedModule:
        keys = self._keys_for(module)
        compiler = keys.compiler
        self._progress.note(f"{module.name}: with {compiler.name} {compiler.version}")
        native = native_capabilities(module, self._environ)
        plan = plan_module(module, sources, compiler, native, self._environ)
        keys.prepare(unit_plan.unit for unit_plan in plan.units)
        return _PlannedModule(module, plan, keys)

    def _keys_for(self, module: ModuleConfig) -> JobKeys:
        choice = compiler_choice(module.settings, self._project.root)
        if choice not in self._keys:
            compiler = RememberedCompiler.open(choice, self._environ, self._store, self._digests)
            self._keys[choice] = JobKeys(compiler, self._digests)
        return self._keys[choice]

    def _open_executor(self, tasks: int) -> Executor:
        """Open what does `tasks` tasks at first, and perhaps more later."""
        if self._project.settings.executor == "dask":
            from cuda_ext.builder.scheduler.dask_cluster import dask_executor

            return dask_executor(self._environ)
        from cuda_ext.builder.scheduler.local_pool import WorkerPool

        def show_start(task: Task) -> None:
            for job in task.jobs:
                self._progress.started(str(job))

        return WorkerPool(worker_count(self._environ), show_start, first=tasks)


def _package(module: _PlannedModule, built: Sequence[BuiltLibrary]) -> Package:
    """The package of `module`, from its libraries."""
    libraries = [each.library for each in built]
    log = tuple(dict.fromkeys(text for library in libraries for text in library.log))
    compiler = module.keys.compiler
    compiled = assemble(module.plan, libraries, compiler.name, compiler.version)
    variants, where = module.config.settings.variants, module.config.key_path("variants")
    manifest = with_variants(compiled.manifest, variants, where)
    return generate(replace(compiled, manifest=manifest), log)


def _succeeded(results: Sequence[BuiltLibrary | BuildError]) -> list[BuiltLibrary]:
    """The libraries. Raises :class:`BuildError` with all failures."""
    _raise_all([result for result in results if isinstance(result, BuildError)])
    return [result for result in results if isinstance(result, BuiltLibrary)]


def _name_module(error: BuildError, module: str) -> BuildError:
    """Return `error` with the name of its module before its text."""
    if error.where:
        return type(error)(error.problem, where=f"{module}:\n{error.where}", remedy=error.remedy)
    return type(error)(f"{module}:\n{error.problem}", remedy=error.remedy)


def _raise_all(failures: Sequence[BuildError]) -> None:
    """Raise all `failures` as one, if there are any."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        kinds = {type(failure) for failure in failures}
        kind = kinds.pop() if len(kinds) == 1 else BuildError
        raise kind("\n\n".join(dict.fromkeys(map(str, failures))))
