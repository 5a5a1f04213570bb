# /// script
# requires-python = ">=3.11"
# dependencies = ["pyte>=0.8", "rich>=13"]
# ///
"""Take the pictures of ``docs/images`` anew: ``uv run scripts/take_pictures.py [NAME]...``.

Commands run on a terminal of their own; what it shows becomes an SVG. The page about a build is taken by
Chromium, where that is installed. Needs the environment that ``scripts/test.py`` makes.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import itertools
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PYTHON = ROOT / ".test" / "venv" / "bin" / "python"
EXAMPLE = ROOT / "example_project"
WIDTH, HEIGHT = 100, 200


def shown(command: str, at: float = 0.0, **variables: str) -> tuple[list[Text], list[Text]]:
    """What a terminal shows `at` so many seconds after `command` began, and when it has ended."""
    screen = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        path = f"{PYTHON.parent}:{os.environ['PATH']}"
        os.environ.update(PATH=path, TERM="xterm-256color", COLORTERM="truecolor", **variables)
        os.environ.pop("CI", None)
        os.execvp("bash", ["bash", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    began = time.monotonic()
    meanwhile: list[Text] = []
    with contextlib.suppress(OSError):  # the command has ended
        while data := os.read(terminal, 65536):
            stream.feed(elsewhere(data))
            if not meanwhile and time.monotonic() - began > at:
                meanwhile = lines_of(screen)
    os.close(terminal)
    os.waitpid(pid, 0)
    return meanwhile, lines_of(screen)


def lines_of(screen: pyte.Screen) -> list[Text]:
    lines = [line(screen, number) for number in range(HEIGHT)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return lines


def elsewhere(data: bytes) -> bytes:
    """`data` with paths as they are in somebody's home directory, whatever they are here."""
    places = {PYTHON.parents[1]: "~/.venv", ROOT: "~/cuda_ext", Path.home(): "~"}
    for here, there in places.items():
        data = data.replace(str(here).encode(), there.encode())
    return re.sub(rf"{tempfile.gettempdir()}/tmp\w+".encode(), b"~", data)


def line(screen: pyte.Screen, number: int) -> Text:
    text = Text()
    characters = [screen.buffer[number][column] for column in range(WIDTH)]
    for style, alike in itertools.groupby(characters, style_of):
        text.append("".join(character.data for character in alike), style)
    text.rstrip()
    return text


def style_of(character: pyte.screens.Char) -> Style:
    return Style(
        color=color(character.fg),
        bold=character.bold,
        italic=character.italics,
        underline=character.underscore,
    )


def color(name: str) -> str | None:
    if name == "default":
        return None
    named = {"brown": "yellow", "brightbrown": "bright_yellow"}.get(name, name)
    if len(named) == 6 and all(digit in "0123456789abcdef" for digit in named):
        return f"#{named}"
    return named.replace("bright", "bright_") if not named.startswith("bright_") else named


def draw(name: str, title: str, prompt: str, lines: list[Text]) -> None:
    """Write ``docs/images/<name>.svg``: `prompt`, and what came of it."""
    typed = Text.assemble(("$ ", "bold green"), prompt)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for each in (typed, *lines):
        console.print(each, soft_wrap=True)
    # Whoever looks at it need not load a font from elsewhere.
    picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL)
    (IMAGES / f"{name}.svg").write_text(picture, encoding="utf-8")


def example(directory: Path) -> Path:
    ignored = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*")
    return Path(shutil.copytree(EXAMPLE, directory / "example-project", ignore=ignored))


def inspect(directory: Path) -> None:
    project = example(directory)
    wheels = directory / "wheels"
    build = [PYTHON, "-m", "uv", "build", "--wheel", "--no-build-isolation", "--python", PYTHON]
    subprocess.run([*build, "--out-dir", wheels, project], check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    prompt = f"cuda-ext inspect {wheel.name} --kernel softmax"
    draw("inspect", "cuda-ext inspect", prompt, shown(f"cd {wheels} && {prompt}")[-1])


def doctor(directory: Path) -> None:
    project = example(directory)
    draw("doctor", "cuda-ext doctor", "cuda-ext doctor", shown(f"cd {project} && cuda-ext doctor")[-1])


def build(directory: Path) -> None:
    """A build that is going on, and the end of it, one above the other."""
    project = example(directory)
    (directory / "cache").mkdir(mode=0o700)
    command = f"cd {project} && cuda-ext build"
    seconds = 12.0
    going, ended = shown(command, seconds, CUDA_EXT_CACHE=str(directory / "cache"))
    after = [Text(), Text(f"after {seconds:.0f} s above, and at the end:", "dim"), Text()]
    draw("build", "cuda-ext build", "cuda-ext build", [*going, *after, *ended])


def report(directory: Path) -> None:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("report: Chromium is not installed")
    project = example(directory)
    page, fresh = directory / "report.html", {"CUDA_EXT_CACHE": str(directory / "cache")}
    (directory / "cache").mkdir(mode=0o700)
    shown(f"cd {project} && cuda-ext build --report {page}", **fresh)
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=3000"]
    size, output = "--window-size=1280,1500", f"--screenshot={IMAGES / 'report.png'}"
    subprocess.run([chromium, *options, size, output, page.as_uri()], check=True, capture_output=True)


PICTURES: dict[str, Callable[[Path], None]] = {
    "inspect": inspect,
    "doctor": doctor,
    "build": build,
    "report": report,
}


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory() as directory:
            PICTURES[name](Path(directory))


if __name__ == "__main__":
    main(sys.argv[1:])
