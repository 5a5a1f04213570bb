"""``cuda-ext completion``, and the completions of arguments, which import no installed package."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["complete_files", "complete_gpus", "complete_modules", "complete_targets", "completion"]

_Complete = Callable[[click.Context, click.Parameter, str], list[str]]


@click.command(
    epilog="""\b
    bash, in ~/.bashrc:
      eval "$(cuda-ext completion bash)"
    bash, for all environments, read when it is first needed:
      cuda-ext completion bash \\
        > ~/.local/share/bash-completion/completions/cuda-ext

    \b
    zsh, in a directory of $fpath, and before compinit:
      cuda-ext completion zsh > ~/.zfunc/_cuda-ext
    or in ~/.zshrc, after compinit:
      eval "$(cuda-ext completion zsh)"

    \b
    fish:
      cuda-ext completion fish > ~/.config/fish/completions/cuda-ext.fish
    """
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    It completes options, files, the names of installed modules of kernels, and architectures.
    """
    from click.shell_completion import shell_complete

    shell_complete(context.find_root().command, {}, "cuda-ext", "_CUDA_EXT_COMPLETE", f"{shell}_source")


def _complete_from(names: Callable[[], Iterable[str]]) -> _Complete:
    """Complete with those of `names` that begin with what was typed."""
    return lambda _context, _parameter, typed: [name for name in names() if name.startswith(typed)]


def _modules() -> list[str]:
    from cuda_ext.cli.installed import installed_modules

    return [module.name for module in installed_modules()]


def _capabilities() -> tuple[int, ...]:
    """The compute capabilities that the installed compiler supports."""
    from cuda_ext.errors import ToolchainError
    from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

    try:
        return open_compiler(CompilerChoice(), os.environ).capabilities()
    except ToolchainError:
        return ()


def _gpus() -> list[str]:
    return [f"sm_{capability}" for capability in _capabilities()]


def _targets() -> list[str]:
    """Targets of a build: groups, machine code, PTX."""
    from cuda_ext.compiler.architectures import GROUPS

    return [*GROUPS, *_gpus(), *(f"compute_{capability}" for capability in _capabilities())]


complete_modules = _complete_from(_modules)
complete_gpus = _complete_from(_gpus)
complete_targets = _complete_from(_targets)


def complete_files(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Modules of kernels, or files if no module's name begins so."""
    from click.shell_completion import CompletionItem

    names = complete_modules(context, parameter, typed) if typed else []
    return list(map(CompletionItem, names)) or [CompletionItem(typed, type="file")]
