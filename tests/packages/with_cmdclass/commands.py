"""A build with a step of the project's own."""

from pathlib import Path
from typing import ClassVar

from setuptools import Command
from setuptools.command.build import build


class Stamp(Command):
    def initialize_options(self):
        self.build_lib = None

    def finalize_options(self):
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self):
        Path(self.build_lib, "with_cmdclass", "stamp.txt").write_text("stamped\n", encoding="utf-8")


class Build(build):
    sub_commands: ClassVar = [*build.sub_commands, ("stamp", None)]

    def initialize_options(self):
        super().initialize_options()
        self.distribution.cmdclass["stamp"] = Stamp
