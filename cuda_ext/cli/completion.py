"""``cuda-ext completion``, and the completions of arguments, which import no installed package; --arch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from cuda_ext.cli.terminal import TEXT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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


def complete_modules(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Import names of installed modules of kernels."""
    from cuda_ext.cli.installed import installed_modules

    names = [module.name for module in installed_modules()]
    return click.Choice(names).shell_complete(context, parameter, incomplete)


def complete_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Modules of kernels, or files if no module's name begins so."""
    modules = complete_modules(context, parameter, incomplete) if incomplete else []
    return modules or click.Path().shell_complete(context, parameter, incomplete)


def complete_gpus(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Architectures of GPUs that the installed compiler supports."""
    names = [f"sm_{capability}" for capability in _capabilities()]
    return click.Choice(names).shell_complete(context, parameter, incomplete)


def complete_targets(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Targets of a build: groups, machine code, PTX."""
    from cuda_ext.compiler.architectures import GROUPS

    names = [f"{kind}_{capability}" for kind in ("sm", "compute") for capability in _capabilities()]
    return click.Choice([*GROUPS, *names]).shell_complete(context, parameter, incomplete)


# The option of commands that compile.
ARCHITECTURES = click.option(
    "--arch",
    "architectures",
    metavar="sm_90",
    type=TEXT,
    multiple=True,
    shell_complete=complete_targets,
    help="Compile for this target; repeat it for several. By default, those of the project.",
)


def _capabilities() -> tuple[int, ...]:
    from cuda_ext.errors import ToolchainError
    from cuda_ext.toolchain.compilers import CompilerChoice, open_compiler

    try:
        return open_compiler(CompilerChoice(), os.environ).capabilities()
    except ToolchainError:
        return ()
