"""`bertjax.Model` against the classes of transformers that hold what its run exports."""

import pickle
import subprocess
import sys

import cases
import jax
import numpy as np
import pytest
import safetensors.numpy
import used_models
from mutation import mutation
from processes import environment
from slow_imports import torch
from used_models import BERT, STREAM, XLNET, numbers

import bertjax
from bertjax.errors import UserError
from bertjax.formats import directory
from bertjax.sources import runs
from bertjax.use.texts import Texts
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

CLS, SEP, MASK = 2, 3, 4
TWO = ['w9 [MASK] w10 w77 [MASK] w8', 'w100 [MASK]', 'w12 w13 w14 w15 w16 w17 w18 w19 w20 [MASK]']


@pytest.fixture(scope='session')
def made(tmp_path_factory):
  """name -> `used_models.Pair`, each made once."""
  known = {}

  def get(name, *args, **fields):
    if name not in known:
      known[name] = used_models.make(tmp_path_factory.mktemp(name), *args, **fields)
    return known[name]

  return get


@pytest.fixture(scope='session')
def bert(made):
  return made('bert', 'bert', 'BertForPreTraining')


@pytest.fixture(scope='session')
def electra(made):
  return made(
    'electra', 'electra', 'ElectraForPreTraining', embedding_width=32, generator='uniform'
  )


@pytest.fixture(scope='session')
def xlnet(made):
  return made('xlnet', 'xlnet', 'XLNetLMHeadModel', XLNET)


def load(pair, **options):
  return used_models.load(pair.workdir, **options)


def framed(text, mask=MASK):
  """[CLS] ids [SEP], for a text of words."""
  ids = [mask if word == '[MASK]' else int(word[1:]) for word in text.split()]
  return [CLS, *ids, SEP]


def theirs(twin, ids, **keys):
  with torch.no_grad():
    return twin(torch.tensor([ids]), output_hidden_states=True, **keys)


@mutation('  with root_logger_as_it_is():\n    from', '  if True:\n    from')
@mutation('with registry.trusting(trusted), root_logger_as_it_is():', 'if True:')
def test_logging_of_a_program_stays_as_it_is(bert):
  code = (
    'import logging, sys, bertjax\n'
    'bertjax.Model\nassert not logging.root.handlers\n'
    'bertjax.Model.load(sys.argv[1])\nassert not logging.root.handlers\n'
  )
  subprocess.run([sys.executable, '-c', code, bert.workdir], env=environment(), check=True)


@mutation('  def __reduce__(self) -> Any:', '  def _reduce(self) -> Any:')
def test_a_model_shows_where_it_is_from_and_is_not_pickled(bert):
  model = load(bert)
  assert repr(model) == f'bertjax.Model.load({str(model.source)!r})'
  with pytest.raises(TypeError, match='load it there'):
    pickle.dumps(model)


@mutation('    blanks.append(len(ids))\n', '    blanks.append(len(ids) + 1)\n')
@mutation('isinstance(top, int | np.integer)', 'isinstance(top, int)')
def test_blanks_are_filled_as_the_twin_fills_them(bert):
  found = load(bert).fill(TWO, top=np.int64(7))
  for text, blanks in zip(TWO, found, strict=True):
    ids = framed(text)
    prob_TV = theirs(bert.twin, ids).prediction_logits[0].softmax(-1)
    columns = [column for column, number in enumerate(ids) if number == MASK]
    assert len(blanks) == len(columns)
    for column, candidates in zip(columns, blanks, strict=True):
      prob_C, id_C = prob_TV[column].topk(7)
      assert [c.id for c in candidates] == id_C.tolist()
      np.testing.assert_allclose([c.probability for c in candidates], prob_C, rtol=1e-4)
      assert [c.token for c in candidates] == [
        [*BERT, f'w{c.id}'][min(c.id, 5)] for c in candidates
      ]


def test_a_generator_fills_blanks(made):
  pair = made('generator', 'electra')
  assert len(load(pair).fill(TWO, top=3)[0][1]) == 3


@mutation('    id_n[column] = mask\n', '    id_n[column] += 0 * mask\n')
def test_pseudo_perplexity_is_that_of_a_loop(bert):
  texts = ['w9 w10 w77 w8', 'w100', '', 'w5 w6 w7 w8 w9 w10 w11']
  for text, score in zip(texts, load(bert).score(texts), strict=True):
    ids, total = framed(text), 0.0
    for column in range(1, len(ids) - 1):
      hidden = [*ids[:column], MASK, *ids[column + 1 :]]
      logits_V = theirs(bert.twin, hidden).prediction_logits[0, column]
      total += float(logits_V.log_softmax(-1)[ids[column]])
    assert score.tokens == len(numbers(text))
    np.testing.assert_allclose(score.log_likelihood, total, rtol=1e-5)
    expected = np.exp(-total / score.tokens) if score.tokens else None
    assert score.perplexity == (expected and pytest.approx(expected, rel=1e-5))


@mutation('sentence.id_n, [column - 1 for column in columns]', 'sentence.id_n, list(columns)')
def test_a_stream_gives_the_likelihood_of_the_twin(made):
  pair = made('stream', 'transformer_xl', 'XLNetLMHeadModel', STREAM, mem_len=0)
  texts = ['w9 w10 w77 w8', 'w100 w5 w6 w7 w8 w9 w10 w11 w12 w13']
  for text, score in zip(texts, load(pair).score(texts), strict=True):
    ids = [0, *numbers(text), 0]  # each line ends with <eos>, as the one before did
    logprob_TV = theirs(pair.twin, ids).logits[0].log_softmax(-1)
    total = sum(float(logprob_TV[c, ids[c + 1]]) for c in range(len(ids) - 1))
    assert score.tokens == len(ids) - 1
    np.testing.assert_allclose(score.log_likelihood, total, rtol=1e-4)


def test_a_causal_bert_sees_nothing_behind(made):
  model = load(made('causal', 'bert', attend='causal', labels=()))
  one, two = model.score(['w9 w10', 'w9 w10 w77'])
  assert (one.tokens, two.tokens) == (2, 3) and two.log_likelihood < one.log_likelihood
  first, longer = model.embed(['w9', 'w9 w10 w77'], 'none')
  np.testing.assert_allclose(first[:2], longer[:2], atol=1e-5)
  with pytest.raises(UserError, match='reads from left to right and sees nothing behind a blank'):
    model.fill(['w9 [MASK]'])
  with pytest.raises(UserError, match="expected pool='mean' or 'none'"):
    model.embed(['w9'], 'first')


def test_replaced_tokens_are_those_of_the_twin(electra):
  texts = ['w9 w10 w77 w8', 'w100']
  for text, tokens in zip(texts, load(electra).replaced(texts), strict=True):
    prob_T = theirs(electra.twin, framed(text)).logits[0].sigmoid()[1:-1]
    np.testing.assert_allclose([t.replaced for t in tokens], prob_T, rtol=1e-4)
    assert [t.token for t in tokens] == text.split()


@mutation('order_k_BT=2 * hidden_BT', 'order_k_BT=0 * hidden_BT')
def test_xlnet_fills_blanks_that_nobody_sees(xlnet):
  for text, blanks in zip(TWO, load(xlnet).fill(TWO), strict=True):
    ids = [MASK if w == '[MASK]' else int(w[1:]) for w in text.split()] + [3, 2]  # <sep> <cls>
    columns = [column for column, number in enumerate(ids) if number == MASK]
    unseen = torch.zeros(1, len(ids), len(ids))
    unseen[:, :, columns] = 1
    mapping = torch.zeros(1, len(columns), len(ids))
    mapping[0, range(len(columns)), columns] = 1
    types = torch.tensor([[0] * (len(ids) - 1) + [2]])
    out = theirs(xlnet.twin, ids, perm_mask=unseen, target_mapping=mapping, token_type_ids=types)
    for prob_V, candidates in zip(out.logits[0].softmax(-1), blanks, strict=True):
      prob_C, id_C = prob_V.topk(5)
      assert [c.id for c in candidates] == id_C.tolist()
      np.testing.assert_allclose([c.probability for c in candidates], prob_C, rtol=1e-4)


@mutation("(batch['example_BT'] > 0)", "(batch['example_BT'] > -1)", file='bertjax/use/nets.py')
@mutation("return out['hidden_LBTD'][layer - 1]", "return out['hidden_LBTD'][layer]")
@pytest.mark.parametrize(
  'name',
  ['bert', 'xlnet', *(pytest.param(n, marks=pytest.mark.full) for n in ('electra', 'albert'))],
)
def test_vectors_are_the_hidden_states_of_the_twin(name, made, request):
  if name == 'albert':
    pair = made('albert', 'albert', 'AlbertForPreTraining')
  else:
    pair = request.getfixturevalue(name)
  texts, model = ['w9 w10 w77 w8', 'w100', *used_models.texts(5, 30)], load(pair)
  layers = (-1, 0, 1)
  tokens = model.embed(texts, 'none', layers)
  means, firsts = model.embed(texts, 'mean', 1), model.embed(texts, 'first')
  close = lambda got, want: np.testing.assert_allclose(got, want, atol=2e-5)
  for number, text in enumerate(texts):
    ids = [*numbers(text), 3, 2] if name == 'xlnet' else framed(text)
    types = torch.tensor([[0] * (len(ids) - 1) + [2]]) if name == 'xlnet' else None
    hidden = [each[0] for each in theirs(pair.twin, ids, token_type_ids=types).hidden_states]
    for found, layer in zip(tokens[number], layers, strict=True):
      close(found, hidden[layer])
    close(means[number], hidden[1].mean(0))
    close(firsts[number], hidden[-1][-1 if name == 'xlnet' else 0])
  np.testing.assert_array_equal(model.embed(texts, layer=-2), means)


@mutation('if not tops & {head.path, head.through}', 'if True')
def test_a_directory_gives_what_its_run_gives(bert, tmp_path):
  run = runs.open_run(bert.workdir)
  directory.write(tmp_path, run.params(), run.config.model, run.vocabulary, 'float32', 1 << 40)
  ours, same = load(bert), used_models.load(tmp_path)
  assert ours.fill(TWO) == same.fill(TWO)
  with pytest.raises(UserError, match='is no run, it has one model alone: got step=1'):
    bertjax.Model.load(tmp_path, step=1)

  tensors = safetensors.numpy.load_file(tmp_path / 'model.safetensors')
  kept = {name: x for name, x in tensors.items() if not name.startswith('cls.predictions')}
  safetensors.numpy.save_file(kept, tmp_path / 'model.safetensors')
  headless = used_models.load(tmp_path)
  np.testing.assert_array_equal(headless.embed(['w9 w10']), ours.embed(['w9 w10']))
  for call in (headless.fill, headless.score):
    with pytest.raises(UserError, match="config.model.name='bert', has no head for words"):
      call(['w9 [MASK]'])


@mutation('    results[index] = tree', '    results[place] = tree')
@mutation('list(texts)\n  for number, text in enumerate', 'texts\n  for number, text in enumerate')
def test_any_mesh_and_any_company_give_the_same(bert):
  """Of a mesh as it is typed, too, and of texts that come one by one."""
  texts = used_models.texts(37, 12)
  alone, whole = load(bert), load(bert, mesh=dict(data=2, fsdp=2, tensor=2))
  expected = np.concatenate([alone.embed([text]) for text in texts[:2]])
  for model in (alone, whole, load(bert, mesh='1,1,8')):
    found = model.embed(text for text in texts)
    np.testing.assert_allclose(found[:2], expected, atol=1e-5)
  blank = [f'{text} [MASK]' for text in texts]
  one, eight = ([c.id for t in m.fill(blank) for b in t for c in b] for m in (alone, whole))
  assert one == eight


def test_nothing_is_compiled_after_the_warm_up(bert):
  model, compiled = load(bert), []
  listen = lambda name, *_, **__: compiled.append(name) if name.endswith('compile_duration') else 0
  use = lambda texts: (
    model.embed(texts),
    model.fill([f'{text} [MASK]' for text in texts]),
    model.score(texts[:200]),
  )
  texts = used_models.texts(400, 8)
  # The same lengths, with other words and in another order.
  other = [' '.join(reversed(text.split())) for text in [*texts[199::-1], *texts[:199:-1]]]
  use(texts)
  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    use(other)
    assert not compiled
    model.embed(['w9'], 'first')
    assert compiled  # the listener hears
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


def test_what_is_too_long_is_refused_by_number_or_cut(bert, caplog):
  model, long = load(bert), ' '.join(['w9'] * 90)
  with pytest.raises(UserError, match='text 12 has 92 tokens.* takes 64.*--cut'):
    model.embed(['w9', long], first=11)
  found = model.embed([long, long], 'none', cut=True)
  assert [len(each) for each in found] == [64, 64]
  assert sum('it is cut to 64' in line for line in caplog.messages) == 1
  assert model.tokens([long], cut=True)[0][-2:] == ['w9', '[SEP]']
  with pytest.raises(UserError, match=r'text 1 has its \[MASK\] after the 64 tokens'):
    model.fill([f'{long} [MASK]'], cut=True)


def test_what_cannot_work_is_refused(bert, made, tmp_path):
  model, languages = load(bert), made('languages', 'xlm', extra=(('language', 3),))
  for call, message in (
    (lambda: model.embed('w9'), "list of texts, got the text 'w9': write"),
    (lambda: model.fill(['[MASK]', None]), 'list of texts, got None in place 2'),
    (lambda: model.fill(['[MASK]', 'w9']), 'text 2 has nothing to fill in'),
    (lambda: model.embed(['w9'], layer=3), '2 layers: expected layer from 0.* got 3'),
    (lambda: model.embed(['w9'], 'means'), "did you mean 'mean'"),
    (lambda: model.fill(['[MASK]'], top=0), 'top=0'),
    (lambda: model.fill(['[MASK]'], top=2.5), 'top=2.5'),
    (lambda: model.embed(['w9', 'w9\ud83d']), r"2 is no text in UTF-8: character 3 is '\\ud83d'"),
    (lambda: load(bert, language='klingon'), "has no table of languages.* got 'klingon'"),
    (lambda: bertjax.Model.load(tmp_path), 'no file .*config.json: expected the config of a run'),
    (lambda: load(languages), 'table of languages: expected language, one of 0 to 2'),
    (lambda: load(languages, language=3), 'language=3: expected one of 0 to 2'),
  ):
    with pytest.raises(UserError, match=message):
      call()


@mutation('self.net.words(v, batch)), top, size)', 'self.net.words(v, batch)), top, None)')
def test_a_blank_is_filled_with_what_the_vocabulary_has(made):
  """A table with more rows than words, as of the weights of mBERT beside an English vocabulary."""
  model = load(made('wide', 'bert', vocab_size=cases.VOCAB + 300))
  ids = {each.id for text in model.fill(TWO, top=100) for blank in text for each in blank}
  assert len(ids) > 50 and max(ids) < cases.VOCAB


@mutation('return self.vocabulary.decode([number])', 'return self.piece(number)')
def test_a_token_of_bytes_is_read_as_text(tmp_path):
  TRAINERS['bpe'](['日本 大学 日本'] * 20, 300, False, tmp_path)
  vocabulary = load_vocabulary(tmp_path)
  texts = Texts(tmp_path, vocabulary, None, None)
  (found,) = vocabulary.encode_batch(['日本 大学'])
  assert [texts.text(number) for number in found] == ['日本', ' 大学']
  assert texts.text(vocabulary.special['mask']) == '<mask>' and texts.text(10**6) == ''
