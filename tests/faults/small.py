"""Small texts, stores and plans for the campaign, and the commands that make them."""

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import prepare_runs
from processes import ROOT


def text(folder: pathlib.Path, documents: int) -> pathlib.Path:
  """A text of so many documents, with a vocabulary beside it."""
  prepare_runs.write_vocabulary(folder)
  prepare_runs.write_text(folder / 'text.txt', documents)
  return folder / 'text.txt'


def prepare_command(given: pathlib.Path, output: pathlib.Path, *more: str) -> list[str]:
  return [
    sys.executable, '-m', 'bertjax.prepare', f'--input={given}', f'--output={output}',
    f'--vocab={given.parent / "vocab.txt"}', '--workers=2', '--part_mb=0.01', *more,
  ]  # fmt: skip


def start_prepare(given: pathlib.Path, output: pathlib.Path, *more: str) -> subprocess.Popen:
  """Starts `prepare`; what it says is in OUTPUT.said."""
  with open(f'{output}.said', 'a', encoding='utf-8') as said:
    command = prepare_command(given, output, *more)
    return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)


def prepare(given: pathlib.Path, output: pathlib.Path, *more) -> subprocess.CompletedProcess:
  command = prepare_command(given, output, *more)
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def seconds(work: Callable[[], object]) -> float:
  """How long something takes."""
  start = time.monotonic()
  work()
  return time.monotonic() - start


def same_files(expected: pathlib.Path, found: pathlib.Path) -> None:
  """Compares all files of two stores, but for plans."""
  plain = lambda path: {
    name: data for name, data in prepare_runs.contents(path).items() if 'plans/' not in name
  }
  one, two = plain(expected), plain(found)
  differing = sorted(name for name in {*one, *two} if one.get(name) != two.get(name))
  if differing:
    raise AssertionError(f'files of {found} differ from those of {expected}: {differing}')
