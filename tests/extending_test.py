"""docs/extending.md does what it says, from a wheel that is installed outside the checkout."""

import importlib
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import pytest
from mutation import mutation

from bertjax.train import setup

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = (ROOT / 'docs' / 'extending.md').read_text()
BLOCKS = dict(re.findall(r'```python\n# (\S+)\n(.*?)```', PAGE, re.DOTALL))
COMMANDS = re.findall(r'^    python (-m bertjax\.main .*)$', PAGE, re.MULTILINE)
LATER = re.findall(r'^    PYTHONPATH=\. python (-m bertjax\.\w+ .*)$', PAGE, re.MULTILINE)
PIECES = ('masking', 'objective', 'model', 't5')
QUICK = ('--config.data.train_vocab.size=512', '--config.data.documents=200')


def environment(site: pathlib.Path) -> dict[str, str]:
  """The dependencies of this Python, and bertjax from `site` alone."""
  return dict(os.environ, PYTHONPATH=str(site), XLA_FLAGS='')


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
  """A directory with bertjax in it, installed from a wheel."""
  top = tmp_path_factory.mktemp('wheel')
  pip = [sys.executable, '-m', 'pip', '--disable-pip-version-check', '-q']
  wheel = [*pip, 'wheel', '--no-deps', '--no-build-isolation', '-w', str(top), str(ROOT)]
  subprocess.run(wheel, check=True, capture_output=True)
  install = [*pip, 'install', '--no-deps', '--target', str(top / 'site')]
  subprocess.run([*install, *map(str, top.glob('*.whl'))], check=True, capture_output=True)
  return top / 'site'


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
  done = subprocess.run(
    [sys.executable, *command.split(), *QUICK], cwd=work, env=environment(site),
    capture_output=True, text=True, timeout=900, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
  workdir = work / re.search(r'--workdir=(\S+)', command)[1]
  lines = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
  assert lines[-1]['step'] == 20 and any(
    ('eval/text' if 't5' in command else 'eval/mlm_masked') in line for line in lines
  )
  if 'objective' in command:
    assert any('z' in line for line in lines)
  if 'runs/model' in command:
    path = dict(PYTHONPATH=os.pathsep.join(['.', str(site)]))
    for again, env in ((f'{command} --evaluate', {}), (LATER[0], path)):
      done = subprocess.run(
        [sys.executable, *again.split()], cwd=work, env=environment(site) | env,
        capture_output=True, text=True, timeout=900, check=False,
      )  # fmt: skip
      assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
