"""How long a run over labelled examples lasts; without examples there is none."""

from unittest import mock

import jax
import pytest
import review_files
from mutation import mutation

from bertjax.errors import UserError
from bertjax.examples.labelled.common import from_config
from bertjax.train import loop, resolve, setup
from bertjax.train.facts import Facts
from configs.finetune import text


@pytest.fixture
def config(tmp_path):
  review_files.write(tmp_path)
  (tmp_path / 'none.tsv').write_text('stars\ttext\n')
  c = text.get_config()
  c.model.update(layers=1, width=32, heads=8, ffn=64, positions=64)
  c.length = 40
  c.data.task.update(label='stars', classes=('bad', 'good'))
  c.data.vocab = str(tmp_path / 'vocab.txt')
  c.data.train, c.data.dev = str(tmp_path / 'train.tsv'), str(tmp_path / 'dev.tsv')
  return c


def lasts(config):
  spec = resolve.counted(resolve.resolve(config, Facts(())))
  c = spec.config
  return spec.said, (c.total_steps, c.eval_steps, c.checkpoint_steps)


def test_epochs_are_of_the_examples_that_are_used(config):
  assert lasts(config)[0] == ('3 epochs of 200 examples: 19 steps',)
  config.data.examples = 96
  assert lasts(config) == (('3 epochs of 96 examples: 9 steps',), (9, 3, 3))


@mutation('given: Collection[str] = ()', 'given: Collection[str] | None = None')
def test_so_are_those_of_a_run_that_python_begins(config, tmp_path, monkeypatch):
  runs = []
  monkeypatch.setattr(loop, 'Session', lambda run, *rest: runs.append(run) or mock.MagicMock())
  loop.run(config, str(tmp_path / 'run'))
  assert [run.config.total_steps for run in runs] == [19]


@pytest.mark.parametrize('split', ['train', 'dev'])
@mutation('if record is None:', 'if False:', file='bertjax/examples/labelled/common/from_config.py')
def test_a_file_with_a_header_alone_is_refused(config, tmp_path, split):
  config.data[split] = str(tmp_path / 'none.tsv')
  store = from_config.ensure_vocabulary(config.data, str(tmp_path))
  with pytest.raises(UserError, match=f'config.data.{split}=.*none.tsv has no examples'):
    setup.make_run(config, store, jax.devices()[:1])
  if split == 'train':  # also where its examples are counted
    with pytest.raises(UserError, match='none.tsv has no examples: expected one at least'):
      lasts(config)
