"""The images of one module in the driver."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cuda_ext.compiler.fatbin import read_fatbin
from cuda_ext.errors import DriverTooOldError, FatbinError, LoadError, NoImageError, PtxTooNewError
from cuda_ext.manifest import Image, Kernel, Manifest, Symbol, Unit
from cuda_ext.runtime import driver as cuda
from cuda_ext.runtime.driver import Device, StatusError, open_driver, version_text
from cuda_ext.runtime.images import select_image
from cuda_ext.runtime.index import Index

__all__ = ["Library", "LoadedKernel"]
