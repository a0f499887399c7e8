"""Runs of several devices, trained for some steps, exported and opened by transformers."""

import json

import numpy as np
import pytest
import systems
from slow_imports import transformers

import bertjax
from bertjax import dotted
from bertjax.export import exporting, importing
from bertjax.formats import tables
from bertjax.sources import runs
from bertjax.train import loop as train_loop

pytestmark = pytest.mark.full
# All eight devices, each with its part of tables, layers and heads.
MESH = {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
SYSTEMS = ('bert', 'electra', 'albert', 'xlnet', 'spanbert', 'xlm', 'transformer_xl')


@pytest.fixture(scope='module', params=SYSTEMS)
def trained(request, rich_store, tmp_path_factory):
  """A run's workdir."""
  workdir = tmp_path_factory.mktemp(request.param)
  more = {'data.store': str(rich_store), 'total_steps': 5, 'checkpoint_steps': 5, **MESH}
  config = systems.tiny(request.param, **more)
  train_loop.run(config, str(workdir))
  return workdir


def test_a_sharded_run_is_exported_and_comes_back(trained, tmp_path, capsys):
  said = exporting.export(trained, tmp_path / 'out')
  assert said['outputs']['missing'] == said['outputs']['unexpected'] == []
  assert {*said['parts']} == ({'generator'} if trained.name.startswith('electra') else set())
  for part in said['parts']:
    described = json.loads((tmp_path / 'out' / part / 'config.json').read_text())
    assert described['architectures'] == ['ElectraForMaskedLM']
  assert said['tokenizer'] == dict(differences=[])
  card = (tmp_path / 'out' / 'README.md').read_text()
  assert '| steps | 5 |' in card and '| tokens seen |' in card and '## Held-out scores' in card
  importing.import_model(f'hf:{tmp_path / "out"}', tmp_path / 'back')
  before, after = runs.open_run(trained), runs.open_run(tmp_path / 'back')
  old, new = (dotted.flat(run.params(), mark='/') for run in (before, after))
  assert new.keys() <= old.keys() and len(new) > 10
  size = before.config.model.vocab_size
  for path, value in new.items():
    whole = slice(0, size) if value.shape[0] == tables.padded_rows(size) else slice(None)
    np.testing.assert_array_equal(value[whole], np.asarray(old[path])[whole], err_msg=path)
  assert after.vocabulary is not None and before.vocabulary is not None
  assert after.vocabulary.pieces == before.vocabulary.pieces


def test_the_pipeline_fills_in_what_we_fill_in(trained, tmp_path):
  """The same five tokens, equally likely, for blanks at both ends and within."""
  if not trained.name.startswith(('bert', 'albert', 'spanbert')):
    pytest.skip('of masked models')
  exporting.export(trained, tmp_path / 'out')
  texts = ['piece7 [MASK] piece9 piece30.', '[MASK] piece12', 'piece100 piece101 piece102 [MASK]']
  pipeline = transformers.pipeline('fill-mask', model=str(tmp_path / 'out'), device=-1)
  for (ours,), text in zip(bertjax.Model.load(trained).fill(texts, top=5), texts, strict=True):
    theirs = pipeline(text, top_k=5)
    assert [each.id for each in ours] == [each['token'] for each in theirs]
    for mine, other in zip(ours, theirs, strict=True):
      assert abs(mine.probability - other['score']) < 1e-5
