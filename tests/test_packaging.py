"""The wheel: every folder of the package is in it, and nothing else lands beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "setuptools"
]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "tracekit-*")


def folders_of_modules():
    """Folders of the package by their dotted name, seen through the links of the checkout."""
    for folder, folders, files in os.walk(ROOT / "tracekit", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        if any(name.endswith(".py") for name in files):
            yield ".".join(Path(folder).relative_to(ROOT).parts)


def test_the_package_list_is_the_folders():
    assert sorted(SETUPTOOLS["packages"]) == sorted(folders_of_modules())


def test_every_folder_of_modules_is_a_package():
    for name in folders_of_modules():
        assert (ROOT / name.replace(".", "/") / "__init__.py").is_file(), name


@pytest.mark.parametrize("folder", ["collectors", "reports", "sample_traces"])
def test_a_checkout_looks_like_the_wheel(folder):
    assert SETUPTOOLS["package-dir"][f"tracekit.{folder}"] == folder
    assert (ROOT / "tracekit" / folder).readlink() == Path("..") / folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, built from a copy so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "copy", symlinks=True, ignore=LEFT_OUT)
    pip("wheel", "--no-deps", "--wheel-dir", folder, folder / "copy")
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """A new environment that holds the wheel alone."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip("--python", folder / "bin/python", "install", "--no-deps", "--no-compile", wheel)
    return folder


def pip(*arguments):
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
    )


def site_packages(environment):
    return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment)}))


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_data_file_of_the_checkout(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("tracekit/")}
    modules = {
        path.relative_to(ROOT).as_posix()
        for name in folders_of_modules()
        for path in (ROOT / name.replace(".", "/")).glob("*.py")
    }
    data = {
        path.relative_to(ROOT).as_posix()
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern.replace("**", "**/*"))
        if path.is_file()
    }
    assert packed == modules | data


@pytest.mark.slow
def test_only_tracekit_lands_in_site_packages(clean):
    names = sorted(path.name for path in site_packages(clean).iterdir())
    assert [name.partition("-")[0] for name in names] == ["tracekit", "tracekit_gpu"]
    assert names[1].endswith(".dist-info")


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(clean, tmp_path):
    # The packages tracekit needs come from this environment, tracekit itself from the clean one.
    paths = [site_packages(clean), sysconfig.get_path("purelib")]
    done = subprocess.run(
        [clean / "bin/tracekit", "demo", "--output", tmp_path / "demo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = tmp_path / "demo" / "report.html"
    assert "Report: demo/report.html" in done.stdout
    assert report.is_file()
    assert report.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
