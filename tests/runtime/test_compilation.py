"""``cuda_ext.compile``, ``save`` and ``load``: a module from a string or a file, without a GPU."""

from __future__ import annotations

import importlib
import itertools
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import cuda_ext
from cuda_ext.errors import BuildError, CompilationError, ManifestError
from cuda_ext.facts.manifest import loads
from cuda_ext.runtime.module import module_from
from tests.fixtures.loader import run_script
from tests.fixtures.projects import build, write_project

FILL = "template <class T> __global__ void fill(T* x, T value) { x[threadIdx.x] = value; }\n"


def filled(**options: Any) -> Any:
    options.setdefault("architectures", ["sm_90"])
    return cuda_ext.compile(FILL, instantiate=["fill<float>"], **options)


def signatures(module: Any) -> list[str]:
    return [kernel.signature for kernel in cuda_ext.describe(module).kernels]


def test_a_string_becomes_a_module() -> None:
    module = filled(name="mine")
    assert module.__name__ == "mine"
    assert signatures(module) == ["fill<float>(float* x, float value)"]


def test_the_images_are_the_requested_ones() -> None:
    (unit,) = cuda_ext.describe(filled(architectures=["sm_90", "sm_80", "compute_80"])).units
    assert [image.architecture for image in unit.images] == ["sm_80", "compute_80", "sm_90"]


def test_without_a_gpu_the_default_is_every_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    if cuda_ext.gpu_available():
        pytest.skip("this machine has a GPU, and its architecture is the default")
    (unit,) = cuda_ext.describe(filled(architectures=None)).units
    assert len(unit.images) > 3


def test_native_without_a_gpu_is_an_error() -> None:
    if cuda_ext.gpu_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(BuildError, match=r"^architectures: "):
        filled(architectures=["native"])


def test_a_file_may_include_headers_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "shared.cuh").write_text(FILL)
    (tmp_path / "device" / "main.cu").write_text('#include "shared.cuh"\n')
    module = cuda_ext.compile(
        tmp_path / "device" / "main.cu", instantiate=["fill<int>"], architectures=["sm_90"]
    )
    assert signatures(module) == ["fill<int>(int* x, int value)"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps the current directory")
def test_a_string_needs_no_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert signatures(filled()) == ["fill<float>(float* x, float value)"]


def test_a_string_may_include_from_include_dirs(tmp_path: Path) -> None:
    (tmp_path / "shared.cuh").write_text(FILL)
    module = cuda_ext.compile(
        "#include <shared.cuh>\n",
        instantiate=["fill<int>"],
        include_dirs=[tmp_path],
        architectures=["sm_90"],
    )
    assert signatures(module) == ["fill<int>(int* x, int value)"]


def test_headers_may_be_given_as_text() -> None:
    module = cuda_ext.compile(
        '#include "shared.cuh"\n',
        instantiate=["fill<int>"],
        headers={"shared.cuh": FILL},
        architectures=["sm_90"],
    )
    assert signatures(module) == ["fill<int>(int* x, int value)"]


def test_macros_and_options_arrive() -> None:
    source = "#if N != 3\n#error N\n#endif\n__global__ void k() { static_assert(M == 4); }\n"
    assert signatures(
        cuda_ext.compile(source, define={"N": "3"}, options=["-DM=4"], architectures=["sm_90"])
    ) == ["k()"]


def test_a_compile_error_names_its_line() -> None:
    with pytest.raises(CompilationError, match=r"kernels\.cu\(2\): error: identifier \"y\" is undefined"):
        cuda_ext.compile("__global__ void k(float* x) {\n  x[0] = y;\n}\n", architectures=["sm_90"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (FILL, 'defines only templates: fill; list instantiations, as in instantiate=["fill<float>"]; on a '),
        (
            "__device__ int f();",
            "defines no kernel; a source needs at least one __global__ or __tile_global__ ",
        ),
        ("#include <vector>\n__global__ void k() {}", 'set host_code="skip", which leaves <vector> and '),
        (
            "#include <torch/all.h>\n__global__ void k() {}",
            "add the package that has it to this environment,",
        ),
        (
            "constexpr int f() { return 1; }\n__global__ void k(int* n) { *n = f(); }",
            "set relaxed_constexpr=True",
        ),
    ],
)
def test_messages_speak_of_arguments(source: str, message: str) -> None:
    if cuda_ext.gpu_available() and source == FILL:
        pytest.skip("templates are compiled on demand here")
    with pytest.raises(CompilationError) as raised:
        cuda_ext.compile(source, architectures=["sm_90"])
    assert message in str(raised.value)
    assert len(raised.traceback) == 2  # this line, and one frame


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"none\.cu: is not a file; correct the path"):
        cuda_ext.compile(tmp_path / "none.cu", architectures=["sm_90"])


def test_a_saved_module_is_the_same_when_loaded(tmp_path: Path) -> None:
    module = filled()
    cuda_ext.save(module, tmp_path / "saved")
    assert cuda_ext.describe(cuda_ext.load(tmp_path / "saved")) == cuda_ext.describe(module)


def test_saving_again_replaces_the_earlier_module(tmp_path: Path) -> None:
    cuda_ext.save(filled(name="one"), tmp_path)
    cuda_ext.save(filled(name="two"), tmp_path)
    assert cuda_ext.load(tmp_path).__name__ == "two"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "sources", "two.fatbin"]


def test_saving_refuses_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(FileExistsError, match=r"thesis\.tex: is not part of a saved module"):
        cuda_ext.save(filled(), tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "all of it"


@pytest.mark.parametrize("kind", ["file", "link"])
def test_saving_never_replaces_a_file(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    (tmp_path / "kept").write_text("kept")
    if kind == "file":
        place.write_text("kept")
    else:
        place.symlink_to(tmp_path / "kept")
    with pytest.raises(FileExistsError, match="place: is not part of a saved module"):
        cuda_ext.save(filled(), place)
    assert place.read_text() == "kept"


def test_saving_refuses_a_directory_with_any_other_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(FileExistsError):
        cuda_ext.save(filled(), tmp_path)
    assert (tmp_path / "manifest.json").read_text() == "{}"


@pytest.mark.parametrize("name", ["mine.ptx", ".env", "sources/notes.txt", "more/notes.txt"])
def test_saving_again_keeps_foreign_files(tmp_path: Path, name: str) -> None:
    cuda_ext.save(filled(), tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("kept")
    with pytest.raises(FileExistsError):
        cuda_ext.save(filled(), tmp_path)
    assert (tmp_path / name).read_text() == "kept"


def test_a_loaded_module_does_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cuda_ext.save(filled(), "saved")
    module = cuda_ext.load("saved")
    monkeypatch.chdir("/")
    cuda_ext.save(module, tmp_path / "again")


def test_saving_into_the_working_directory_refuses_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").write_text("kept")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileExistsError):
        cuda_ext.save(filled(), "")
    assert (tmp_path / "kept").read_text() == "kept"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architectures": []}, "architectures: is empty"),
        ({"architectures": "sm_90"}, r'architectures: expected a list of strings; write \["sm_90"\]'),
        ({"instantiate": "fill<int>"}, "instantiate: expected a list of strings"),
        ({"options": "-G"}, "options: expected a list of strings"),
        ({"architectures": "\x1b[31m"}, r'expected a list of strings; write \["\\x1b\[31m"\]$'),
        ({"options": "x" * 1_000_000}, r'; write \["x{100}\.\.\."\]$'),
        ({"name": "-" * 1_000_000}, r"name: '-{100}\.\.\.' is not an import name"),
        ({"instantiate": itertools.repeat("fill<int>")}, "instantiate: has more than 20,000 items"),
        ({"options": None}, "options: expected a list of strings, found NoneType"),
        ({"instantiate": [b"fill<int>"]}, r"instantiate\[0\]: expected a string, found bytes"),
        ({"instantiate": ["fill<int>\0x"]}, r"instantiate\[0\]: 'fill<int>\\x00x' has a control character"),
        ({"architectures": ["\ud800"]}, r"architectures\[0\]: '\\ud800' has a control character"),
        ({"define": "A"}, "define: expected a mapping of strings, found str"),
        ({"define": {"A": None}}, r"define\['A'\]: expected a string, found NoneType"),
        ({"headers": {"a.h": "\ud800"}}, r"headers\['a.h'\]: '\\ud800' is not a character"),
        ({"include_dirs": [3]}, r"include_dirs\[0\]: expected a path, found int"),
        ({"name": "../kernels"}, "name: '../kernels' is not an import name"),
        ({"compiler": "clang"}, "compiler: expected 'nvrtc' or 'nvcc', found 'clang'"),
        ({"compress": "max"}, "compress: expected 'none' or 'speed' or 'balance' or 'size', found 'max'"),
        ({"include_dirs": ["/nowhere"]}, "include_dirs: '/nowhere' is not a directory; correct the path"),
        ({"architectures": ["sm_91"]}, "architectures: nvrtc .* cannot compile for 'sm_91'; did you mean"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError, BuildError), match=message):
        cuda_ext.compile(FILL, **{"architectures": ["sm_90"], **options})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("-arch=sm_80", "has an argument of its own; pass architectures instead"),
        ("-arch", "has an argument of its own; pass architectures instead"),
        ("--gpu-architecture=sm_80", "has an argument of its own; pass architectures instead"),
        ("-std=c++20", "has an argument of its own; pass std instead"),
        (
            "-dlto",
            "changes the form of the images, and `compile` packs complete images into a fatbin; take it out",
        ),
        *(
            (
                option,
                "changes the form of the images, and `compile` packs complete images into a fatbin; take it "
                "out",
            )
            for option in (
                *("-rdc=true", "--relocatable-device-code=true", "-dc", "--device-c", "-dw", "--device-w"),
                *("--dlink-time-opt", "-lto", "--lto", "-rdc"),
            )
        ),
    ],
)
@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_an_option_that_decides_on_the_images_is_refused(option: str, message: str, compiler: str) -> None:
    with pytest.raises(BuildError) as error:
        filled(options=["-lineinfo", option], compiler=compiler)
    assert str(error.value) == f"options[1]: {option!r} {message}"


def test_a_cached_source_without_directives_needs_no_reader_of_text(tmp_path: Path) -> None:
    """Their patterns take longer than the rest."""
    script = f"""
        import cuda_ext
        cuda_ext.compile({FILL!r}, instantiate=["fill<float>"], architectures=["sm_90"], define={{"N": "1"}})
        print(*sorted(name for name in sys.modules if name.startswith("cuda_ext.text.")))
    """
    cold, warm = (run_script(script, tmp_path, CUDA_EXT_CACHE=str(tmp_path / "cache")) for _ in range(2))
    assert "cuda_ext.text.lexer" in cold.output[0]
    assert warm.output == ["cuda_ext.text.directives"]


def test_a_source_is_text_or_a_path() -> None:
    with pytest.raises(TypeError, match="source: expected a path, found bytes"):
        cuda_ext.compile(FILL.encode(), architectures=["sm_90"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"source: '\\ud800' is not a character"):
        cuda_ext.compile("\ud800", architectures=["sm_90"])


def test_a_path_is_not_compiled_as_text() -> None:
    with pytest.raises(TypeError, match="what looks like a path"):
        cuda_ext.compile("device/fill.cu", architectures=["sm_90"])


def test_variables_of_one_name_in_two_units_are_ambiguous(tmp_path: Path) -> None:
    source = "__constant__ float w[3];\n__global__ void {name}(float* x) {{ x[0] = w[1]; }}\n"
    files = {f"device/{name}.cu": source.format(name=name) for name in ("one", "two")}
    (package,) = build(write_project(tmp_path, files=files)).values()
    module: Any = module_from(loads(package.files["manifest.json"], "here"), package.files.__getitem__)
    with pytest.raises(AttributeError, match=r"device/one\.cu and device/two\.cu each have a variable w"):
        module.w  # noqa: B018


def test_a_kernel_is_pickled_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "__init__.py").touch()
    signatures = []
    pickled = None
    for parameters in ("float* x, int n", "int n, double* x"):
        source = f'extern "C" __global__ void k({parameters}) {{}}\n'
        (package,) = build(write_project(tmp_path / "project", files={"device/k.cu": source})).values()
        package.write(tmp_path / "p" / "kernels")
        module: Any = importlib.reload(importlib.import_module("p.kernels"))
        pickled = pickled or pickle.dumps(module.k)
        signatures.append(pickle.loads(pickled).signature)
    for name in ("p", "p.kernels"):
        sys.modules.pop(name)
    assert signatures == ["k(float* x, int n)", "k(int n, double* x)"]


def test_other_modules_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected a module of kernels"):
        cuda_ext.save(pytest, tmp_path)


def test_loading_from_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"manifest\.json: No such file"):
        cuda_ext.load(tmp_path)
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(ManifestError, match=r"manifest\.json: Is a directory"):
        cuda_ext.load(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_a_file_of_a_saved_module_that_is_a_device_is_not_read(tmp_path: Path) -> None:
    cuda_ext.save(filled(), tmp_path / "saved")
    (image,) = (tmp_path / "saved").glob("*.fatbin")
    for file, error in ((image, OSError), (tmp_path / "saved" / "manifest.json", ManifestError)):
        module = cuda_ext.load(tmp_path / "saved") if error is OSError else None
        file.unlink()
        file.symlink_to("/dev/zero")
        with pytest.raises(error, match="it is not a regular file"):
            cuda_ext.save(module, tmp_path / "again") if module else cuda_ext.load(tmp_path / "saved")
