"""``{command-line}``: every command of ``cuda-ext``, from the program itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cuda_ext.cli.commands import commands


class CommandLine(SphinxDirective):
    """A section for each command, in Markdown."""

    def run(self) -> list[nodes.Node]:
        context = click.Context(commands, info_name="cuda-ext")
        return self.parse_text_to_nodes(
            "\n".join(_of_group(context, 2)), offset=0, allow_section_headings=True
        )


def _of_group(context: click.Context, level: int) -> Iterator[str]:
    group = context.command
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        yield from _of_command(below, level)
        yield from _of_group(below, level + 1)


def _of_command(context: click.Context, level: int) -> Iterator[str]:
    command = context.command
    title = context.command_path
    yield f"\n{'#' * level} `{title}`\n"
    usage = " ".join([title, *command.collect_usage_pieces(context)])
    yield f"```text\n{usage}\n```\n"
    yield from _prose(inspect.cleandoc(command.help or ""))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[1] and "--help" not in parameter.opts:
            yield f"`{record[0]}`\n: {record[1]}\n"
    yield from _prose(inspect.cleandoc(command.epilog or ""))


def _prose(text: str) -> Iterator[str]:
    """The help of a command; what follows ``\\b`` keeps its lines."""
    for paragraph in text.split("\f")[0].split("\n\n"):
        if paragraph.startswith("\b"):
            yield "```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```\n"
        else:
            yield paragraph + "\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
