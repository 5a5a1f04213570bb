"""``cuda-ext completion``, and what it offers for arguments: no package is imported for that."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

__all__ = ["completion", "gpus", "modules", "modules_and_files", "targets"]

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
    """Print what makes a shell complete commands.

    It completes options, files, the names of installed modules of kernels, and architectures.
    """
    made_for = get_completion_class(shell)
    if made_for is None:
        raise click.UsageError(f"this version of click completes nothing in {shell}; upgrade click")
    script = made_for(context.find_root().command, {}, _PROGRAM, _VARIABLE).source()
    click.echo(script.rstrip())


def modules(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The installed modules of kernels."""
    from cuda_ext.cli.installed import installed_modules

    return [module.name for module in installed_modules() if module.name.startswith(incomplete)]


def modules_and_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The same, or files where no module begins like that."""
    found = [CompletionItem(name) for name in modules(context, parameter, incomplete)] if incomplete else []
    return found or [CompletionItem(incomplete, type="file")]


def gpus(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The architectures of GPUs that the compiler here knows."""
    return [name for name in map("sm_{}".format, _capabilities()) if name.startswith(incomplete)]


def targets(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """What a build can be for: machine code, PTX, or a group of them."""
    from cuda_ext.compiler.architectures import GROUPS

    numbers = _capabilities()
    names = [*GROUPS, *(f"{kind}_{number}" for kind in ("sm", "compute") for number in numbers)]
    return [name for name in names if name.startswith(incomplete)]


def _capabilities() -> tuple[int, ...]:
    from cuda_ext.errors import ToolchainError
    from cuda_ext.toolchain.nvrtc import Nvrtc

    try:
        return Nvrtc().capabilities()
    except ToolchainError:
        return ()
