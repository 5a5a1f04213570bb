"""The driver and the GPUs, as the runtime sees them; nothing is launched, and no context is made."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cuda_ext.cli.doctor.finding import Finding, note, ok, problem, warning
from cuda_ext.errors import DriverCallError, DriverError, DriverTooOldError, NoDeviceError
from cuda_ext.formats.quantities import format_count, format_size
from cuda_ext.manifest import Image
from cuda_ext.runtime.driver.driver import Driver, open_driver
from cuda_ext.runtime.driver.images import select_image

__all__ = ["Gpu", "Gpus", "findings", "find_gpus", "taken_by"]

_NAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# What the kernel knows of GPUs, whether the driver's library is there or not.
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
_RELEASE = Path("/sys/module/nvidia/version")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"
_PROHIBITED = 2  # CU_COMPUTEMODE_PROHIBITED


@dataclass(frozen=True, slots=True)
class Gpu:
    """``capability`` is ``90`` for 9.0, ``memory`` counts bytes; the name is empty where nobody tells it."""

    ordinal: int
    capability: int
    name: str = ""
    memory: int = 0
    is_prohibited: bool = False

    def __str__(self) -> str:
        return f"GPU {self.ordinal} (sm_{self.capability})"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The driver's ``library`` and ``release``, the CUDA version that it supports, and the GPUs it shows.

    ``refusal`` is why nothing can be launched; ``is_installed`` says whether there is a library at all, and
    ``unseen`` counts GPUs of this machine that are not among ``devices``.
    """

    is_installed: bool
    library: str
    release: str
    version: tuple[int, int] | None
    devices: tuple[Gpu, ...]
    unseen: int
    refusal: DriverError | None = None


def find_gpus() -> Gpus:
    """Ask the driver. Never raises."""
    is_installed = _is_installed()
    refusal: DriverError | None = None
    version: tuple[int, int] | None = None
    devices: tuple[Gpu, ...] = ()
    try:
        driver = open_driver()
        version = driver.version
        devices = tuple(_gpu(driver, ordinal) for ordinal in range(driver.count))
    except DriverError as error:
        refusal = error
        version = version or (_version() if is_installed else None)
    except Exception as error:  # of what lies between us and the driver
        refusal = DriverError(f"the driver cannot be asked: {error!r}; reinstall cuda-bindings")
    unseen = max(0, _gpus_of_machine() - len(devices))
    return Gpus(is_installed, _loaded_from(), _release(), version, devices, unseen, refusal)


def findings(gpus: Gpus) -> Iterator[Finding]:
    facts = {
        "version": _spelled(gpus.version) if gpus.version else None,
        "release": gpus.release or None,
        "library": gpus.library or None,
    }
    if gpus.refusal is not None:
        yield _refused(gpus, gpus.refusal, facts)
    elif gpus.version is not None:
        text = f"{gpus.release} supports CUDA up to {_spelled(gpus.version)}".lstrip()
        yield ok("driver", text, [gpus.library] if gpus.library else [], facts=facts)
    for gpu in gpus.devices:
        yield _device(gpu, gpus.version or (0, 0))
    if gpus.devices and gpus.unseen:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        text = f"{format_count(gpus.unseen, 'GPU')} of this machine cannot be seen by this process"
        if visible is None:
            yield note("hidden", text, "it may be meant so, in a container or a job; see nvidia-smi -L")
        else:
            text += f": CUDA_VISIBLE_DEVICES={visible!r}"
            yield note("hidden", text, "unset CUDA_VISIBLE_DEVICES to see them")


def taken_by(capability: int) -> tuple[str, ...]:
    """The machine code and the PTX that a GPU of `capability` takes, newest first, as a text each.

    >>> taken_by(90), taken_by(86)[0]
    (('sm_90a', 'sm_90', 'PTX up to compute_90'), 'sm_80 to sm_86')
    """
    # "a" came with 9.0, "f" with 10.0.
    numbers = range(capability // 10 * 10, capability + 1)
    suffixes = [suffix for suffix, since in (("a", 90), ("f", 100), ("", 0)) if capability >= since]
    found = []
    for suffix in suffixes:
        runs = [f"sm_{n}{suffix}" for n in numbers if _runs(f"sm_{n}{suffix}", capability)]
        if runs:
            found.append(runs[0] if len(runs) == 1 else f"{runs[0]} to {runs[-1]}")
    return (*found, f"PTX up to compute_{capability}")


def _runs(architecture: str, capability: int) -> bool:
    return select_image([Image(architecture, "cubin", "", 0, "")], capability) is not None


def _device(gpu: Gpu, driver: tuple[int, int]) -> Finding:
    subject = f"GPU {gpu.ordinal}"
    named = f"{gpu.name}, " if gpu.name else ""
    memory = f", {format_size(gpu.memory)}" if gpu.memory else ""
    text = f"{named}compute capability {gpu.capability // 10}.{gpu.capability % 10}{memory}"
    *cubins, ptx = taken_by(gpu.capability)
    facts = asdict(gpu) | {"cubins": cubins, "ptx": ptx.removeprefix("PTX ")}
    if gpu.is_prohibited:
        return problem(
            subject,
            f"{text}: its compute mode is prohibited, so that no process can use it",
            "as root",
            f"nvidia-smi -i {gpu.ordinal} -c DEFAULT",
            facts=facts,
        )
    runs = f"runs {', '.join(cubins)}; {ptx}, made by CUDA {_spelled(driver)} or older"
    details = [runs]
    if " MIG " in f"{gpu.name} ":
        details.append("a part of a GPU, of which a process sees one")
    return ok(subject, text, details, facts=facts)


def _refused(gpus: Gpus, refusal: DriverError, facts: Mapping[str, object]) -> Finding:
    """Why nothing can be launched, and how bad that is."""
    text = str(refusal)
    remedy = "see whether nvidia-smi works" if isinstance(refusal, DriverCallError) else ""
    finding = partial(problem, "driver", text, remedy, facts=facts)
    if isinstance(refusal, NoDeviceError):
        if os.environ.get("CUDA_VISIBLE_DEVICES") is not None and gpus.unseen:
            return warning("driver", text, "unset CUDA_VISIBLE_DEVICES to see them", facts=facts)
        return note("driver", text, "nothing to do where there is no GPU", facts=facts)
    if isinstance(refusal, DriverTooOldError) or gpus.is_installed:
        return finding()
    if sys.platform == "darwin":
        return note("driver", text, "launch under Linux or Windows", facts=facts)
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return finding(command='pip install "cuda-bindings>=12.9"')
    if gpus.unseen:
        count = format_count(gpus.unseen, "NVIDIA GPU")
        text = f"there is {count} in this machine, and no driver library ({_NAME})"
        remedy = "install the NVIDIA driver; in a container, start it with --gpus all"
        return warning("driver", text, remedy, facts=facts)
    text = "none, and no NVIDIA GPU: kernels can be built and inspected here"
    return note("driver", text, "launch them where there is one", facts=facts)


def _gpu(driver: Driver, ordinal: int) -> Gpu:
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
    """Whether the driver's library is there, be it usable or not."""
    try:
        ctypes.CDLL(_NAME)
    except OSError as error:
        # Another reason than that there is none: it is damaged, or of another architecture.
        return sys.platform != "win32" and "No such file" not in str(error)
    return True


def _version() -> tuple[int, int] | None:
    """What a driver supports that has no GPU, or cannot be used."""
    try:
        from cuda.bindings import driver

        api: Any = driver
        status, version = api.cuDriverGetVersion()
    except (ImportError, OSError, RuntimeError, ValueError):
        return None
    return divmod(int(version) // 10, 100) if int(status) == 0 else None


def _loaded_from() -> str:
    """The file of the driver that this process has open, where the system tells."""
    try:
        found = re.search(r"/\S*libcuda\.so\S*", Path("/proc/self/maps").read_text())
    except (OSError, ValueError):
        return ""
    return found[0] if found else ""


def _release() -> str:
    """The version of the driver's kernel module, such as 580.65.06, where the system tells."""
    with suppress(OSError, UnicodeDecodeError):
        return _RELEASE.read_text().strip()
    return ""


def _gpus_of_machine() -> int:
    """How many GPUs the kernel knows of; 0 where it does not tell."""
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


def _spelled(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
