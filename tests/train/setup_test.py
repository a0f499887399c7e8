"""What cannot work is refused by name before anything is compiled or written."""

import dataclasses
import hashlib
import json
import shutil

import jax
import numpy as np
import pytest
from mutation import mutation
from small_stores import write_store

from bertjax.checkpoint import checkpoints as checkpoints_lib
from bertjax.errors import UserError
from bertjax.evals.held_out import rows
from bertjax.train import evaluation, first_state, setup
from bertjax.train.watch import digests
from configs import bert, roberta, spanbert, transformer_xl, xlm, xlnet

SPECIAL = dict(pad=0, unk=1, cls=2, sep=3, mask=4)


def drawn(count, seed=0, sizes=(4,)):
  """So many documents of four random sentences, or of other sizes in turn."""
  rng = np.random.default_rng(seed)
  sentence = lambda: rng.integers(5, 50, 6).tolist()
  return [[sentence() for _ in range(sizes[n % len(sizes)])] for n in range(count)]


def write(path, documents, language=(), languages=(), **vocabulary):
  """Writes a store of 50 ids, with a language of each sentence; returns its path."""
  plain = dict(type='wordpiece', size=50, sha256='0' * 64, special=SPECIAL)
  columns = dict(language=language) if languages else {}
  write_store(path, documents, plain | vocabulary, columns=columns, languages=languages)
  return path


def held_out(phase):
  """What the set `held_out` of a phase scores."""
  return rows.hold_out(*rows.main_set(phase.subject))


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  return write(tmp_path_factory.mktemp('setup') / 'store', drawn(20))


def make(store, recipe=bert, length=64, judged=8, **overrides):
  config = recipe.get_config('test')
  config.batch_size, config.length, config.evals.held_out.batch_size = 8, length, judged
  config.data = config.data.copy_and_resolve_references()
  config.update_from_flattened_dict(overrides)
  return setup.make_run(config, store, jax.devices()[:1])


@mutation('pad_id.fill(model, facts.pad)', 'pad_id.fill(model, 1)')
def test_the_model_takes_the_id_of_pad_from_the_store(store):
  run = make(store, roberta)
  model = run.phases[0].config.model
  assert (model.position_offset, model.zero_row) == (1, 0)
  assert run.abstract.variables['params']['embeddings']['word'].shape == (128, 64)  # of 50 ids
  given = {'model.position_offset': 2, 'model.zero_row': 1}
  model = make(store, roberta, **given).phases[0].config.model
  assert (model.position_offset, model.zero_row) == (2, 1)


def test_evaluation_may_mask_otherwise_than_training(store, tmp_path):
  whole = tmp_path / 'store'
  shutil.copytree(store, whole)
  shutil.copytree(store, whole / 'heldout')
  config = spanbert.get_config('test')
  config.batch_size, config.length, config.evals.held_out.batch_size = 8, 64, 8
  config.data.mask.rule = 'tokens'
  config.evals.held_out.data = dict(mask=dict(rule='spans', mask_share=1.0, random_share=0.0))
  phase = setup.make_run(config, whole, jax.devices()[:1]).phases[0]
  rules = [e.recipe.mask_options.rule for e in (held_out(phase).rows, phase.examples)]
  assert rules == ['spans', 'tokens']
  masked = held_out(phase).rows.batch(np.arange(8), shuffle=False)
  assert (masked['masked_BP'] == masked['weight_BP']).all() and masked['pair_weight_BP'].any()
  assert not phase.examples.batch(np.arange(8), shuffle=False)['pair_weight_BP'].any()
  phase.config.data.reader = 'seqio'
  subject = phase.subject._replace(shared={})
  with pytest.raises(ValueError, match='config.evals changes mask of the held-out rows'):
    held_out(dataclasses.replace(phase, subject=subject))


@mutation('if differing or jax.tree', 'if jax.tree')
def test_phases_of_other_shapes_are_refused_by_the_leaf(store):
  said = r"phase 'phase2' has other .*: expected float32.* got float"
  with pytest.raises(ValueError, match=said):
    make(store, **{'phases.phase2.model': dict(ffn=128)})


@pytest.fixture(scope='module')
def spoken(tmp_path_factory):
  """Ten documents in de, ten in en, and ten pairs."""
  documents = drawn(20) + drawn(10, 1, sizes=(2,))
  language = [[number // 10] * 4 for number in range(20)] + [[0, 1]] * 10
  return write(tmp_path_factory.mktemp('spoken') / 'store', documents, language, ('de', 'en'))


def test_phases_that_take_turns_share_tables_of_the_languages_of_the_store(spoken):
  run = make(spoken, xlm, 32)
  assert [s.name for s in run.phases] == ['clm', 'mlm', 'tlm']
  assert run.abstract.variables['params']['embeddings']['language'].shape == (2, 64)
  assert [s.config.model.attend for s in run.phases] == ['causal', 'example', 'example']
  for system in run.phases:
    batch = system.examples.batch(np.arange(8), True)
    other_BT = batch['language_BT'] != batch['language_BT'][:, :1]
    mixed_B = (other_BT & (batch['example_BT'] > 0)).any(1)
    assert mixed_B.all() if system.name == 'tlm' else not mixed_B.any()


@mutation('found.numbered(store.languages) if found.languages else found', 'found')
@mutation("('sha256', 'lowercase', 'accents')", "('lowercase',)")
def test_held_out_text_has_the_ids_of_the_store(spoken, tmp_path):
  whole = tmp_path / 'store'
  shutil.copytree(spoken, whole)

  def hold_out(languages, **more):
    shutil.rmtree(whole / 'heldout', ignore_errors=True)
    write(whole / 'heldout', drawn(20, 1), [[0] * 4] * 20, languages, **more)
    return make(whole, **{'model.extra': (('language', 2),)})

  run = hold_out(('en',))
  batch = held_out(run.phases[0]).rows.batch(np.arange(8), shuffle=False)
  assert set(batch['language_BT'][batch['example_BT'] > 0]) == {1}
  meta = dict(fed_sha256=run.phases[0].batch_sha256(0), judged=dict(held_out='0' * 64))
  with pytest.raises(UserError, match='heldout is not the text that this run has read'):
    first_state.check_last_batch(run, meta, 1)
  with pytest.raises(ValueError, match='has the languages fr, which .* has no ids for: .* de, en'):
    hold_out(('fr',))
  with pytest.raises(ValueError, match='heldout was made with another vocabulary, .* --vocab='):
    hold_out(('en',), sha256='1' * 64)


@mutation("('sha256', 'lowercase', 'accents')", "('sha256', 'accents')")
@mutation(' and not own.reads_as(vocabulary))', ')')
@mutation('not store.reads_as(given, given.meta)', 'False')
@mutation(' and cut(self) == cut(other)', '')
def test_a_text_that_other_rules_have_cut_is_refused(tmp_path):
  """The files are equal; what stands beside them, or was asked for, is not."""
  names = [f'[{name.upper()}]' for name in SPECIAL]
  text = '\n'.join([*names, 'a', '今', '今天', *(f'w{number}' for number in range(42))])
  sha256 = hashlib.sha256(text.encode()).hexdigest()

  def prepared(name, **settings):
    folder = tmp_path / name / 'vocab'
    write(folder.parent, drawn(20), sha256=sha256, lowercase=name != 'cased')
    folder.mkdir()
    (folder / 'vocab.txt').write_text(text)
    (folder / 'tokenizer_config.json').write_text(json.dumps(settings))
    return str(folder.parent)

  store, other = prepared('store'), prepared('other', tokenize_chinese_chars=False)
  key = 'evals.held_out.store'
  make(store, **{'data.vocab': f'{store}/vocab', key: prepared('again')})
  with pytest.raises(UserError, match='other was made with .* or other rules of it .* --vocab='):
    make(store, **{key: other})
  with pytest.raises(UserError, match='cased was made with .* or other rules of it'):
    make(store, **{key: prepared('cased')})
  with pytest.raises(UserError, match='or other rules of it .*leave config.data.vocab'):
    make(store, **{'data.vocab': f'{other}/vocab'})


@mutation('  if options.store:\n', '  if False:\n')
def test_a_set_may_be_judged_on_another_text(store, tmp_path):
  old = write(tmp_path / 'old', [[[42] * 6] * 4] * 8)
  run = make(store, **{'evals.held_out.store': str(old)})
  batch = held_out(run.phases[0]).rows.batch(np.arange(4), shuffle=False)
  assert 42 in batch['target_BP'][batch['weight_BP'] > 0]
  assert set(batch['target_BP'][batch['weight_BP'] > 0]) <= {42, *SPECIAL.values()}


@mutation("stores.setdefault(given.get('store'),", 'stores.setdefault(None,')
@mutation("key = f'{subject.key}.store'", "key = 'config.evals.store'")
@mutation("if before not in (sha256, '') and", 'if False and')
def test_another_text_is_bound_to_the_run_and_named_where_it_is_gone(store, tmp_path):
  key = 'evals.held_out.store'
  old = write(tmp_path / 'old', [[[42] * 6] * 4] * 8)
  run = make(store, **{key: str(old)})
  fed = run.phases[0].batch_sha256(0)
  meta = dict(fed_sha256=fed, judged=digests.texts_sha256(run))
  first_state.check_last_batch(run, meta, 1)
  shutil.rmtree(old)
  said = f'config.{key}: there is no store .*--config.{key}= .*--override={key}\\)'
  with pytest.raises(UserError, match=said):
    make(store, **{key: str(old)})
  write(old, [[[43] * 6] * 4] * 8)
  with pytest.raises(UserError, match=f'the text of config.{key} is not the text'):
    first_state.check_last_batch(make(store, **{key: str(old)}), meta, 1)
  first_state.check_last_batch(run, dict(fed_sha256=fed, held_out=''), 1)  # of earlier versions


def test_ids_of_more_languages_than_the_store_has(spoken):
  run = make(spoken, xlm, 32, **{'data.languages': ('ar', 'de', 'en')})
  assert run.abstract.variables['params']['embeddings']['language'].shape == (3, 64)
  batch = run.phases[2].examples.batch(np.arange(8), True)
  assert set(batch['language_BT'][batch['example_BT'] > 0]) == {1, 2}


def test_languages_that_do_not_fit_are_refused(store, spoken):
  with pytest.raises(ValueError, match="has no column 'language', .*--input=LANGUAGE=FILES"):
    make(store, xlm, 32)
  with pytest.raises(
    ValueError, match='languages en, which have no id: expected those of .*de, fr'
  ):
    make(spoken, xlm, 32, **{'data.languages': ('de', 'fr')})
  with pytest.raises(ValueError, match='ids for 1 languages, but there are 2, de, en: leave it at'):
    make(spoken, xlm, 32, **{'model.extra': (('language', 1),)})


def test_a_table_reads_the_column_of_the_store_where_the_plan_has_no_ids(store, spoken):
  extra = {'model.extra': (('language', 2),)}
  run = make(spoken, **extra)
  assert run.abstract.variables['params']['embeddings']['language'].shape == (2, 64)
  batch = run.phases[0].examples.batch(np.arange(16), shuffle=True)
  assert set(batch['language_BT'].ravel()) == {0, 1}
  with pytest.raises(ValueError, match="has no column 'language', .*--input=LANGUAGE=FILES"):
    make(store, **extra)


@pytest.fixture(scope='module')
def ended(tmp_path_factory):
  """A store whose vocabulary knows the end of a document, with another one held out."""
  path = tmp_path_factory.mktemp('ended') / 'store'
  for seed, (folder, count) in enumerate(((path, 200), (path / 'heldout', 60))):
    write(folder, drawn(count, seed), type='sentencepiece', special=dict(SPECIAL, eod=1))
  return path


@mutation('fallback, options.batch_size, examples_lib', 'fallback, config.batch_size, examples_lib')
def test_columns_are_as_many_as_the_rows_of_a_batch(store, ended):
  run = make(ended, xlnet, judged=4)
  phase = run.phases[0]
  rows = held_out(phase).rows
  assert phase.examples.spec.rows == 8 and rows.spec.rows == 4
  assert rows.batch(np.arange(8), shuffle=False)['start_B'].tolist() == [1] * 4 + [0] * 4
  assert run.abstract.carry[phase.name].hidden_BLMD.shape == (8, 2, 48, 64)
  with pytest.raises(ValueError, match='expected an even batch_size, got 9'):
    make(ended, xlnet, judged=4, batch_size=9)
  with pytest.raises(ValueError, match='config.data.mask.perm_size=24 must divide both parts'):
    make(ended, xlnet, judged=4, **{'data.mask.perm_size': 24})
  with pytest.raises(ValueError, match='has no eod: expected one that has them'):
    make(store, xlnet, judged=4)


@mutation('      # First, since', '      _check(part, mesh)\n      # First, since')
def test_a_model_of_another_kind_is_said_before_its_room(ended):
  config = xlnet.get_config('test')
  config.model = bert.get_config('test').model
  config.model.positions = 8
  with pytest.raises(ValueError, match="needs config.model.name='xlnet', got 'bert'"):
    setup.make_run(config, ended, jax.devices()[:1])


@mutation('state._replace(carry={})', 'state')
def test_a_carry_that_was_not_saved_starts_anew(ended, tmp_path):
  run = make(ended, xlnet, judged=4, save_carry=False)
  state = first_state.initial_state(run)
  used = state._replace(carry=jax.tree.map(lambda x: x + 1, state.carry))
  kept = checkpoints_lib.Checkpoints(tmp_path, 1, run.config.best)
  kept.save(1, first_state.saved(run, used), {}, wait=True)
  _, restored, _ = kept.restore(first_state.saved(run, run.abstract))
  kept.close()
  assert restored.carry == {}
  again = first_state.with_first_carries(run, restored)
  jax.tree.map(np.testing.assert_array_equal, again, state)
  assert jax.tree.map(lambda x: x.sharding, again.carry) == jax.tree.map(
    lambda x: x.sharding, run.abstract.carry
  )


def make_transformer_xl(store, **overrides):
  config = transformer_xl.get_config('test')
  config.evals.held_out.batch_size, config.evals.held_out.examples = 4, 32
  config.update_from_flattened_dict(overrides)
  return setup.make_run(config, store, jax.devices()[:1])


@mutation('    changed.model[name] = value\n', '')
def test_evaluation_has_rows_and_a_memory_of_its_own(ended):
  run = make_transformer_xl(ended)
  state = first_state.initial_state(run)
  assert state.carry['main'].hidden_BLMD.shape == (8, 2, 32, 64)
  assert held_out(run.phases[0]).carry().hidden_BLMD.shape == (4, 2, 64, 64)
  assert held_out(run.phases[0]).rows.length == 16
  found, _ = evaluation.run_due(run.evals(1), state.variables, 1, True)
  assert np.exp(found['eval/lm']) == pytest.approx(found['eval/perplexity'])
  assert set(found) <= evaluation.score_names(run.evals(1))
  vanilla = 'model.attention', 'model.mem_len', 'evals.held_out.model.mem_len'  # as the config says
  changes = dict(zip(vanilla, ('absolute', 0, 0), strict=True))
  make_transformer_xl(ended, **changes, **{'evals.held_out.model.same_length': False})


@pytest.mark.parametrize(
  'overrides, message',
  [
    ({'evals.held_out.model.mem_len': 8}, 'the model has room for 8:'),
    (
      {'model.attention': 'absolute', 'model.mem_len': 0},
      "what config.evals changes, model=.*'mem_len': 64.*expected config.model.mem_len=0, got 64",
    ),
  ],
)
def test_evaluation_that_does_not_fit_the_model_is_refused(ended, overrides, message):
  with pytest.raises(ValueError, match=message):
    make_transformer_xl(ended, **overrides)
