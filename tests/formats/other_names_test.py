"""Checkpoints whose names and files are not quite those that `save_pretrained` writes."""

import json

import jax
import numpy as np
import pytest
import torch_models
from mutation import mutation
from slow_imports import torch, transformers

from bertjax.errors import UserError
from bertjax.formats import weights
from bertjax.sources import foreign, runs


def opened(path):
  """(our model, its parameters) of a directory that has them all."""
  model, taken = torch_models.opened(path)
  assert not taken.made and not taken.left_out
  return model, taken.params


def put(state, path, files=1):
  """Saves a state as torch does, in so many files."""
  if files == 1:
    return torch.save(state, path / weights.TORCH)
  names = {name: f'pytorch_model-{i % files + 1:05}.bin' for i, name in enumerate(state)}
  for file in set(names.values()):
    torch.save({name: x for name, x in state.items() if names[name] == file}, path / file)
  (path / f'{weights.TORCH}.index.json').write_text(json.dumps(dict(weight_map=names)))


renamed = lambda change: lambda state: {change(name): x for name, x in state.items()}
WRAPPED = dict(
  DataParallel=renamed('module.{}'.format),
  compiled_in_a_trainer=renamed('model._orig_mod.{}'.format),
  checkpointed=renamed(lambda name: name.replace('.0.', '.0._checkpoint_wrapped_module.')),
  averaged=lambda state: dict(renamed('module.{}'.format)(state), n_averaged=torch.tensor(3)),
  saved_by_a_trainer=lambda state: dict(state_dict=renamed('net.{}'.format)(state), epoch=3),
  saved_with_much=lambda state: dict(
    optimizer=dict(state={0: dict(step=torch.tensor(1))}), ema=dict(net=state, decay=0.9)
  ),
)


@mutation('inner(torch_files.load(file))', 'load(file)', case='BertModel-saved_by_a_trainer')
@mutation("    if name != 'n_averaged'\n", '', case='BertModel-averaged')
@mutation('if usual or len(states) == 1 else', 'if usual else', case='BertModel-saved_with_much')
@mutation('if part not in _WRAPPERS]', 'if part]', case='BertModel-checkpointed')
@mutation('parts = {name: rest ', 'break\n    parts = {name: rest ', case='BertModel-DataParallel')
@pytest.mark.parametrize(
  'name, wrap',
  [
    *(('BertModel', wrap) for wrap in WRAPPED),
    ('BartForConditionalGeneration', 'compiled_in_a_trainer'),  # its own names begin with `model.`
  ],
)
def test_a_wrapped_checkpoint_is_that_of_its_model(name, wrap, tmp_path):
  net = torch_models.save(name, tmp_path)
  plain = opened(tmp_path)
  (tmp_path / weights.NAME).unlink()
  given = json.loads((tmp_path / 'config.json').read_text())
  del given['architectures']  # as of a model that was made of a config
  (tmp_path / 'config.json').write_text(json.dumps(given))
  put(WRAPPED[wrap](net.state_dict()), tmp_path)
  found = opened(tmp_path)
  assert found[0] == plain[0]
  jax.tree.map(np.testing.assert_array_equal, found[1], plain[1])


@mutation('    state |= torch_files', '    state = torch_files')
def test_files_of_torch_may_be_several(tmp_path):
  net = torch_models.save('BertModel', tmp_path)
  plain = opened(tmp_path)[1]
  (tmp_path / weights.NAME).unlink()
  put(net.state_dict(), tmp_path, files=3)
  assert len(weights.files_of(tmp_path)) == 3
  jax.tree.map(np.testing.assert_array_equal, opened(tmp_path)[1], plain)
  (tmp_path / 'pytorch_model-00002.bin').unlink()
  with pytest.raises(
    UserError,
    match='pytorch_model-00002.bin: expected tensors, as its name or .*bin.index.json says',
  ):
    opened(tmp_path)


@mutation("('data2vec_text.', 'roberta.'),", '', case='Data2VecTextForMaskedLM')
@mutation("'camembert': ('Camembert',", "'camembert': ('Cam',", case='CamembertForMaskedLM')
@pytest.mark.parametrize('name', ['CamembertForMaskedLM', 'Data2VecTextForMaskedLM'])
def test_a_class_that_computes_the_same_is_read_as_ours(name, tmp_path):
  torch.manual_seed(0)
  kind = getattr(transformers, name)
  torch_models.loud(kind(kind.config_class(**torch_models.SHAPES))).save_pretrained(tmp_path)
  torch_models.check_outputs(tmp_path, *opened(tmp_path))


@mutation('if hub else', 'if not hub else')
@pytest.mark.parametrize(
  'name, hub',
  [
    ('bert-base-uncased', 'bert-base-uncased'),
    (f'{foreign.HUB}almanach/camembert-base', 'almanach/camembert-base'),
    ('./runs/bert', ''),
  ],
)
def test_a_name_of_the_hub_says_how_it_is_fetched(name, hub):
  with pytest.raises(UserError, match='there is nothing at') as error:
    runs.open_run(name)
  assert (f'`hf download {hub} --local-dir DIR`' in str(error.value)) == bool(hub)
  assert ('hf download' in str(error.value)) == bool(hub)


def test_a_cache_of_the_hub_says_where_its_model_is(tmp_path):
  inside = tmp_path / 'snapshots/0f1e'
  inside.mkdir(parents=True)
  (inside / 'config.json').write_text('{}')
  with pytest.raises(UserError, match=f'config.json: expected .* as {inside} has it$'):
    foreign.open_source(f'hf:{tmp_path}', 'the model')
