"""``cuda-ext completion``, and the completions of arguments, which import no installed package."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["complete_files", "complete_gpus", "complete_modules", "complete_targets", "completion"]

_PROGRAM = "cuda-ext"
_VARIABLE = "_CUDA_EXT_COMPLETE"  # as click derives it from the program's name


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
    from click.shell_completion import get_completion_class

    shell_complete = get_completion_class(shell)
    if shell_complete is None:
        raise click.UsageError(f"this version of click has no completion for {shell}; upgrade click")
    script = shell_complete(context.find_root().command, {}, _PROGRAM, _VARIABLE).source()
    click.echo(script.rstrip())


def complete_modules(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Import names of installed modules of kernels."""
    from cuda_ext.cli.installed import installed_modules

    return [module.name for module in installed_modules() if module.name.startswith(incomplete)]


def complete_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Modules of kernels, or files if no module's name begins so."""
    from click.shell_completion import CompletionItem

    names = complete_modules(context, parameter, incomplete) if incomplete else []
    return list(map(CompletionItem, names)) or [CompletionItem(incomplete, type="file")]


def complete_gpus(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Architectures of GPUs that the installed compiler supports."""
    return [name for name in map("sm_{}".format, _capabilities()) if name.startswith(incomplete)]


def complete_targets(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Targets of a build: groups, machine code, PTX."""
    from cuda_ext.compiler.architectures import GROUPS

    numbers = _capabilities()
    names = [*GROUPS, *(f"{kind}_{number}" for kind in ("sm", "compute") for number in numbers)]
    return [name for name in names if name.startswith(incomplete)]


def _capabilities() -> tuple[int, ...]:
    from cuda_ext.errors import ToolchainError
    from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

    try:
        return open_compiler(CompilerChoice(), os.environ).capabilities()
    except ToolchainError:
        return ()
