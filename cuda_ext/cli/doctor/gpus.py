"""The driver and the GPUs, as doctor examines them. Nothing is launched, and no context is created."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cuda_ext.cli.doctor.findings import Finding, Level
from cuda_ext.errors import DriverCallError, DriverError, DriverTooOldError, NoDeviceError
from cuda_ext.formats.quantities import format_count, format_size
from cuda_ext.manifest import Image
from cuda_ext.runtime.driver.driver import Driver, open_driver
from cuda_ext.runtime.driver.images import select_image

__all__ = ["Gpu", "Gpus", "accepted_images", "examine_gpus", "find_gpus"]

_NAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# GPUs that the operating system knows, even without the driver's library.
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
_RELEASE = Path("/sys/module/nvidia/version")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"
_PROHIBITED = 2  # CU_COMPUTEMODE_PROHIBITED


@dataclass(frozen=True, slots=True)
class Gpu:
    """``capability`` is ``90`` for 9.0, ``memory`` is in bytes; ``name`` may be unknown."""

    ordinal: int
    capability: int
    name: str = ""
    memory: int = 0
    is_prohibited: bool = False

    def __str__(self) -> str:
        return f"GPU {self.ordinal} (sm_{self.capability})"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The driver's ``library`` and ``release``, the CUDA version that it supports, and its GPUs.

    ``error`` is the reason why nothing can be launched, ``is_installed`` whether there is a library at all,
    and ``hidden`` the number of GPUs of this machine that are not among ``devices``.
    """

    is_installed: bool
    library: str
    release: str
    version: tuple[int, int] | None
    devices: tuple[Gpu, ...]
    hidden: int
    error: DriverError | None = None


def find_gpus() -> Gpus:
    """Query the driver. Never raises."""
    is_installed = _is_installed()
    driver_error: DriverError | None = None
    version: tuple[int, int] | None = None
    devices: tuple[Gpu, ...] = ()
    try:
        driver = open_driver()
        version = driver.version
        devices = tuple(_read_gpu(driver, ordinal) for ordinal in range(driver.count))
    except DriverError as error:
        driver_error = error
        version = version or (_read_version() if is_installed else None)
    except Exception as error:  # of cuda-bindings
        driver_error = DriverError(f"the query failed: {error!r}", remedy="reinstall cuda-bindings")
    hidden = max(0, _count_gpus() - len(devices))
    return Gpus(is_installed, _loaded_library(), _release(), version, devices, hidden, driver_error)


def examine_gpus(gpus: Gpus) -> Iterator[Finding]:
    """The driver and each GPU."""
    yield _examine_driver(gpus)
    for gpu in gpus.devices:
        yield _examine_gpu(gpu, gpus.version or (0, 0))
    if gpus.devices and gpus.hidden:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        text = f"{format_count(gpus.hidden, 'GPU')} of this machine cannot be seen by this process"
        remedy = "nothing to do if this is a container or a job with fewer GPUs; see nvidia-smi -L"
        if visible is not None:
            text += f": CUDA_VISIBLE_DEVICES={visible!r}"
            remedy = "unset CUDA_VISIBLE_DEVICES to see them"
        yield Finding("note", "hidden", text, remedy)


def _examine_driver(gpus: Gpus) -> Finding:
    """The driver, or why nothing can be launched, and how bad that is."""
    facts = {
        "version": _number(gpus.version) if gpus.version else None,
        "release": gpus.release or None,
        "library": gpus.library or None,
    }
    error = gpus.error
    if error is None:
        text = f"{gpus.release} supports CUDA up to {_number(gpus.version or (0, 0))}".lstrip()
        details = [gpus.library] if gpus.library else []
        return Finding("ok", "driver", text, details=details, facts=facts)
    level: Level = "problem"
    text = f"{error.where}: {error.problem}" if error.where else error.problem
    remedy = command = ""
    if isinstance(error, NoDeviceError):
        level, remedy = "note", "nothing to do if there is no GPU"
        if os.environ.get("CUDA_VISIBLE_DEVICES") is not None and gpus.hidden:
            level, remedy = "warning", "unset CUDA_VISIBLE_DEVICES to see the GPUs"
    elif isinstance(error, DriverCallError):
        remedy = "see whether nvidia-smi works"
    elif isinstance(error, DriverTooOldError) or gpus.is_installed:
        pass
    elif sys.platform == "darwin":
        level, remedy = "note", "launch under Linux or Windows"
    elif find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        command = 'pip install "cuda-bindings>=12.9"'
    elif gpus.hidden:
        count = format_count(gpus.hidden, "NVIDIA GPU")
        text = f"there is {count} in this machine, and no driver library ({_NAME})"
        remedy = "install the NVIDIA driver; in a container, start it with --gpus all"
        return Finding("warning", "driver", text, remedy, facts=facts)
    else:
        text = "none, and no NVIDIA GPU: kernels can be built and inspected here"
        return Finding("note", "driver", text, "to launch them, use a machine with a GPU", facts=facts)
    remedy = "; ".join(filter(None, (error.remedy, remedy)))
    return Finding(level, "driver", text, remedy, command, facts=facts)


def _examine_gpu(gpu: Gpu, driver: tuple[int, int]) -> Finding:
    subject = f"GPU {gpu.ordinal}"
    name = f"{gpu.name}, " if gpu.name else ""
    memory = f", {format_size(gpu.memory)}" if gpu.memory else ""
    text = f"{name}compute capability {gpu.capability // 10}.{gpu.capability % 10}{memory}"
    *cubins, ptx = accepted_images(gpu.capability)
    facts = asdict(gpu) | {"cubins": cubins, "ptx": ptx.removeprefix("PTX ")}
    if gpu.is_prohibited:
        text = f"{text}: its compute mode is prohibited, so that no process can use it"
        command = f"nvidia-smi -i {gpu.ordinal} -c DEFAULT"
        return Finding("problem", subject, text, "as root", command, facts=facts)
    details = [f"runs {', '.join(cubins)}; {ptx}, made by CUDA {_number(driver)} or older"]
    if " MIG " in f"{gpu.name} ":
        details.append("a part of a GPU, of which a process sees one")
    return Finding("ok", subject, text, details=details, facts=facts)


def accepted_images(capability: int) -> tuple[str, ...]:
    """The machine code and the PTX that a GPU of `capability` runs, as texts, the most specific first.

    >>> accepted_images(90), accepted_images(86)[0]
    (('sm_90a', 'sm_90', 'PTX up to compute_90'), 'sm_80 to sm_86')
    """
    numbers = range(capability // 10 * 10, capability + 1)
    suffixes = [suffix for suffix, since in (("a", 90), ("f", 100), ("", 0)) if capability >= since]
    accepted = [
        [f"sm_{number}{suffix}" for number in numbers if _runs(f"sm_{number}{suffix}", capability)]
        for suffix in suffixes
    ]
    ranges = [names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" for names in accepted if names]
    return (*ranges, f"PTX up to compute_{capability}")


def _runs(architecture: str, capability: int) -> bool:
    return select_image([Image(architecture, "cubin", "", 0, "")], capability) is not None


def _read_gpu(driver: Driver, ordinal: int) -> Gpu:
    device = driver.device(ordinal)
    name, memory, mode = "", 0, 0
    with suppress(DriverError, AttributeError, UnicodeDecodeError):
        name = driver.call("cuDeviceGetName", 128, ordinal).split(b"\0")[0].decode()
    with suppress(DriverError, AttributeError):
        memory = int(driver.call("cuDeviceTotalMem", ordinal))
    with suppress(DriverError, AttributeError):
        attribute = driver.api.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
        mode = int(driver.call("cuDeviceGetAttribute", attribute, ordinal))
    return Gpu(ordinal, device.capability, name, memory, mode == _PROHIBITED)


def _is_installed() -> bool:
    """Whether the driver's library exists, usable or not."""
    try:
        ctypes.CDLL(_NAME)
    except OSError as error:
        # An existing library may be damaged, or for another processor.
        return sys.platform != "win32" and "No such file" not in str(error)
    return True


def _read_version() -> tuple[int, int] | None:
    """The CUDA version of a driver that cannot be used."""
    try:
        from cuda.bindings import driver

        api: Any = driver
        status, version = api.cuDriverGetVersion()
    except (ImportError, OSError, RuntimeError, ValueError):
        return None
    return divmod(int(version) // 10, 100) if int(status) == 0 else None


def _loaded_library() -> str:
    """The driver's library in this process; empty if the system does not say."""
    try:
        match = re.search(r"/\S*libcuda\.so\S*", Path("/proc/self/maps").read_text())
    except (OSError, ValueError):
        return ""
    return match[0] if match else ""


def _release() -> str:
    """The version of the driver's kernel module, such as 580.65.06; empty if the system does not say."""
    with suppress(OSError, UnicodeDecodeError):
        return _RELEASE.read_text().strip()
    return ""


def _count_gpus() -> int:
    """The number of GPUs that the operating system knows; 0 if it does not say."""
    with suppress(OSError):
        if count := sum(1 for _ in _DRIVER_GPUS.iterdir()):
            return count
    with suppress(OSError):
        return sum(map(_is_gpu, _PCI_DEVICES.iterdir()))
    return 0


def _is_gpu(device: Path) -> bool:
    try:
        vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor == _NVIDIA and kind.startswith(_DISPLAY)


def _number(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
