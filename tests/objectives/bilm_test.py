"""ELMo's loss and vectors: what a direction sees, what is sampled, spelled and refused."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import systems
from mutation import mutation
from toy_store import random_store, recipe

from bertjax import sharding
from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.examples import examples as examples_lib
from bertjax.examples import spelling
from bertjax.examples.labelled.common import from_config
from bertjax.examples.seqio_tasks import row_stream
from bertjax.kernels import sampled_softmax
from bertjax.models import elmo
from bertjax.objectives import bilm
from bertjax.optim import optimizer
from bertjax.tools.bench.parts import own_step, synthetic
from bertjax.train import touched
from bertjax.types import Context
from bertjax.vocab import whole_words
from configs.finetune import elmo as finetune


def made(**fields):
  """(config, objective, variables, batch) of the test size in 4 rows of 8 columns."""
  config = own_step.sized(systems.tiny('elmo', **fields), 4, 8)
  objective = bilm.make(config)
  batch = dict(synthetic.synthetic_batch(config), row_B=np.arange(4))
  return config, objective, cases.variables(objective.init, batch), batch


def terms_of(objective, variables, batch, train=False, seed=0):
  ctx = Context(jax.random.key(seed), jnp.int32(0), train)
  return objective.loss(variables, objective.carry(batch), batch, ctx).terms


@mutation('turn = (lambda x: jnp.flip(x, 1)) if way else (lambda x: x)', 'turn = lambda x: x')
def test_a_direction_sees_what_comes_before_it_alone():
  config, _, variables, batch = made()
  model = elmo.make(config.model)
  width = config.model.width

  @jax.jit
  def vectors(characters):
    return model.apply(variables, dict(batch, character_BTW=characters), method='read')

  before = vectors(batch['character_BTW'])
  other = np.array(batch['character_BTW'])
  other[:, 4] = spelling.characters(['else'] * 4, other.shape[-1])[0]
  after = vectors(other)
  moved_T = np.abs(before['last_BTD'] - after['last_BTD']).reshape(4, 8, 2, width).max((0, 3)) > 0
  np.testing.assert_array_equal(moved_T[:, 0], np.arange(8) >= 4)
  np.testing.assert_array_equal(moved_T[:, 1], np.arange(8) <= 4)
  assert before['hidden_LBTD'].shape == (2, 4, 8, 2 * width)
  words_BTD = before['embedded_BTD']
  np.testing.assert_array_equal(words_BTD[..., :width], words_BTD[..., width:])


@pytest.mark.full
@mutation('jax.random.fold_in(ctx.key, way)', 'ctx.key')
def test_the_softmax_is_sampled_in_training_alone_and_all_candidates_are_all_words(monkeypatch):
  _, objective, variables, batch = made(**{'model.vocab_size': 300, 'objective.sampled': 100})
  keys, draw = [], sampled_softmax.draw
  monkeypatch.setattr(sampled_softmax, 'draw', lambda key, *a: keys.append(key) or draw(key, *a))
  trained = [terms_of(objective, variables, batch, True, seed)['bilm'].total for seed in (0, 0, 1)]
  assert trained[0] == trained[1] != trained[2]
  assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 4
  whole = terms_of(objective, variables, batch)
  assert len(keys) == 6 and 'bilm_accuracy' in whole
  mean = whole['bilm'].total / whole['bilm'].weight
  np.testing.assert_allclose(mean, np.log(300), rtol=0.1)  # nothing is learned


LARGE = {'model.vocab_size': 1000, 'objective.sampled': 64}


def trained(**changed):
  """(the first state, what three steps come to)."""
  config, _, _, batch = made(**LARGE, **changed)
  batch.pop('row_B')
  mesh = sharding.make_mesh(config.mesh, jax.devices()[: 4 if 'mesh.fsdp' in changed else 1])
  lowered, init, layout = own_step.lower(config, batch, mesh)
  first = jax.jit(init)(jax.random.key(1))
  with jax.set_mesh(mesh):
    state = jax.jit(lambda tree: tree, out_shardings=layout)(jax.tree.map(np.asarray, first))
  step = lowered.compile()
  for _ in range(3):
    state, metrics = step(state, sharding.put_batch(batch, mesh), np.uint32(0), np.float32(0.2))
  return first, (state, metrics['loss'], metrics['grad_norm'])


@pytest.fixture(scope='module')
def over_the_table():
  """`trained` without touched rows."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(optimizer, 'sparse', lambda given: False)
    return trained()


@mutation('net = model if row_n is None else', 'net = model if True else')
@mutation(
  'look_up.put_rows, touched', 'lambda x, i, y: x, touched', file='bertjax/train/touched.py'
)
@mutation('jnp.searchsorted(row_n, id_Wn)', 'id_Wn', file='bertjax/kernels/sampled_softmax.py')
@pytest.mark.parametrize(
  'changed',
  [
    pytest.param({}, id='one', marks=pytest.mark.full),
    pytest.param(
      {'mesh.fsdp': 2, 'mesh.tensor': 2, 'microbatches': 2}, id='microbatches of a mesh'
    ),
  ],
)
def test_a_step_over_touched_rows_is_the_step_over_the_table(changed, over_the_table):
  ctx = Context(jax.random.key(0), jnp.int32(0), True)
  _, objective, _, batch = made(**LARGE)
  assert {k: len(v) for k, v in objective.touched(batch, ctx).rows.items()} == dict.fromkeys(
    bilm.SCORING, 256
  )
  _, apart = trained(**changed)
  first, whole = over_the_table
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), apart, whole)
  table_VD = first.variables['params']['softmax']
  moved_V = np.any(apart[0].variables['params']['softmax'] != table_VD, 1)
  assert 100 < moved_V.sum() < 600


@mutation('jnp.where(lacks, jnp.nan, found)', 'found', file='bertjax/kernels/sampled_softmax.py')
def test_a_row_that_is_not_among_the_touched_ones_is_not_passed_over():
  _, objective, variables, batch = made(**LARGE)
  ctx = Context(jax.random.key(0), jnp.int32(0), True)
  found = objective.touched(batch, ctx)
  row_n = found.rows[bilm.SCORING[0]].at[5].add(1)
  rows = dict.fromkeys(bilm.SCORING, jnp.unique(row_n, size=256, fill_value=1024))

  @jax.jit
  def total(rows):
    context = ctx._replace(touched=found._replace(rows=rows))
    few = touched.taken(variables, context.touched)
    return objective.loss(few, objective.carry(batch), batch, context).terms['bilm'].total

  assert np.isfinite(total(found.rows)) and not np.isfinite(total(rows))


@mutation("target_m = np.where(target_m < options.words, target_m, store.special['unk'])", 'pass')
@mutation('ids = [BEGIN_WORD, *ids[: most - 2], END_WORD]', 'ids = [BEGIN_WORD, *ids, END_WORD]')
def test_rare_words_are_read_by_their_characters_and_predicted_as_unknown():
  store = random_store(20)
  store.meta['vocabulary'] = dict(pieces=[f'w{i}' * (1 + i % 3) for i in range(1000)])
  data = recipe(dict(name='bilm_columns'), dict(name='bilm', characters=8, words=100))
  batch = examples_lib.examples_in_memory(store, data, 8, 0, rows=4).batch(np.arange(4), False)
  read, words = batch['token_BT'][0], store.meta['vocabulary']['pieces']
  assert read.max() >= 100 and (batch['target_BT'] < 100).all()
  rare = batch['target_BT'][:, :-1] == store.special['unk']
  np.testing.assert_array_equal(rare, batch['token_BT'][:, 1:] >= 100)
  for word, spelled in zip(read, batch['character_BTW'][0], strict=True):
    ids = list(words[word].encode())[:6]
    assert spelled.tolist() == ([258, *ids, 259] + [260] * 8)[:8]


def test_marks_and_other_alphabets_are_spelled():
  found, cut = spelling.characters(['<S>', '</S>', 'é' * 30], 10)
  assert found[0].tolist() == [258, 256, 259] + [260] * 7 and found[1, 1] == 257
  assert found[2].tolist() == [258, *('é' * 4).encode(), 259] and cut == 1


@mutation('    if not ids:', '    if False:', file='bertjax/examples/spelling.py')
@mutation('    if cut + more and not self._said:', '    if False:')
def test_words_that_are_cut_are_counted_once_and_those_of_no_character_refused(tmp_path, caplog):
  (tmp_path / 'dev.tsv').write_text(f'text\tlabel\n{"a" * 60} a\tx\na {"b" * 49}\ty\n')
  config = finetune.get_config('classes')
  config.data.task.classes, config.data.vocab = ('x', 'y'), str(tmp_path / 'words')
  (tmp_path / 'words').mkdir()
  words = whole_words.of_words(['</S>', '<S>', '<unk>', '<pad>', 'a'])
  (tmp_path / 'words' / 'tokenizer.json').write_text(words.to_str())
  sections.complete(config)
  store = row_stream.open_vocabulary(
    from_config.ensure_vocabulary(config.data, str(tmp_path / 'run'))
  )
  opened = lambda: from_config.open_rows(config, str(tmp_path / 'dev.tsv'), 'config.x', store, 0, 2)
  with caplog.at_level('WARNING'):
    batch = opened().batch(np.arange(2), False)
  assert batch['character_BTW'].shape[-1] == 50 and (batch['token_BT'] >= 5).sum() == 2
  (said,) = caplog.messages
  assert said.startswith('2 of 5 words are longer than 48 bytes: the model reads their beginnings')
  with pytest.raises(UserError, match='has none of the characters that words are read by'):
    spelling.characters(['\ud800'])


@pytest.mark.parametrize(
  'fields, said',
  [
    ({'model.vocab_size': 30}, 'got 64 candidates of 30 words'),
    ({'model.vocab_size': 30, 'model.outputs': 40}, 'outputs: got 40, but the vocabulary has 30'),
    ({'model.characters': 2}, 'fewer than the 3 that a filter reads'),
  ],
)
def test_what_cannot_be_trained_is_refused(fields, said):
  with pytest.raises(UserError, match=said):
    bilm.make(systems.tiny('elmo', **fields))


def test_batches_of_other_words_than_the_models_are_refused():
  config = systems.tiny('elmo')
  config.data.mask = dict(name='bilm', characters=20, words=5)
  with pytest.raises(UserError, match='config.data.mask.words are one thing: got 0 and 5'):
    bilm.make(config)
