"""One build of a project, from its configuration to the packages. What a build opens is closed here."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_ext.builder.candidates_left_out import leave_out
from cuda_ext.builder.config.resolve_variants import resolve_variants
from cuda_ext.builder.jit_trials import describe_obstacles, plan_trials, with_results
from cuda_ext.builder.package.generate import Package, generate
from cuda_ext.builder.package.in_place import check_outside
from cuda_ext.builder.project import Project
from cuda_ext.builder.requirement import find_flaw
from cuda_ext.builder.scheduler.batch import Batch
from cuda_ext.builder.scheduler.job_cache import JobCache
from cuda_ext.builder.scheduler.progress import Progress, progress_for
from cuda_ext.builder.scheduler.remembered_compiler import RememberedCompiler
from cuda_ext.builder.scheduler.worker_count import worker_count
from cuda_ext.builder.sources.globs import check_overrides, find_output
from cuda_ext.builder.sources.module_sources import Sources
from cuda_ext.builder.sources.plan import compiler_choice, plan_module
from cuda_ext.builder.sources.python_kernels import describe_hooks
from cuda_ext.cache.dependencies import FileDigests
from cuda_ext.cache.open_store import open_store
from cuda_ext.cache.store import Store
from cuda_ext.compiler.module_plan import LibraryPlan, ModulePlan, assemble
from cuda_ext.compiler.products import Library
from cuda_ext.compiler.spelled_settings import spell_setting
from cuda_ext.compiler.translation_unit import FRONT_ENDS, SourceKind, TranslationUnit
from cuda_ext.errors import BuildError, CompilationError, ConfigError, ToolchainError, join_errors, join_names
from cuda_ext.time_limit import time_limit
from cuda_ext.toolchain.compilers import CompilerChoice
from cuda_ext.toolchain.process import ending_in_order

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from cuda_ext.builder.config.modules import ModuleConfig
    from cuda_ext.builder.report.build_log import BuildLog
    from cuda_ext.builder.scheduler.task import Task


def build_project(
    project: Project,
    report: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
    verbose: bool = False,
) -> list[Package]:
    """Build the packages of all modules, and show the progress.

    A terminal shows the progress of the build; elsewhere `report` receives a line for each finished step.
    Both show the commands of the compilers if it is to be `verbose`.
    `environ` has the settings of the machine (``MAX_JOBS``, ``CUDA_EXT_CACHE``). Raises :class:`BuildError`
    as :func:`build` does. SIGTERM ends the build with everything that it started.
    """
    with ending_in_order(), closing(progress_for(sys.stderr, report, verbose)) as progress:
        return build(project, environ, progress)


def build(project: Project, environ: Mapping[str, str], progress: Progress) -> list[Package]:
    """Build the packages of all modules of `project`.

    Raises :class:`BuildError`: for a mistake in the configuration before the first compilation, unless only
    the kernels show it, and for failed compilations with all of them.
    """
    with _session(project, environ, progress) as session:
        return session.build()


def plan(project: Project, environ: Mapping[str, str] = os.environ) -> list[ModulePlan]:
    """Plan what :func:`build` would build; compile nothing. Raises :class:`BuildError`."""
    with _session(project, environ, Progress(lambda _: None)) as session:
        return session.plan()


@contextmanager
def _session(project: Project, environ: Mapping[str, str], progress: Progress) -> Iterator[_Session]:
    """Open a session, and keep what it learned for the next one, however it ends."""
    with closing(open_store(environ, progress.message)) as store:
        session = _Session(project, environ, progress, store)
        try:
            yield session
        except Exception:
            raise
        except BaseException:  # an interrupt
            store.close(now=True)
            raise
        finally:
            session.save()


class _Session:
    def __init__(
        self, project: Project, environ: Mapping[str, str], progress: Progress, store: Store
    ) -> None:
        self._project = project
        self._environ = environ
        self._progress = progress
        self._store = store
        self._digests = FileDigests(store)
        self._choices = {m.name: compiler_choice(m.settings, project.root) for m in project.modules}
        self._caches: dict[CompilerChoice, JobCache] = {}
        self._limit = time_limit(environ)

    def build(self) -> list[Package]:
        """Build all packages."""
        log = self._open_log()
        if flaw := find_flaw(self._project.requirements):
            self._progress.message(str(flaw))
        if any(module.settings.compiler == "nvcc" for module in self._project.modules):
            self._warn_of_variables()
        batch = Batch(self._progress, log)
        built: list[tuple[Package, list[Library]]] = []
        failures: list[BuildError] = []
        for module, plan, results in self._compile(batch, self.plan()):
            for text in plan.notes:
                self._progress.message(text)
            if log:
                log.landscapes += plan.landscapes
            try:
                libraries = _succeeded(results)
                units = (unit for library in plan.libraries for unit in library.units)
                for text in describe_hooks(unit for unit in units if unit.kind == "triton"):
                    self._progress.message(text)
                built.append((self._package(module, plan, libraries), libraries))
                if plan.obstacles:
                    self._show_obstacles(module, plan)
                if plan.name not in batch.changed:
                    self._progress.note(f"{plan.name}: nothing to compile")
            except ConfigError as error:  # it names the module itself
                failures.append(error)
            except BuildError as error:
                failures.append(_name_module(error, plan.name))
        _raise_all(failures)
        for text in dict.fromkeys(text for package, _ in built for text in package.log):
            self._progress.message(text)
        if log:
            log.write(built)
        return [package for package, _ in built]

    def _open_log(self) -> BuildLog | None:
        """Begin the log of this build, if there is to be a report or a trace."""
        settings = self._project.settings
        report = self._log_file("CUDA_EXT_REPORT", "report", settings.report)
        trace = self._log_file("CUDA_EXT_TRACE", "trace", settings.trace)
        # A mistake in MAX_JOBS is an error even if nothing is to be compiled.
        workers = worker_count(self._environ, self._progress.message)
        if not report and not trace:
            return None
        from cuda_ext.builder.report.build_log import BuildLog

        return BuildLog(self._project.name, report, trace, workers)

    def _log_file(self, variable: str, key: str, name: str | None) -> Path | None:
        """The file that the environment names, anywhere, or the project by `key`, within it."""
        where, root = f"tool.cuda_ext.{key}", self._project.root
        if path := self._environ.get(variable):
            file = root / path
        elif name:
            file = find_output(where, root, name)
        else:
            return None
        check_outside(variable if path else where, file, self._project.source_directories())
        return file

    def _compile(
        self, batch: Batch, plans: Sequence[ModulePlan]
    ) -> list[tuple[ModuleConfig, ModulePlan, list[Library | BuildError]]]:
        """Compile `plans`, with what NVRTC tries for them.

        Return the plan of each module with the obstacles that this showed, and the results of its libraries.
        """
        modules = self._project.modules
        libraries = [
            [(library, self._cache_for(module, library.units[0].kind)) for library in plan.libraries]
            for module, plan in zip(modules, plans, strict=True)
        ]
        trials = [self._plan_trials(module, plan) for module, plan in zip(modules, plans, strict=True)]
        results = iter(self._run(batch, [*chain(*libraries), *chain(*trials)]))
        outcomes = [[next(results) for _ in own] for own in libraries]
        if any(plan.tuned for plan in plans):
            run, report = partial(self._run, batch), self._progress.message
            pairs = zip(plans, libraries, outcomes, strict=True)
            reduced = [leave_out(*each, run, report) for each in pairs]
            plans, outcomes = [plan for plan, _ in reduced], [results for _, results in reduced]
        tried = [
            with_results(plan, [(trial, next(results)) for trial, _ in own]) if own else plan
            for plan, own in zip(plans, trials, strict=True)
        ]
        return list(zip(modules, tried, outcomes, strict=True))

    def _run(
        self, batch: Batch, libraries: Sequence[tuple[LibraryPlan, JobCache]]
    ) -> list[Library | BuildError]:
        try:
            results = batch.run(libraries, self._open_executor)
        except ToolchainError as error:
            if error.where == "launcher":
                modules = (module for module in self._project.modules if module.settings.launcher)
                error.where = next(modules).key_path("launcher")
            raise
        for (plan, _), result in zip(libraries, results, strict=True):
            if isinstance(result, CompilationError) and result.where == "options":
                (module,) = (module for module in self._project.modules if module.name == plan.module)
                result.where = module.key_path("options", plan.units[0].name)
        return results

    def save(self) -> None:
        """Keep what this session learned for the next one."""
        self._digests.save()
        self._store.prune()

    def plan(self) -> list[ModulePlan]:
        """Plan each module; compile nothing.

        The compiler is only asked what the cache does not know.
        """
        modules = self._project.modules
        sources = [Sources(module, self._project.tree) for module in modules]
        check_overrides([(m, own.names) for m, own in zip(modules, sources, strict=True)])
        return [self._plan(module, own) for module, own in zip(modules, sources, strict=True)]

    def _plan(self, module: ModuleConfig, sources: Sources) -> ModulePlan:
        def compiler_of(kind: SourceKind) -> RememberedCompiler:
            return self._cache_for(module, kind).compiler

        if not sources.names:  # headers alone, which no compiler reads
            return plan_module(module, sources, compiler_of)
        plan = plan_module(module, sources, compiler_of, self._environ)
        cache = self._cache_for(module, plan.kind)
        compiler = cache.compiler
        self._progress.note(f"{module.name}: with {compiler.name} {compiler.version}")
        if plan.embed and compiler.name == "nvcc":
            plan = self._require_nvrtc(plan)
        cache.prepare([unit for library in plan.libraries for unit in library.units])
        return plan

    def _warn_of_variables(self) -> None:
        """Say which variables for compilers have no effect."""
        from cuda_ext.toolchain.nvcc import ignored_variables

        if names := ignored_variables(self._environ):
            self._progress.message(
                f"{join_names(names)} in the environment: builds do not use these; put options into "
                f"{spell_setting('options')}, and directories into {spell_setting('include-dirs')}"
            )

    def _require_nvrtc(self, plan: ModulePlan) -> ModulePlan:
        """Return a `plan` for nvcc without embedded sources where NVRTC is missing, which has to try them."""
        try:
            _ = self._open_cache(CompilerChoice()).compiler.version
        except ToolchainError as error:
            names = (u.name for library in plan.libraries for u in library.units if u.kind == "cu")
            return replace(plan, obstacles={**dict.fromkeys(names, str(error)), **plan.obstacles})
        return plan

    def _plan_trials(self, module: ModuleConfig, plan: ModulePlan) -> list[tuple[LibraryPlan, JobCache]]:
        """Plan what NVRTC tries to compile of a `plan` for nvcc, to learn what can be compiled on demand."""
        if not plan.embed or module.settings.compiler == "nvrtc":
            return []
        cache = self._open_cache(CompilerChoice())
        cache.prepare([unit for library in plan.libraries for unit in library.units])
        return [(trial, cache) for trial in plan_trials(plan, cache.compiler)]

    def _show_obstacles(self, module: ModuleConfig, plan: ModulePlan) -> None:
        """Show which sources of `plan` are not embedded; as a warning if the author wrote ``jit``."""
        show = self._progress.message if "jit" in module.written else self._progress.note
        show(describe_obstacles(plan))

    def _package(self, module: ModuleConfig, plan: ModulePlan, libraries: Sequence[Library]) -> Package:
        compiled = assemble(plan, libraries, lambda kind: self._cache_for(module, kind).compiler)
        variants, where = module.settings.variants, module.key_path("variants")
        package = generate(compiled._replace(manifest=resolve_variants(compiled.manifest, variants, where)))
        reads = {name for library in libraries for name in library.reads}
        units: dict[SourceKind, list[TranslationUnit]] = defaultdict(list)
        for own in plan.libraries:
            units[own.units[0].kind] += own.units
        files = (self._cache_for(module, kind).files(own, reads) for kind, own in units.items())
        return replace(package, outside=frozenset(chain.from_iterable(files)))

    def _cache_for(self, module: ModuleConfig, kind: SourceKind = "cu") -> JobCache:
        """The cache of the compiler of the module, or of the front-end for sources of that `kind`."""
        if kind in FRONT_ENDS:
            return self._open_cache(CompilerChoice(kind))
        choice = self._choices[module.name]
        try:
            return self._open_cache(choice)
        except ToolchainError as error:
            error.where = error.where or module.key_path("nvcc" if choice.executable else "compiler")
            raise

    def _open_cache(self, choice: CompilerChoice) -> JobCache:
        if choice not in self._caches:
            compiler = RememberedCompiler.open(choice, self._environ, self._store, self._digests)
            self._caches[choice] = JobCache(compiler, self._store, self._digests)
        return self._caches[choice]

    def _open_executor(self, tasks: int) -> Executor:
        """Open what does `tasks` tasks at first, and perhaps more later."""
        from cuda_ext.builder.scheduler.named_executor import open_named_executor

        if named := open_named_executor(self._environ, self._limit):
            return named
        from cuda_ext.builder.scheduler.local_pool import WorkerPool

        def show_start(task: Task) -> None:
            self._progress.started(str(task))

        return WorkerPool(worker_count(self._environ), show_start, first=tasks, limit=self._limit)


def _succeeded(results: Sequence[Library | BuildError]) -> list[Library]:
    """The libraries. Raises :class:`BuildError` with all failures."""
    _raise_all([result for result in results if isinstance(result, BuildError)])
    return [result for result in results if isinstance(result, Library)]


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
        raise kind(join_errors(failures))
