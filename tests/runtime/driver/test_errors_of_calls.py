"""No driver call of a correct program gives an error: tools such as compute-sanitizer would report it.

The fake driver writes down every error, and each test that runs a script expects none, unless it says which.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.loader import Run

pytestmark = pytest.mark.host_compiler
WithDriver = Callable[..., Run]


def test_the_fake_driver_writes_down_its_errors(with_driver: WithDriver) -> None:
    run = with_driver(
        """
        from cuda_ext.runtime.driver.driver import open_driver
        from cuda_ext.runtime.driver.functions import OUT
        driver = open_driver()
        caught(driver.call, "cuCtxGetDevice", OUT)
        caught(driver.call, "cuCtxSynchronize")
        caught(driver.call, "cuDeviceGetCount", OUT)  # the test asked for this one
        """,
        fail="cuDeviceGetCount=2@2",
        errors=["error 201 of cuCtxGetDevice", "error 201 of cuCtxSynchronize"],
    )
    assert len(run.output) == 3


@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize("devices", [1, 2])
def test_no_call_of_a_correct_program_fails(with_driver: WithDriver, devices: int, in_c: bool) -> None:
    run = with_driver(
        f"""
        if not {in_c}:
            sys.modules["cuda_ext.runtime.launch._launch"] = None
        import threading
        import numpy
        import cuda_ext
        from sample import kernels
        from tests.fixtures.device_arrays import Array, Tensor, import_torch
        axpy, one = kernels.axpy["float"], dict(grid=1, block=1)
        x, y = numpy.ones(4, "f4"), numpy.zeros(4, "f4")
        large = numpy.zeros(5_000_000, "f4")
        bound = axpy.bind(**one)

        def launch():
            axpy(4, 2.0, x, y, **one)
            axpy(4, 2.0, x[::2], large, **one)
            axpy(4, 2.0, 0x1000, 0x2000, **one)
            axpy(4, 2.0, 0x1000, 0x2000, stream=9, **one)
            bound(4, 2.0, 0x1000, 0x2000)
            bound(4, 2.0, Array(x), Array(y))
            kernels.axpy(4, 2.0, x, y, threads=4)
            with cuda_ext.device_scope():
                bound(4, 2.0, large, large)
            pending = axpy(4, 2.0, x, y, wait=False, **one)
            while not pending.done:
                pass
            pending.wait()
            kernels.plain(grid=2, block=1, cluster=2)
            kernels.plain(grid=2, block=1, cooperative=True, shared=60 << 10)
            kernels.weights.copy_from(numpy.ones(9, "f4"))
            kernels.weights.copy_to(Array(numpy.ones(9, "f4")))
            kernels.weights.numpy(), kernels.weights.address
            axpy.attributes(), axpy.occupancy(256)

        for _ in range(2):
            launch()
            thread = threading.Thread(target=launch)
            thread.start()
            thread.join()
        import_torch({{}})
        for device in range({devices}):
            bound(4, 2.0, Tensor(x, device), Tensor(y, device))
            axpy(4, 2.0, Tensor(x, device), 0x1000, **one)
            axpy(4, 2.0, 0x1000, 0x2000, like=Tensor(x, device), **one)
        """,
        devices=devices,
    )
    assert run.output == []
    assert run.errors == []
    assert len(run.launches) == 4 * 11 + 3 * devices
