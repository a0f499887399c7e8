"""Symbols that people add are tokens of the text, as in transformers; the five roles never are."""

import json

import pytest
from mutation import mutation
from slow_imports import sentencepiece, transformers
from tokenizers import AddedToken

from bertjax.errors import UserError
from bertjax.examples.labelled.common.texts import word_rows
from bertjax.formats import tokenizer
from bertjax.vocab import kept, special
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

PROSE = ['the cat sat on the mat, [e] / and <e> a cat 12'] * 60
# In the middle of words, one within another, several in a row, and with spaces of many kinds.
TEXTS = (
  'the cat', '[E1] the cat [/E1] sat', 'the[E1]cat[/E1]sat', '[E1][E1]', ' [E1]  ', '[E1]cat',
  'the [E12] cat[E1]2', 'a <left> cat', 'a <right> cat', 'a word and subwords',
  '[e1] [ E1 ] THE CAT [E1', 'a [unused0] cat', 'the [E1', '',
)  # fmt: skip
ADDED = (
  '[E1]', '[/E1]', '[E12]', AddedToken('<left>', lstrip=True, normalized=False),
  AddedToken('<right>', rstrip=True, normalized=False), AddedToken('word', single_word=True),
)  # fmt: skip


@mutation(
  '  if not os.path.lexists(path):\n    return {}', '  if not path.is_file():\n    return {}'
)
def test_a_json_file_whose_link_leads_nowhere_is_not_taken_for_absent(tmp_path):
  assert special.json_beside(tmp_path / 'vocab.txt', 'bert_config.json') == {}
  (tmp_path / 'bert_config.json').symlink_to('blobs/0')
  with pytest.raises(UserError, match='bert_config.json is a link to blobs/0, which leads to no'):
    special.json_beside(tmp_path / 'vocab.txt', 'bert_config.json')


def saved_by_transformers(path, kind):
  """What `add_tokens` and `save_pretrained` of transformers leave."""
  TRAINERS[kind](PROSE, 300, False, path / 'bare')
  theirs = transformers.AutoTokenizer.from_pretrained(str(path / 'bare'))
  theirs.add_tokens(list(ADDED), special_tokens=True)
  theirs.add_tokens(['subword'])
  theirs.save_pretrained(str(path / 'dir'))


def beside(path, files_of):
  """A vocab.txt of which pieces are called tokens by files beside it, of the id of [E1]."""
  TRAINERS['wordpiece'](PROSE, 60, True, path / 'bare')
  pieces = (path / 'bare/vocab.txt').read_text().splitlines()
  lines = [*pieces, '[E1]', '[/E1]', '[unused0]']
  (path / 'dir/vocab.txt').write_text('\n'.join(lines) + '\n')
  files = files_of(lines.index('[E1]'))
  files.setdefault('tokenizer_config.json', {})['tokenizer_class'] = 'BertTokenizer'
  for name, content in files.items():
    (path / 'dir' / name).write_text(json.dumps(content))


def control_symbols(path):
  """A SentencePiece model that gives its control symbols of no text."""
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(PROSE), model_prefix=str(path / 'dir/spiece'), vocab_size=40,
    control_symbols=['[CLS]', '[SEP]', '[MASK]', '[E1]', '[/E1]'], pad_id=0, unk_id=1, bos_id=-1,
    eos_id=-1, hard_vocab_limit=False, minloglevel=2,
  )  # fmt: skip
  config = dict(
    tokenizer_class='AlbertTokenizer', do_lower_case=False,
    additional_special_tokens=['[E1]', '[/E1]'],
  )  # fmt: skip
  (path / 'dir/tokenizer_config.json').write_text(json.dumps(config))


def decoder(i):
  token = dict(content='[E1]', special=True, normalized=False)
  return {'tokenizer_config.json': dict(added_tokens_decoder={str(i): token})}


def special_tokens_map(i):
  del i
  return {'special_tokens_map.json': dict(additional_special_tokens=['[E1]', '[unused0]'])}


def extra(i):
  del i
  return {'tokenizer_config.json': dict(extra_special_tokens=dict(entity='[E1]'))}


WRITERS = {
  'wordpiece': lambda path: saved_by_transformers(path, 'wordpiece'),
  'bpe': lambda path: saved_by_transformers(path, 'bpe'),
  'sentencepiece': control_symbols,
  'decoder': lambda path: beside(path, decoder),
  'map': lambda path: beside(path, special_tokens_map),
  'extra': lambda path: beside(path, extra),
  'added': lambda path: beside(path, lambda i: {'added_tokens.json': {'[E1]': i}}),
}


@pytest.fixture(params=WRITERS)
def directory(request, tmp_path):
  for name in ('bare', 'dir'):
    (tmp_path / name).mkdir()
  WRITERS[request.param](tmp_path)
  return tmp_path / 'dir'


@mutation('token.special and token.content not in roles', 'not roles')
@mutation('in added(file).items() if name in index}', 'in added(file).items() if not name}')
@mutation("if kind == 'sentencepiece':", "if kind == 'none':")
@mutation("['added_tokens_decoder']", "['forgotten']", file='bertjax/vocab/vocabulary.py')
@mutation('starts[[*symbols, *(', 'starts[[*(')
def test_added_symbols_have_the_ids_of_transformers(directory, tmp_path):
  theirs = transformers.AutoTokenizer.from_pretrained(str(directory))
  ours = load_vocabulary(directory)
  texts = TEXTS
  if ours.type == 'sentencepiece':  # unknown letters next to each other are one id to it alone
    texts = ('[E1] the cat [/E1] sat', 'the[E1]cat[/E1]sat', '[E1][E1]', '[E1]cat', 'the cat')
  wanted = [theirs(text, add_special_tokens=False)['input_ids'] for text in texts]
  assert [ids.tolist() for ids in ours.encode_batch(texts)] == wanted
  mark = ours.pieces.index('[E1]')
  assert wanted[texts.index('the[E1]cat[/E1]sat')].count(mark) == 1
  assert ours.word_starts[mark]
  assert ours.count_spelled([b'[E1] the cat']) == 0
  kept.keep(ours, tmp_path / 'kept')
  again = load_vocabulary(tmp_path / 'kept')
  assert [ids.tolist() for ids in again.encode_batch(texts)] == wanted
  (row,) = word_rows([['[E1]', 'cat', '[E1]cat']], ours, 64)
  assert row.id_n.tolist().count(mark) == 2
  if ours.type != 'sentencepiece':
    token_n, length_n, begin_n, end_n = ours.encode_spans(texts)
    assert token_n.tolist() == sum(wanted, [])
    text, first = 'the[E1]cat[/E1]sat', sum(map(len, wanted[: texts.index('the[E1]cat[/E1]sat')]))
    at = first + wanted[texts.index(text)].index(mark)
    assert text[begin_n[at] : end_n[at]] == '[E1]' and length_n.tolist() == [*map(len, wanted)]


@mutation('coder | dict(tokenizer=tokenizer)', 'coder | dict(tokenizer=reader)', case='wordpiece')
@pytest.mark.parametrize('directory', ['wordpiece', 'bpe', 'sentencepiece'], indirect=True)
def test_an_export_has_the_symbols(directory, tmp_path):
  ours = load_vocabulary(directory)
  tokenizer.write(ours, tmp_path / 'export', 'bert', 64)
  before, theirs = (
    transformers.AutoTokenizer.from_pretrained(str(each))
    for each in (directory, tmp_path / 'export')
  )
  mark = ours.pieces.index('[E1]')
  assert theirs.added_tokens_decoder[mark].special == before.added_tokens_decoder[mark].special
  text = 'the [E1] cat[E1]'
  wanted = [theirs(text, add_special_tokens=False)['input_ids']]
  assert [ids.tolist() for ids in ours.encode_batch([text])] == wanted
  again = load_vocabulary(tmp_path / 'export')
  assert [ids.tolist() for ids in again.encode_batch([text])] == wanted


@pytest.mark.parametrize(
  'name, content',
  [
    ('tokenizer_config.json', dict(added_tokens_decoder=['[E1]'])),
    ('tokenizer_config.json', dict(added_tokens_decoder={'5': dict(special=True)})),
    ('tokenizer_config.json', dict(additional_special_tokens=[5])),
    ('added_tokens.json', {'[E1]': 'five'}),
    ('special_tokens_map.json', ['[E1]']),
  ],
)
def test_files_of_another_form_are_refused_by_name(tmp_path, name, content):
  (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n[E1]\n')
  (tmp_path / name).write_text(json.dumps(content))
  with pytest.raises(UserError, match='tokenizer_config.json|special_tokens_map.json: expected'):
    load_vocabulary(tmp_path)
