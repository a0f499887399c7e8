"""Small edits that must turn a test red: python -m tests.mutations [PART OF ONE] [options]

Each edit stands beside the test that catches it, as `@mutation(...)` (tests/support/mutation.py).
It is applied to a copy of the repository, alone, and its test is run there. A test that stays green
does not test what it says: the command lists it and exits with 1. An edit whose text is no longer
in one file alone is an error too: write it anew. They are tried in a fixed order without pattern,
so that what --minutes leaves time for is a sample.
"""

import argparse
import ast
import concurrent.futures
import contextlib
import functools
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
SEARCHED = ('bertjax', 'configs', 'launch')  # for the file of an edit that names none
SAMPLE = 12  # mutations that are tried where there is no history
NOTHING_SELECTED = 5  # pytest's exit code


class Mutation(NamedTuple):
  """Replaces `old` (once in `file`) by `new`; `test` must then fail."""

  file: str
  old: str
  new: str
  test: str

  def __str__(self) -> str:
    return f'{self.test}: {self.old!r} -> {self.new!r}'


def noted_in(path: pathlib.Path) -> Iterator[Mutation]:
  """The mutations that a test file notes: above a test, or as statements of the module."""
  name = path.relative_to(ROOT).as_posix()
  for node in ast.parse(path.read_text()).body:
    if isinstance(node, ast.FunctionDef):
      for call in filter(is_mutation, node.decorator_list):
        yield read(call, f'{name}::{node.name}')
    elif isinstance(node, ast.Expr) and is_mutation(node.value):
      yield read(node.value, name)


def is_mutation(node: ast.expr) -> bool:
  return isinstance(node, ast.Call) and getattr(node.func, 'id', None) == 'mutation'


def read(call: ast.Call, test: str) -> Mutation:
  given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
  old, new = map(ast.literal_eval, call.args)
  case = given.get('case')
  file = given.get('file') or ' and '.join(holders(ROOT, old)) or 'no file'
  return Mutation(file, old, new, f'{test}[{case}]' if case else test)


@functools.cache
def sources(root: pathlib.Path) -> dict[str, str]:
  """The texts that are searched, by the path from the root."""
  found = (path for folder in SEARCHED for path in sorted((root / folder).rglob('*')))
  return {
    path.relative_to(root).as_posix(): path.read_text(errors='replace')
    for path in found
    if path.is_file() and path.suffix != '.pyc'
  }


@functools.cache
def holders(root: pathlib.Path, text: str) -> list[str]:
  return [file for file, source in sources(root).items() if text in source]


@functools.cache
def noted() -> list[Mutation]:
  """Every mutation of the test files, in their order."""
  return [m for path in sorted((ROOT / 'tests').rglob('*_test.py')) for m in noted_in(path)]


def git(*arguments: str) -> str | None:
  """What git prints, or None where it fails: no repository, no such commit."""
  done = subprocess.run(['git', *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
  return done.stdout.strip() if done.returncode == 0 else None


def changed_files(base: str) -> set[str] | None:
  """Returns the files that differ from the merge base with `base`, or None where there is no
  history. Without `base` it is origin/main; on main itself, whose merge base is the head, its
  parent."""
  head = git('rev-parse', 'HEAD')
  for candidate in [base] if base else ['origin/main', 'HEAD~1']:
    found = git('merge-base', 'HEAD', candidate)
    if found and (base or found != head):
      listed = git('diff', '--name-only', found)
      return None if listed is None else set(listed.split())
  if base:
    raise SystemExit(f'--changed: expected a commit that this branch has a base with; got {base!r}')
  return None


def choose(mutations: list[Mutation], part: str, changed: str | None) -> list[Mutation]:
  """Those that hold `part` in test or edit; with `changed`, of an edited or test file that did."""
  chosen = [m for m in mutations if part in str(m)]
  if changed is None:
    return chosen
  files = changed_files(changed)
  if files is None:
    print(f'No history to compare with: {SAMPLE} mutations are tried.')
    return in_fixed_order(chosen)[:SAMPLE]
  return [m for m in chosen if m.file in files or m.test.split('::')[0] in files]


def in_fixed_order(mutations: list[Mutation]) -> list[Mutation]:
  return sorted(mutations, key=lambda m: hashlib.sha256(str(m).encode()).digest())


class OutOfTime(Exception):
  """There was no time left to try a mutation."""


class Skipped(Exception):
  """Its test needs what is not here."""


def survives(mutation: Mutation, end: float = float('inf')) -> str | None:
  """Applies the edit to a copy and runs its test there. Returns None if the test went red, else
  what is wrong. Raises OutOfTime if it was not done when the clock said `end`. Raises Skipped if
  its test is skipped here."""
  if time.monotonic() >= end:
    raise OutOfTime
  with tempfile.TemporaryDirectory() as folder:
    copy = pathlib.Path(folder, 'main')
    ignore = shutil.ignore_patterns('.*', 'runs', 'build', '__pycache__')
    shutil.copytree(ROOT, copy, ignore=ignore)
    if (ROOT.parent / 'shared').exists():
      (copy.parent / 'shared').symlink_to(ROOT.parent / 'shared')
    path = copy / mutation.file
    text = path.read_text() if path.exists() else ''
    if text.count(mutation.old) != 1:
      return f'{mutation.file} holds its text {text.count(mutation.old)} times, expected once'
    path.write_text(text.replace(mutation.old, mutation.new))
    code, output = NOTHING_SELECTED, ''
    for tier in ('not full', 'full'):
      found, words = judged(copy, tier, mutation.test, end)
      if found == 1:
        return None
      if found != NOTHING_SELECTED:
        code, output = found, words
    if not code and 'skipped' in output and 'passed' not in output:
      raise Skipped
    return f'{mutation.test} ended with {code}: {output[-300:]}'


def judged(copy: pathlib.Path, tier: str, test: str, end: float) -> tuple[int, str]:
  """Pytest's exit code and words for what a test has in a tier, which sets how it is compiled."""
  left = end - time.monotonic()
  with subprocess.Popen(
    [sys.executable, '-m', 'pytest', '-x', '-m', tier, test],
    cwd=copy,
    env=dict(os.environ, PYTHONPATH=str(copy), PYTHONDONTWRITEBYTECODE='1'),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    start_new_session=True,  # so that what a test started ends with it
  ) as process:
    try:
      output, _ = process.communicate(timeout=left if left < float('inf') else None)
    except subprocess.TimeoutExpired:
      raise OutOfTime from None
    finally:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
  return process.returncode, output


def run(mutations: list[Mutation], workers: int, minutes: float) -> int:
  """Tries the mutations for at most so many minutes; returns how many survived."""
  end = time.monotonic() + 60 * minutes
  found, skipped = {True: 0, False: 0}, 0  # caught, survived
  with concurrent.futures.ThreadPoolExecutor(workers) as pool:
    waiting = {pool.submit(survives, m, end): m for m in in_fixed_order(mutations)}
    for done in concurrent.futures.as_completed(waiting):
      try:
        problem = done.result()
      except OutOfTime:
        continue
      except Skipped:
        print(f'skipped   {waiting[done]}: its test needs what is not here', flush=True)
        skipped += 1
        continue
      found[problem is None] += 1
      print(f'{"SURVIVED" if problem else "caught  "}  {waiting[done]}', flush=True)
      if problem:
        print(f'          {problem}', flush=True)
  left = len(mutations) - sum(found.values()) - skipped
  ending = f', {left} left after {minutes:g} minutes' if left else ''
  print(f'{found[True]} of {sum(found.values())} caught{ending}')
  return found[False]


def main() -> int:
  """Returns 1 if a mutation survived."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('part', nargs='?', default='', help='only those that hold this')
  parser.add_argument(
    '--changed', nargs='?', const='', metavar='BASE',
    help='only those of files changed since the merge base with BASE (origin/main, or the parent)',
  )  # fmt: skip
  parser.add_argument(
    '--minutes', type=float, default=float('inf'), help='at most so long; says what is left'
  )
  parser.add_argument('--workers', type=int, default=2)
  flags = parser.parse_args()
  chosen = choose(noted(), flags.part, flags.changed)
  return int(run(chosen, flags.workers, flags.minutes) > 0)


if __name__ == '__main__':
  sys.exit(main())
