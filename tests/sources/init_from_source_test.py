"""init_from with a whole model: its fields, its vocabulary, its parameters."""

import ast
import re

import cases
import jax
import numpy as np
import pytest
import torch_models
from adopting import adopt, begun, claim
from mutation import mutation
from slow_imports import torch, transformers

from bertjax import dotted
from bertjax.checkpoint import resume
from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.export import parity
from bertjax.objectives import mlm
from bertjax.sources import init_from, model_fields, runs, subtrees
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary
from configs import bert, electra, modernbert

SPECIAL = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')


def write_vocabulary(path, pieces):
  path.mkdir(exist_ok=True)
  (path / 'vocab.txt').write_text('\n'.join([*SPECIAL, *pieces]) + '\n')
  return load_vocabulary(path)


@pytest.fixture(scope='module')
def theirs(tmp_path_factory):
  path = tmp_path_factory.mktemp('theirs')
  torch_models.save('BertForMaskedLM', path)
  write_vocabulary(path, [f'w{i}' for i in range(211 - len(SPECIAL))])
  return path


def config_of(source, **more):
  c = bert.get_config('test')
  c.init_from = source
  c.update(more)
  return c


def first_variables(c):
  return cases.variables(mlm.make(c).init, cases.batch([[8]], 8))


@pytest.mark.parametrize('form', [lambda p: f'hf:{p}', lambda p: (f'hf:{p}',)], ids=['text', 'one'])
@mutation('        model[key] = value\n', '        pass\n')
def test_a_model_brings_its_fields_and_its_vocabulary(form, theirs, tmp_path):
  given = config_of(form(theirs))
  c, said, _ = adopt(given, tmp_path)
  assert c.model.layers == 3 and c.model.norm_eps == 1e-12 and c.model.positions == 45
  assert c.model.dropout == given.model.dropout and c.model.labels == (('next', 2),)
  assert load_vocabulary(c.data.vocab).sha256 == load_vocabulary(theirs).sha256
  assert given.data.vocab == '' and given.model.layers == 2
  assert 'layers 2 -> 3' in said[0] and 'vocabulary' in said[1]


@mutation(
  'vocabulary = str(pathlib.Path(workdir, resume.VOCAB))', "vocabulary = kept['vocabulary']"
)
@mutation("    config['data']['vocab'] = str(path.with_name(VOCAB))", "    config['data']['vocab']")
def test_a_run_that_was_moved_has_its_vocabulary_with_it(theirs, tmp_path):
  given, first = config_of(f'hf:{theirs}'), tmp_path / 'first'
  first.mkdir()
  assert claim(first, given).data.vocab == str(first / 'vocab')
  second = first.rename(tmp_path / 'second')
  for again in (given, resume.stored_config(second)):  # resumed, and evaluated
    moved, said, _ = adopt(again, second, ())
    assert moved.data.vocab == str(second / 'vocab') and not any('override' in x for x in said)
    assert not resume.changes(resume.stored(second), moved, 5)
  given.data.vocab = str(theirs)
  assert adopt(given, second)[0].data.vocab == str(theirs)


@mutation('source or _for_run(name, config))', '_for_run(name, config))')
def test_parameters_come_with_it_and_heads_that_it_lacks_are_named(theirs, tmp_path, monkeypatch):
  c, _, source = adopt(config_of(f'hf:{theirs}'), tmp_path)
  variables = first_variables(c)
  monkeypatch.setattr(init_from, 'open_source', None)  # it has been opened
  new, said = begun(c, load_vocabulary(theirs), variables, source)
  assert said[-1].startswith('Made anew') and said[-1].endswith('next, pooler')
  state = transformers.BertForMaskedLM.from_pretrained(theirs).state_dict()
  kernel = new['params']['encoder']['layers']['ffn_up']['kernel']
  for layer in range(3):
    weight = state[f'bert.encoder.layer.{layer}.intermediate.dense.weight']
    np.testing.assert_array_equal(kernel[layer], weight.numpy().T)
  for path, old in dotted.flat(variables['params'], mark='/').items():
    if path.startswith(('next', 'pooler')):
      np.testing.assert_array_equal(dotted.flat(new['params'], mark='/')[path], old)


@mutation('  if not remap:\n', '  if False:\n')
def test_another_vocabulary_is_refused_or_its_shared_pieces_move(theirs, tmp_path):
  """The same size, other pieces: nothing in the shapes tells them apart."""
  pieces = [f'w{i}' for i in range(150, 206)] + [f'neu{i}' for i in range(150)]
  other = write_vocabulary(tmp_path / 'other', pieces)
  c, _, source = adopt(config_of(f'hf:{theirs}'), tmp_path)
  variables = first_variables(c)
  with pytest.raises(UserError, match='was trained with another vocabulary .* --remap_vocab'):
    init_from.loader(c, other, variables, source)
  c.remap_vocab = True
  new, said = begun(c, other, variables)
  assert said[0].startswith('61 of 211 pieces are in the vocabulary')
  state = transformers.BertForMaskedLM.from_pretrained(theirs).state_dict()
  table = state['bert.embeddings.word_embeddings.weight'].numpy()
  word = np.asarray(new['params']['embeddings']['word'])
  np.testing.assert_array_equal(word[:5], table[:5])
  np.testing.assert_array_equal(word[5:61], table[5 + 150 :])
  mean_D, zeros_D = table.mean(0), np.zeros(table.shape[1])
  np.testing.assert_allclose(word[61:211], np.tile(mean_D, (150, 1)), atol=1e-7)
  np.testing.assert_array_equal(word[211:], np.tile(zeros_D, (len(word) - 211, 1)))
  strange = write_vocabulary(tmp_path / 'strange', [f'neu{i}' for i in range(206)])
  with pytest.raises(UserError, match='knows none of the 211 pieces of this vocabulary'):
    init_from.loader(c, strange, variables)


@mutation('[[] if unknown in ids else ids for', '[ids for')
def test_a_word_begins_as_the_mean_of_what_it_was_cut_into(tmp_path):
  theirs = write_vocabulary(tmp_path / 'theirs', ['ab', '##cd', '##e', 'e', 'z'])
  ours = write_vocabulary(tmp_path / 'ours', ['z', 'abcde', '##ecd', 'new'])
  rows, (said,) = subtrees.moved('it', theirs, ours, True, 'key')
  table = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
  ours = dict(word=jax.numpy.zeros((9, 3)))
  tree = subtrees.taken(dict(word=table), ours, (), 'it:embeddings', rows)(ours)['word']
  np.testing.assert_array_equal(tree[:6], table[[0, 1, 2, 3, 4, 9]])
  means = [table[[5, 6, 7]].mean(0), table[[7, 6]].mean(0), table.mean(0)]
  np.testing.assert_allclose(tree[6:], means, rtol=1e-6)
  assert '2 begin as the mean of the rows that it cuts them into, 1 as that of all' in said


@mutation('space + text.strip', 'text.strip')
@mutation('text if known and not begins', 'text if begins')
@mutation("_UNKNOWN = '\\ue000'", "_UNKNOWN = ''")
@mutation("_NO_TEXT = '\\ufffd'", "_NO_TEXT = '?'")
@mutation("piece if bytewise and _NO_TEXT in text else ''", "''")
def test_a_piece_is_cut_as_text_has_it(tmp_path):
  """A word with the space before it, which byte-level BPE reads; the inside of one without the
  sign of a space that SentencePiece adds, and as the ##-pieces of WordPiece."""
  text, vocabularies = ['abba cab bac 漢 ab?', '漢 abba bacab cabba'] * 60, {}
  for name, kind, size in [('bpe', 'bpe', 275), ('few', 'bpe', 262), ('unigram', 'unigram', 18)]:
    (tmp_path / name).mkdir()
    TRAINERS[kind](text, size, False, tmp_path / name)
    vocabularies[name] = load_vocabulary(tmp_path / name)
  letters = ['a', '##b', '##a', 'bacab', '##cab', '☀']
  vocabularies['wordpiece'] = write_vocabulary(tmp_path / 'wordpiece', letters)

  def cuts(old, new):
    theirs, ours = vocabularies[old], vocabularies[new]
    rows, _ = subtrees.moved('it', theirs, ours, True, 'key')
    named = zip(rows.new, rows.cut, strict=True)
    return {ours.pieces[i]: [theirs.pieces[j] for j in ids] for i, ids in named}

  of_bpe = cuts('bpe', 'wordpiece')
  assert ''.join(of_bpe['bacab']) == 'Ġbacab' and ''.join(of_bpe['##cab']) == 'cab'
  assert not of_bpe['☀'][0].startswith('Ġ')  # BERT sets it apart, with a space or without
  of_unigram = cuts('unigram', 'wordpiece')
  assert ''.join(of_unigram['bacab']) == '▁bacab' and ''.join(of_unigram['##cab']) == 'cab'
  of_wordpiece = cuts('wordpiece', 'bpe')
  assert of_wordpiece['Ġabba'] == ['a', '##b', '##b', '##a'] and of_wordpiece['b'] == ['##b']
  of_few = cuts('few', 'bpe')  # a part of a character is no text, but the bytes are there
  assert of_few['cab'] == ['c', 'ab'] and of_few['¼¢'] == ['¼', '¢']
  assert cuts('wordpiece', 'bpe')['¼¢'] == []


def test_a_model_of_another_kind_or_place_is_refused(theirs, tmp_path):
  c = electra.get_config('test')
  c.init_from = f'hf:{theirs}'
  with pytest.raises(UserError, match="config.model.name='bert', the config has 'electra'"):
    adopt(c, tmp_path)
  for name in ('runs/none', 'hf:nowhere'):
    with pytest.raises(UserError, match='config.init_from: there is nothing at'):
      adopt(config_of(name), tmp_path)


def test_a_run_that_has_begun_needs_the_model_no_more(theirs, tmp_path):
  given = config_of(f'hf:{theirs}')
  begun = claim(tmp_path, given)
  c, _, source = adopt(config_of('hf:gone'), tmp_path)
  assert c.model == begun.model and c.data.vocab == begun.data.vocab and source is None


@mutation('if config.data.vocab and not config.remap_vocab:', 'if False:')
def test_another_vocabulary_is_refused_before_its_text_is_read(theirs, tmp_path):
  write_vocabulary(tmp_path, [f'v{i}' for i in range(206)])
  c = config_of(f'hf:{theirs}')
  c.data.vocab = str(tmp_path)
  with pytest.raises(UserError, match='another vocabulary .*or give --remap_vocab'):
    init_from.brought(c)
  c.remap_vocab = True
  assert init_from.brought(c).source is not None


def test_the_remedy_for_a_run_of_another_format_takes_its_parameters(tmp_path):
  c = config_of(())
  c.model.vocab_size = 211
  variables = first_variables(c)
  theirs = jax.tree.map(lambda x: x + 1, variables['params'])
  runs.write_run(tmp_path, c, theirs, None, {})
  (tmp_path / 'config.json').write_text('{"format": 5, "config": {}}')
  with pytest.raises(UserError, match='format 5') as error:
    init_from.open_source(str(tmp_path))
  remedy = ast.literal_eval(re.search(r'--config\.init_from="(.*)"', str(error.value))[1])
  new, _ = begun(config_of(remedy), None, variables)
  jax.tree.map(np.testing.assert_array_equal, new['params'], theirs)


@mutation('new = new[np.asarray(layers)]', 'new = new[: len(layers)]')
def test_layers_of_a_model_of_transformers(theirs):
  c = config_of((('hf:' + str(theirs), 'params/encoder', 'params/encoder', (0, 2)),))
  source = init_from.open_source('hf:' + str(theirs))
  c.model.update({k: source.model[k] for k in ('width', 'heads', 'ffn', 'positions', 'types')})
  c.model.vocab_size = 211
  variables = first_variables(c)
  new, _ = begun(c, source.vocabulary, variables)
  jax.tree.map(
    lambda ours, whole: np.testing.assert_array_equal(ours, whole[np.array([0, 2])]),
    new['params']['encoder'], source.params()['encoder'],
  )  # fmt: skip
  other = write_vocabulary(theirs.with_name('other'), [f'v{i}' for i in range(206)])
  with pytest.raises(UserError, match='was trained with another vocabulary'):
    init_from.loader(c, other, variables)


def odd(path, case, **fields):
  """A directory of transformers whose fields without a shape are not those of the recipe."""
  config = torch_models.config_of(case, **torch_models.SHAPES, **fields)
  torch.manual_seed(0)
  getattr(transformers, case)(config).save_pretrained(path)
  return f'hf:{path}'


@pytest.fixture(scope='module')
def roberta(tmp_path_factory):
  fields = dict(hidden_act='relu', layer_norm_eps=1e-3, pad_token_id=3)
  return odd(tmp_path_factory.mktemp('roberta'), 'RobertaModel', **fields)


def parts_of(*named):
  return tuple((name, f'params/{path}', f'params/{path}', ()) for name, path in named)


@mutation('return Brought(fields, said=[', 'return Brought({}, said=[')
def test_subtrees_say_what_their_model_says(tmp_path):
  """The states of a BertModel with ReLU and another eps, taken in two parts."""
  name = odd(tmp_path / 'odd', 'BertModel', hidden_act='relu', layer_norm_eps=1e-2)
  given = config_of(parts_of((name, 'embeddings'), (name, 'encoder')))
  given.model.update(dict(layers=3, width=36, heads=3, ffn=52, positions=45, types=3))
  given.model.update(dict(vocab_size=211, labels=()))
  config, (said,), _ = adopt(given, tmp_path)
  assert 'activation' in said and 'norm_eps' in said
  new, _ = begun(config, None, first_variables(config))
  inputs = parity.inputs_of(config.model, 0)
  net = transformers.BertModel.from_pretrained(tmp_path / 'odd').eval()
  tensor = lambda x: torch.tensor(x, dtype=torch.long)
  with torch.no_grad():
    out = net(
      tensor(inputs.token_BT), tensor(inputs.example_BT), tensor(inputs.type_BT),
      output_hidden_states=True,
    )  # fmt: skip
  real_BT = inputs.example_BT > 0
  found = parity.ours(config.model, new['params'], inputs).hidden
  for ours, theirs in zip(found, out.hidden_states[1:], strict=True):
    np.testing.assert_allclose(ours, theirs.numpy()[real_BT], atol=2e-5)


@pytest.mark.parametrize(
  'path, brings',
  [
    ('encoder/layers', dict(activation='relu', norm_eps=1e-3)),
    ('embeddings', dict(norm_eps=1e-3, position_offset=4)),
    ('embeddings/norm', dict(norm_eps=1e-3)),
    ('embeddings/word', {}),
    ('pooler', {}),  # its tanh is that of the recipe
  ],
)
@mutation(
  'if not any(place.startswith(here) or here.startswith(place) for place in places):',
  'if not places:',
  case='embeddings/word-brings3',
)
def test_a_subtree_brings_the_fields_that_it_is_read_by(path, brings, roberta, tmp_path):
  given = config_of(parts_of((roberta, path)))
  config, said, _ = adopt(given, tmp_path)
  sections.complete(given)
  changed = {k: x for k, x in config.model.items() if given.model[k] != x}
  assert changed == brings and len(said) == bool(brings)


@mutation('local_theta distances clamp_len', 'local_theta clamp_len')
def test_an_encoder_brings_how_it_knows_distances():
  given = modernbert.get_config('test')
  given.model.distances = 'alibi'  # has no parameters either
  given.init_from = parts_of(('any', 'encoder'))
  fields, _ = model_fields.of_parts(given.init_from, dict(any=dict(distances='rotary')))
  (said,) = model_fields.set_fields(given.model, fields)
  assert given.model.distances == 'rotary' and said == "distances 'alibi' -> 'rotary'"


def test_subtrees_of_models_that_disagree_are_refused(tmp_path):
  one = odd(tmp_path / 'one', 'BertModel', layer_norm_eps=1e-3)
  other = odd(tmp_path / 'other', 'BertModel', layer_norm_eps=1e-5)
  given = config_of(parts_of((one, 'embeddings'), (other, 'encoder')))
  with pytest.raises(UserError, match='other:params/encoder is read with config.model.norm_eps=1e'):
    adopt(given, tmp_path)
  given = config_of(parts_of((one, 'embeddings/word'), (other, 'encoder')))
  assert adopt(given, tmp_path)[0].model.norm_eps == 1e-5


@mutation("record.get('facts', {})", '{}')
def test_subtrees_of_runs_too_and_what_they_set_stays_set(tmp_path):
  c = config_of(())
  c.model.update(dict(vocab_size=211, activation='relu', norm_eps=1e-3))
  (tmp_path / 'run').mkdir()
  runs.write_run(tmp_path / 'run', c, first_variables(c)['params'], None, {})
  checkpoint = tmp_path / 'run' / 'checkpoints' / '0'
  for name in (str(tmp_path / 'run'), str(checkpoint)):
    given = config_of(parts_of((name, 'encoder')))
    begun = adopt(given, tmp_path / 'none')[0]
    assert begun.model.activation == 'relu' and begun.model.norm_eps == 1e-3
  claim(tmp_path, given)
  again = config_of(parts_of(('gone', 'encoder')))
  config, _, source = adopt(again, tmp_path)
  assert config.model == begun.model and source is None
  assert [*resume.changes(resume.stored(tmp_path), config, 5)] == ['init_from']
  again.init_from, again.model.norm_eps = given.init_from, 1e-6
  assert adopt(again, tmp_path, ['model.norm_eps'])[0].model.norm_eps == 1e-6
  (tmp_path / 'run' / 'config.json').unlink()
  _, (said,), _ = adopt(given, tmp_path / 'none')
  assert said.startswith(f'{checkpoint} comes without its config.model, which is')
