"""The study of the known language as its user calls it: all systems, with their arms."""

import os
import subprocess
import sys

import pytest
from processes import ROOT

from tests.known_language.systems import SYSTEMS, shares_of


@pytest.mark.full
def test_the_study_closes_the_gaps_and_prints_them(tmp_path):
  """All systems, each for one to three minutes; what falls short of `Task.shares` closes at least
  `Task.short`: see docs/learning.md."""
  arguments = ['-m', 'tests.known_language', f'--workdir={tmp_path}']
  quiet = dict(os.environ, XLA_FLAGS='', JAX_PLATFORMS='cpu')
  done = subprocess.run(
    [sys.executable, *arguments], cwd=ROOT, env=quiet, check=True, capture_output=True, text=True
  )
  losses = sum(len(task.shares) for system in SYSTEMS.values() for task in system.tasks.values())
  rows = [line for line in done.stdout.splitlines() if line.startswith('| ') and '%' in line]
  assert len(rows) == losses, done.stdout
  for row in rows:
    system, loss, *_, closed, asked = (cell.strip() for cell in row.strip('|').split('|'))
    _, floor = shares_of(system, loss)
    assert float(closed.rstrip('%')) >= 100 * floor, (row, asked, done.stdout)
