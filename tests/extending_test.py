"""docs/extending.md does what it says, from a wheel that is installed outside the checkout."""

import importlib
import json
import re

import jax
import pytest
import wheels
from mutation import mutation
from processes import ROOT

from bertjax.train import setup

PAGE = (ROOT / 'docs' / 'extending.md').read_text()
BLOCKS = dict(re.findall(r'```python\n# (\S+)\n(.*?)```', PAGE, re.DOTALL))
COMMANDS = re.findall(r'^    python (-m bertjax\.main .*)$', PAGE, re.MULTILINE)
LATER = re.findall(r'^    PYTHONPATH=\. python (-m bertjax\.\w+ .*)$', PAGE, re.MULTILINE)
PIECES = ('masking', 'objective', 'model', 't5')
QUICK = ('--config.data.train_vocab.size=512', '--config.data.documents=200')


@pytest.fixture(scope='module')
def work(tmp_path_factory):
  """A directory with the files of the page."""
  top = tmp_path_factory.mktemp('extending') / 'work'
  for name, text in BLOCKS.items():
    path = top / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  return top


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """A directory with bertjax in it, from a wheel."""
  return wheels.of_ours(tmp_path_factory.mktemp('wheel'))


def test_the_page_has_what_it_says():
  assert list(BLOCKS) == [f'mine/{name}.py' for name in ('config', 'tail', 'z_loss', 'bag', 't5')]
  lines = {name: text.count('\n') for name, text in BLOCKS.items()}
  told = [int(n) for n in re.findall(r'^\| \w+ \| 1 \| (\d+) \|$', PAGE, re.MULTILINE)]
  assert told == [lines[f'mine/{n}.py'] for n in ('tail', 'z_loss', 'bag', 't5', 'config')]
  assert len(COMMANDS) == 4 and len(LATER) == 1


@mutation(
  "models.build(config.model).require_room(max(lengths), 'config.length or that of an evaluation')",
  'assert max(lengths) <= config.model.positions - config.model.position_offset',
  case='model',
)
@pytest.mark.parametrize('piece', PIECES)
def test_a_piece_of_the_page_is_set_up(work, rich_store, monkeypatch, piece):
  monkeypatch.syspath_prepend(work)
  config = importlib.import_module('mine.config').get_config(piece)
  setup.make_run(config, rich_store, jax.devices()[:1])


@pytest.mark.full
@pytest.mark.parametrize('command', COMMANDS, ids=PIECES)
def test_a_command_of_the_page_trains(work, site, command):
  done = wheels.run(site, work, *command.split(), *QUICK)
  assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
  workdir = work / re.search(r'--workdir=(\S+)', command)[1]
  lines = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
  assert lines[-1]['step'] == 20 and any(
    ('eval/text' if 't5' in command else 'eval/mlm_masked') in line for line in lines
  )
  if 'objective' in command:
    assert any('z' in line for line in lines)
  if 'runs/model' in command:
    for again, here in ((f'{command} --evaluate', False), (LATER[0], True)):
      done = wheels.run(site, work, *again.split(), here=here)
      assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
