"""The driver and the GPUs, as doctor examines them. Nothing is launched, and no context is created."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cuda_ext.cli.doctor.findings import Finding, Level
from cuda_ext.errors import DriverCallError, DriverError, DriverTooOldError, NoDeviceError
from cuda_ext.facts.architecture import Architecture
from cuda_ext.formats.quantities import format_count, format_size
from cuda_ext.runtime.driver import cuda_h
from cuda_ext.runtime.driver.driver import Driver, open_driver
from cuda_ext.runtime.driver.functions import OUT, Functions

_NAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# GPUs that the operating system knows, even without the driver's library.
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
_NVIDIA, _DISPLAY = "0x10de", "0x03"
_RELEASE = Path("/sys/module/nvidia/version")


@dataclass(frozen=True, slots=True)
class Gpu:
    """``capability`` is ``90`` for 9.0, ``memory`` is in bytes; ``name`` and ``memory`` may be unknown."""

    ordinal: int
    capability: int
    name: str
    memory: int
    is_prohibited: bool = False


@dataclass(frozen=True, slots=True)
class Gpus:
    """The CUDA version that the driver supports, and its GPUs.

    ``hidden`` is the number of GPUs of this machine that are not among ``devices``, and ``error`` the reason
    why nothing can be launched.
    """

    version: tuple[int, int] | None
    devices: tuple[Gpu, ...]
    hidden: int
    error: DriverError | None = None


def find_gpus() -> Gpus:
    """Query the driver. Never raises."""
    error: DriverError | None = None
    devices: tuple[Gpu, ...] = ()
    try:
        driver = open_driver()
        devices = tuple(_read_gpu(driver, ordinal) for ordinal in range(driver.count))
    except DriverError as raised:
        error = raised
    return Gpus(_read_version(), devices, max(0, _count_gpus() - len(devices)), error)


def _read_gpu(driver: Driver, ordinal: int) -> Gpu:
    capability = driver.device(ordinal).capability
    # Kernels run without each of these.
    name, memory, mode = "", 0, 0
    with suppress(DriverError):
        buffer = ctypes.create_string_buffer(128)
        driver.call("cuDeviceGetName", ctypes.addressof(buffer), len(buffer), ordinal)
        name = buffer.value.decode(errors="replace")
    with suppress(DriverError):
        memory = driver.query("cuDeviceTotalMem", OUT, ordinal)
    with suppress(DriverError):
        attribute = cuda_h.CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
        mode = driver.query("cuDeviceGetAttribute", OUT, attribute, ordinal)
    return Gpu(ordinal, capability, name, memory, mode == cuda_h.CU_COMPUTEMODE_PROHIBITED)


def _read_version() -> tuple[int, int] | None:
    """Return the CUDA version of the driver, even of one that cannot be used."""
    with suppress(OSError, DriverError):
        return Driver(Functions()).version
    return None


def _read_release() -> str | None:
    """Return the version of the driver's kernel module, such as 580.65.06."""
    return _first_match(_RELEASE, r"\S+")


def driver_version() -> str:
    """Return the CUDA version that the driver supports, and its release; empty if there is no driver."""
    version, release = _read_version(), _read_release()
    supported = "CUDA {}.{}".format(*version) if version else ""
    return ", ".join(filter(None, (release, supported)))


def _count_gpus() -> int:
    """Return the number of GPUs that the operating system knows; 0 if it does not say."""
    with suppress(OSError):
        if count := len(list(_DRIVER_GPUS.iterdir())):
            return count
    with suppress(OSError):
        return sum(map(_is_gpu, _PCI_DEVICES.iterdir()))
    return 0


def _is_gpu(device: Path) -> bool:
    """Return True if a PCI device is an NVIDIA GPU; one that cannot be read is not."""
    try:
        vendor, device_class = ((device / name).read_text() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor.startswith(_NVIDIA) and device_class.startswith(_DISPLAY)


def examine_gpus(gpus: Gpus) -> Iterator[Finding]:
    """Examine the driver and each GPU."""
    version = "{}.{}".format(*gpus.version) if gpus.version else None
    release = _read_release()
    library = _first_match(Path("/proc/self/maps"), r"/\S*libcuda\.so\S*")
    facts = {"version": version, "release": release, "library": library}
    if gpus.error:
        level, text, remedy, command = _explain(gpus.error, gpus.hidden)
        yield Finding(level, "driver", text, remedy, command, facts=facts)
    else:
        text = f"{release or ''} supports CUDA up to {version}".lstrip()
        yield Finding("ok", "driver", text, details=[library] if library else [], facts=facts)
    for gpu in gpus.devices:
        yield _examine_gpu(gpu, version)
    if gpus.devices and gpus.hidden:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        text = f"{format_count(gpus.hidden, 'GPU')} of this machine cannot be seen by this process"
        remedy = "nothing to do if this is a container or a job with fewer GPUs; see nvidia-smi -L"
        if visible is not None:
            text += f": CUDA_VISIBLE_DEVICES={visible!r}"
            remedy = "unset CUDA_VISIBLE_DEVICES to see them"
        yield Finding("note", "hidden", text, remedy)


def _first_match(file: Path, pattern: str) -> str | None:
    """Return the first match of `pattern` in a `file` of the system, which may not exist."""
    with suppress(OSError, ValueError):
        if match := re.search(pattern, file.read_text()):
            return match[0]
    return None


def _explain(error: DriverError, hidden: int) -> tuple[Level, str, str, str]:
    """Explain why nothing can be launched: level, text, remedy and command."""
    text, remedy = error.statement, error.remedy
    if isinstance(error, NoDeviceError):
        if os.environ.get("CUDA_VISIBLE_DEVICES") is not None and hidden:
            return "warning", text, f"{remedy}; unset CUDA_VISIBLE_DEVICES to see the GPUs", ""
        return "note", text, f"{remedy}; nothing to do if there is no GPU", ""
    if isinstance(error, DriverCallError):
        return "problem", text, remedy or "see whether nvidia-smi works", ""
    if isinstance(error, DriverTooOldError) or _is_installed():
        return "problem", text, remedy, ""
    if sys.platform == "darwin":
        return "note", text, "launch under Linux or Windows", ""
    if hidden:
        count = format_count(hidden, "NVIDIA GPU")
        text = f"there is {count} in this machine, and no driver library ({_NAME})"
        return "warning", text, "install the NVIDIA driver; in a container, start it with --gpus all", ""
    text = "none, and no NVIDIA GPU: kernels can be built and inspected here"
    return "note", text, "to launch them, use a machine with a GPU", ""


def _is_installed() -> bool:
    """Return True if the driver's library exists, usable or not."""
    try:
        ctypes.CDLL(_NAME)
    except OSError as error:
        # An existing library may be damaged, or for another processor.
        return sys.platform != "win32" and "No such file" not in str(error)
    return True


def _examine_gpu(gpu: Gpu, version: str | None) -> Finding:
    capability = "{}.{}".format(*divmod(gpu.capability, 10))
    memory = format_size(gpu.memory) if gpu.memory else ""
    text = ", ".join(filter(None, (gpu.name, f"compute capability {capability}", memory)))
    *cubins, ptx = accepted_images(gpu.capability)
    facts = asdict(gpu) | {"cubins": cubins, "ptx": ptx.removeprefix("PTX ")}
    subject = f"GPU {gpu.ordinal}"
    if gpu.is_prohibited:
        text = f"{text}: its compute mode is prohibited, so that no process can use it"
        command = f"nvidia-smi -i {gpu.ordinal} -c DEFAULT"
        return Finding("problem", subject, text, "as root", command, facts=facts)
    details = [f"runs {', '.join(cubins)}; {ptx}, made by CUDA {version} or older"]
    if " MIG " in f"{gpu.name} ":
        details.append("a part of a GPU, of which a process sees one")
    return Finding("ok", subject, text, details=details, facts=facts)


def accepted_images(capability: int) -> list[str]:
    """Return the machine code and the PTX that a GPU of `capability` runs, as texts, the most specific first.

    >>> accepted_images(90), accepted_images(86)[0]
    (['sm_90a', 'sm_90', 'PTX up to compute_90'], 'sm_80 to sm_86')
    """
    texts = []
    for suffix, since in (("a", 90), ("f", 100), ("", 0)):
        names = [f"sm_{number}{suffix}" for number in range(capability // 10 * 10, capability + 1)]
        run = [n for n in names if capability in Architecture.parse(n).gpus]
        if run and capability >= since:
            texts.append(" to ".join(dict.fromkeys((run[0], run[-1]))))
    return [*texts, f"PTX up to compute_{capability}"]
