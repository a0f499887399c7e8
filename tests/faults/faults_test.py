"""The fault campaign as a test, and that it would tell what goes wrong."""

import importlib
import subprocess

import pytest
from mutation import mutation

from tests.faults import campaign
from tests.faults.__main__ import KINDS


@pytest.mark.full
@pytest.mark.parametrize('kind', KINDS)
def test_all_goes_as_promised(kind, tmp_path):
  """`python -m tests.faults KIND` shows the same as a table."""
  chosen = importlib.import_module(f'tests.faults.{kind}').CASES
  outcomes = [*campaign.campaign(chosen, tmp_path, 0, print)]
  wrong = [o for o in outcomes if o.kind not in ('promised', 'skipped')]
  assert not wrong, '\n'.join(f'{o.case.name}: {o.kind}: {o.said}' for o in wrong)


@mutation(
  'faults: what is wrong and unsaid counts as promised',
  'tests/faults/campaign.py',
  "kind, said = 'silent', str(error)",
  "kind, said = 'promised', str(error)",
)
def test_what_goes_wrong_is_told_apart(tmp_path):
  left = []

  def silent(bench):
    raise campaign.Silent('trained on')

  def stuck(bench):
    left.append(subprocess.Popen(['sleep', '600']))
    bench.watch(*left)
    campaign.ended(left[0], 0.1)

  def refused(bench):
    raise ValueError('a traceback')

  def skipped(bench):
    raise campaign.Skipped('not here')

  def left_running(bench):
    bench.watch(subprocess.Popen(['sleep', '600']))
    left.append(bench._started[0])

  works = [silent, stuck, refused, skipped, left_running]
  chosen = [campaign.Case('rows', work.__name__, work, 2) for work in works]
  outcomes = [*campaign.campaign(chosen, tmp_path, 0, print)]
  assert [o.kind for o in outcomes] == ['silent', 'deadlock', 'other', 'skipped', 'promised']
  assert all(process.poll() is not None for process in left)
  assert '| rows | 8 | 2 | 2 | 2 | 2 | 2 |' in campaign.table(outcomes)


@mutation(
  'faults: metrics are not compared',
  'tests/faults/campaign.py',
  '  if found != expected:',
  '  if False:',
)
def test_metrics_are_compared_to_the_bit(tmp_path):
  for name, loss in (('a', 1.0), ('b', 1.0), ('c', 1.0000001)):
    (tmp_path / name).mkdir()
    line = f'{{"step": 1, "loss": {loss}, "time/input": {hash(name)}}}\n'
    (tmp_path / name / 'metrics.jsonl').write_text(line)
  campaign.bit_equal(tmp_path / 'a', tmp_path / 'b')
  with pytest.raises(campaign.Silent, match='1.0000001'):
    campaign.bit_equal(tmp_path / 'a', tmp_path / 'c')


def test_random_moments_repeat(tmp_path):
  shared = campaign.Shared(tmp_path)
  draw = lambda name, seed: campaign.Bench(tmp_path / name, seed, shared).random.random()
  assert draw('a', '0 x') == draw('b', '0 x') != draw('c', '1 x')
