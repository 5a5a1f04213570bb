# /// script
# requires-python = ">=3.11"
# dependencies = ["pyte>=0.8", "rich>=13"]
# ///
"""Take the pictures in ``docs/images`` again: ``uv run scripts/take_pictures.py [NAME]...``.

Runs each command in a pseudo-terminal and saves its screen as an SVG. Chromium takes the picture of the build
report. Needs the environment that ``scripts/test.py`` creates.
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


def run_in_terminal(command: str, at: float = 0.0, **variables: str) -> tuple[list[Text], list[Text]]:
    """Run `command`; return the screen `at` seconds after its start, and at its end."""
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
    during: list[Text] = []
    with contextlib.suppress(OSError):  # the command has ended
        while data := os.read(terminal, 65536):
            stream.feed(replace_paths(data))
            if not during and time.monotonic() - began > at:
                during = read_screen(screen)
    os.close(terminal)
    os.waitpid(pid, 0)
    return during, read_screen(screen)


def read_screen(screen: pyte.Screen) -> list[Text]:
    lines = [read_line(screen, number) for number in range(HEIGHT)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return lines


def replace_paths(data: bytes) -> bytes:
    """Replace the paths of this machine in `data` by paths in a home directory."""
    replacements = {PYTHON.parents[1]: "~/.venv", ROOT: "~/cuda_ext", Path.home(): "~"}
    for path, replacement in replacements.items():
        data = data.replace(str(path).encode(), replacement.encode())
    # The report allows a line break after each slash.
    temporary = f"{tempfile.gettempdir()}/tmp".replace("/", "/(?:<wbr>)?")
    return re.sub(rf"{temporary}\w+".encode(), b"~", data)


def read_line(screen: pyte.Screen, number: int) -> Text:
    text = Text()
    characters = [screen.buffer[number][column] for column in range(WIDTH)]
    for style, group in itertools.groupby(characters, read_style):
        text.append("".join(character.data for character in group), style)
    text.rstrip()
    return text


def read_style(character: pyte.screens.Char) -> Style:
    return Style(
        color=read_color(character.fg),
        bold=character.bold,
        italic=character.italics,
        underline=character.underscore,
    )


def read_color(name: str) -> str | None:
    if name == "default":
        return None
    named = {"brown": "yellow", "brightbrown": "bright_yellow"}.get(name, name)
    if len(named) == 6 and all(digit in "0123456789abcdef" for digit in named):
        return f"#{named}"
    return named.replace("bright", "bright_") if not named.startswith("bright_") else named


def draw(name: str, title: str, prompt: str, lines: list[Text]) -> None:
    """Write ``docs/images/<name>.svg``: `prompt` and its output."""
    typed = Text.assemble(("$ ", "bold green"), prompt)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for each in (typed, *lines, Text()):  # below the last line, underscores would be cut off
        console.print(each, soft_wrap=True)
    # Without the reference to a web font, which would be loaded with the picture.
    picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL)
    (IMAGES / f"{name}.svg").write_text(picture, encoding="utf-8")


def copy_example(directory: Path, example: Path = EXAMPLE) -> Path:
    ignored = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*")
    return Path(shutil.copytree(example, directory / "example-project", ignore=ignored))


def take_inspect(directory: Path) -> None:
    project = copy_example(directory)
    wheels = directory / "wheels"
    build: tuple[str | Path, ...] = (PYTHON, "-m", "uv", "build", "--wheel", "--no-build-isolation")
    subprocess.run(
        [*build, "--python", PYTHON, "--out-dir", wheels, project],
        env={**os.environ, "CUDAARCHS": "80-real;90-real;120"},  # a picture that fits the screen
        check=True,
        capture_output=True,
    )
    (wheel,) = wheels.glob("*.whl")
    prompt = f"cuda-ext inspect {wheel.name} --kernel 'softmax<float>'"
    draw("inspect", "cuda-ext inspect", prompt, run_in_terminal(f"cd {wheels} && {prompt}")[-1])


def take_doctor(directory: Path) -> None:
    project = copy_example(directory)
    draw(
        "doctor",
        "cuda-ext doctor",
        "cuda-ext doctor",
        run_in_terminal(f"cd {project} && cuda-ext doctor")[-1],
    )


def take_build(directory: Path) -> None:
    """Show a running build above its end."""
    project = copy_example(directory)
    (directory / "cache").mkdir(mode=0o700)
    command = f"cd {project} && cuda-ext build"
    seconds = 12.0
    running, ended = run_in_terminal(command, seconds, CUDA_EXT_CACHE=str(directory / "cache"))
    after = [Text(), Text(f"after {seconds:.0f} s above, and at the end:", "dim"), Text()]
    draw("build", "cuda-ext build", "cuda-ext build", [*running, *after, *ended])


def take_report(directory: Path) -> None:
    photograph(directory, EXAMPLE, "report", "1280,1500")


def take_tuning(directory: Path) -> None:
    """The measurements alone, of the example that has some of a GPU."""
    style = b"<style>body > :not(main), main > :not(#measurements) { display: none }</style>"
    photograph(directory, ROOT / "examples" / "tuning", "tuning", "640,1000", style)


def photograph(directory: Path, example: Path, name: str, size: str, style: bytes = b"") -> None:
    """Build `example` and save the picture of its report, with another `style`, as the image `name`."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit(f"{name}: Chromium is not installed")
    project = copy_example(directory, example)
    page = directory / "report.html"
    (directory / "cache").mkdir(mode=0o700)
    run_in_terminal(
        f"cd {project} && cuda-ext build --report {page}", CUDA_EXT_CACHE=str(directory / "cache")
    )
    page.write_bytes(replace_paths(page.read_bytes()).replace(b"</head>", style + b"</head>"))
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=3000"]
    output = f"--screenshot={IMAGES / name}.png"
    subprocess.run(
        [chromium, *options, f"--window-size={size}", output, page.as_uri()], check=True, capture_output=True
    )


PICTURES: dict[str, Callable[[Path], None]] = {
    "inspect": take_inspect,
    "doctor": take_doctor,
    "build": take_build,
    "report": take_report,
    "tuning": take_tuning,
}


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory() as directory:
            PICTURES[name](Path(directory))


if __name__ == "__main__":
    main(sys.argv[1:])
