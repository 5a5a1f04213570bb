"""What ``Kernel.bind`` returns: launches of a kernel with a fixed configuration."""

from __future__ import annotations

from typing import Any, Self

from cuda_ext.runtime.launch.configuration import LaunchOptions
from cuda_ext.runtime.launch.fast_launch import FastLaunch
from cuda_ext.runtime.launch.launcher import Launcher
from cuda_ext.runtime.launch.streams import stream_handle

__all__ = ["BoundLaunch"]


class BoundLaunch(FastLaunch):
    """Launches what `launcher` launches with `options`, in `stream`."""

    _options: LaunchOptions
    _stream: object

    @classmethod
    def of(cls, launcher: Launcher, options: LaunchOptions, stream: object) -> Self:
        candidates = tuple(cls.of(candidate, options, stream) for candidate in launcher.candidates)
        bound = cls(launcher, candidates, True, None if stream is None else stream_handle(stream))
        bound._options = options
        bound._stream = stream  # which keeps it alive
        return bound

    def __launch_carefully__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._launch(arguments, named, self._options, self._stream)

    def __repr__(self) -> str:
        return f"<bound launch of {self._launcher.kernel.signature}>"
