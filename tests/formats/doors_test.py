"""A directory's vocabulary has the ids of transformers, or is refused, whatever opens it."""

import functools
import json
import pathlib
import shutil
import tempfile

import pytest
from mutation import mutation
from slow_imports import sentencepiece, transformers
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from bertjax.errors import UserError
from bertjax.export import importing
from bertjax.formats.tokenizer import FIXED_TEXTS
from bertjax.sources import init_from
from bertjax.use import load
from bertjax.vocab import vocabulary
from bertjax.vocab.train import TRAINERS
from bertjax.vocab.vocabulary import load_vocabulary

PROSE = [*FIXED_TEXTS[:8], 'The cats sat on the mats, and the dogs sat beside a cat. [E1]'] * 20


def change(path, **keys):
  content = json.loads(path.read_text()) if path.is_file() else {}
  path.write_text(json.dumps(content | keys))


@functools.cache
def trained(kind):
  """The files of a vocabulary, but for tokenizer_config.json."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder)
    TRAINERS[kind](PROSE, 400 if kind != 'unigram' else 120, False, path)
    files = {file.name: file.read_bytes() for file in path.iterdir()}
  return {name: data for name, data in files.items() if name != 'tokenizer_config.json'}


def write(path, kind='wordpiece', whole=False, **settings):
  """A tiny model and a vocabulary, as tokenizer.json or in the files that were before it."""
  path.mkdir()
  for name, data in trained(kind).items():
    if whole or name != 'tokenizer.json':
      (path / name).write_bytes(data)
  size = load_vocabulary(path).size
  of_model = 'Roberta' if kind == 'bpe' else 'Bert'
  config = getattr(transformers, f'{of_model}Config')(
    vocab_size=size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=16, max_position_embeddings=64,
  )  # fmt: skip
  getattr(transformers, f'{of_model}ForMaskedLM')(config).save_pretrained(str(path))
  if settings:
    change(path / 'tokenizer_config.json', **settings)


def rewrite(path, **parts):
  """Changes parts of a tokenizer.json."""
  tokenizer = Tokenizer.from_file(str(path / 'tokenizer.json'))
  for name, part in parts.items():
    setattr(tokenizer, name, part)
  tokenizer.save(str(path / 'tokenizer.json'))


def of_few_pieces(path):
  write(path, tokenizer_class='BertTokenizer', do_lower_case=False)
  (path / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n')


def of_too_many(path):
  write(path, tokenizer_class='BertTokenizer', do_lower_case=False)
  with open(path / 'vocab.txt', 'a') as file:
    file.write('more\npieces\n')


def of_another_pad(path):
  write(path, 'bpe')
  change(path / 'config.json', pad_token_id=3)


def of_another_kind(path):
  """vocab.json and merges.txt, as of CLIP, whose words end in </w>."""
  write(path, 'bpe')
  pieces = [f'{a}{b}{end}' for end in ('', '</w>') for a in 'abcdefghijklm' for b in ('', *'aeiou')]
  index = {piece: i for i, piece in enumerate(('<s>', '<pad>', '</s>', '<unk>', '<mask>', *pieces))}
  (path / 'vocab.json').write_text(json.dumps(index))
  (path / 'merges.txt').write_text('#version: 0.2\nb a\nb a</w>\n')
  change(path / 'config.json', vocab_size=len(index))


def with_rules(path, name, kind='wordpiece', settings=None, **parts):
  write(path, kind, whole=True, tokenizer_class=name, **(settings or {}))
  rewrite(path, **parts)


def beside(path, name, content, **settings):
  write(path, tokenizer_class='BertTokenizer', do_lower_case=False, **settings)
  (path / name).write_text(json.dumps(content))


CASED = dict(do_lower_case=False)
TAKEN = {
  'cased': lambda path: write(path, tokenizer_class='BertTokenizer', **CASED),
  'whole': lambda path: write(path, whole=True, tokenizer_class='BertTokenizerFast', **CASED),
  'spaced': lambda path: write(
    path, 'bpe', tokenizer_class='RobertaTokenizer', add_prefix_space=True
  ),
  'accents': lambda path: write(
    path,
    tokenizer_class='BertTokenizer',
    do_lower_case=True,
    strip_accents=False,
    tokenize_chinese_chars=False,
  ),
  'backend': lambda path: with_rules(
    path,
    'PreTrainedTokenizerFast',
    settings={
      f'{role}_token': f'[{role.upper()}]' for role in ('cls', 'sep', 'pad', 'mask', 'unk')
    },
    pre_tokenizer=pre_tokenizers.WhitespaceSplit(),
  ),
  'a piece': lambda path: beside(
    path, 'special_tokens_map.json', dict(additional_special_tokens=['cat'])
  ),
}
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=True)
REFUSED = {
  'japanese': (
    lambda path: write(path, tokenizer_class='BertJapaneseTokenizer'), 'BertJapaneseTokenizer that',
  ),
  'own code': (
    lambda path: write(path, whole=True, auto_map=dict(AutoTokenizer=['x.Own', None])), 'own that'
  ),
  'class of the model': (lambda path: write(path, 'unigram'), 'BertTokenizer that we cannot read'),
  'words': (lambda path: write(path, do_basic_tokenize=False), 'do_basic_tokenize=False'),
  'unsaid': (lambda path: write(path), 'lowercase=False and do_lower_case=True'),
  'flags': (
    lambda path: write(path, whole=True, tokenizer_class='BertTokenizer', do_lower_case=True),
    'lowercase=False and do_lower_case=True',
  ),
  'accents': (
    lambda path: with_rules(
      path, 'BertTokenizer', settings=CASED,
      normalizer=normalizers.BertNormalizer(lowercase=False, strip_accents=True),
    ), 'strip_accents=True and strip_accents=False',
  ),
  'no normaliser': (
    lambda path: with_rules(path, 'BertTokenizer', settings=CASED, normalizer=normalizers.NFC()),
    'normalizer=NFC and normalizer=BertNormalizer',
  ),
  'space': (
    lambda path: with_rules(path, 'RobertaTokenizer', 'bpe', pre_tokenizer=BYTES),
    'add_prefix_space=True and add_prefix_space=False',
  ),
  '</w>': (of_another_kind, 'a BPE of words that end in </w>'),
  'added': (lambda path: beside(path, 'added_tokens.json', {'[E9]': 400}), 'adds .*E9.*400'),
  'new': (
    lambda path: beside(path, 'special_tokens_map.json', dict(additional_special_tokens=['[E9]'])),
    r"adds {'\[E9\]': 'a new id'}",
  ),
  'roles': (
    lambda path: beside(path, 'special_tokens_map.json', dict(mask_token='[E1]')),
    r"mask_token '\[E1\]', ours '\[MASK\]'",
  ),
  'mask': (
    lambda path: beside(path, 'special_tokens_map.json', dict(mask_token=dict(content='[M]'))),
    r"'\[M\]', ours",
  ),
  'decoder': (
    lambda path: write(
      path, tokenizer_class='BertTokenizer', added_tokens_decoder={'5': dict(content='x')}, **CASED
    ),
    "adds {'x': 5}",
  ),
  'pad': (of_another_pad, r'pad_token_id=3, .* and the tokenizer beside it \[PAD\] at 1'),
  'few': (of_few_pieces, 'has 5 ids, the word table .* rows'),
  'many': (of_too_many, 'ids, the word table .* rows'),
}  # fmt: skip


def through_each_door(path):
  """Yields what opens a directory as a function, and whether it has the model in sight."""
  yield lambda: load_vocabulary(path), False  # prepare, vocab, config.data.vocab, seqio Tasks
  yield lambda: load.find(path).vocabulary, True  # embed, predict, fill_mask, bertjax.Model
  yield lambda: init_from.open_source(f'hf:{path}').vocabulary, True  # init_from, teachers

  def converted():
    importing.import_model(f'hf:{path}', path.with_name('run'))
    return vocabulary.read_vocabulary(path.with_name('run') / 'vocab')

  yield converted, True


@mutation('dict(formats.settings_of(self.files[0]), do', 'dict(do', case='spaced')
@mutation("spaced = bool(settings.get('add_prefix_space', False))", 'spaced = False', case='spaced')
@pytest.mark.parametrize('name', TAKEN)
def test_a_directory_has_the_ids_of_transformers_at_every_door(name, tmp_path):
  TAKEN[name](tmp_path / 'dir')
  texts = [*FIXED_TEXTS, 'The cats and acat']
  theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / 'dir'))
  wanted = [theirs(text, add_special_tokens=False)['input_ids'] for text in texts]
  for opened, _ in through_each_door(tmp_path / 'dir'):
    assert [ids.tolist() for ids in opened().encode_batch(texts)] == wanted


@mutation('  beside.check(found, lowercase)\n', '', case='japanese')
@mutation('if ours.get(key) != value and', 'if not key and', case='flags')
@mutation('if name in _PYTHON if whole', 'if False if whole', case='own code')
@mutation('if ends > vocabulary.word_starts.sum() else', 'if not ends else', case='</w>')
@mutation('not rows / 2 <= vocabulary.size <= rows', 'not vocabulary.size <= rows', case='few')
@mutation('name not in (*known, *GENERIC)', 'name is None', case='japanese')
@mutation('if pad in (None, uncounted) or', 'if True or', case='pad')
@mutation('  _check_roles(vocabulary, file, settings)\n', '', case='roles')
@mutation('  _check_added(vocabulary, file)\n', '', case='added')
@pytest.mark.parametrize('name', REFUSED)
def test_what_would_have_other_ids_is_refused_at_every_door(name, tmp_path):
  make, said = REFUSED[name]
  make(tmp_path / 'dir')
  for opened, has_model in through_each_door(tmp_path / 'dir'):
    if has_model or name not in ('pad', 'few', 'many'):
      with pytest.raises(UserError, match=said):
        opened()
  assert not (tmp_path / 'run').exists()


@mutation('or not sentencepiece_json.defined(vocabulary)', 'or True')
def test_the_bare_model_of_xlnet_has_the_ids_of_sentencepiece(shared, tmp_path):
  config = transformers.XLNetConfig(vocab_size=32_000, d_model=16, n_layer=1, n_head=2, d_inner=16)
  transformers.XLNetLMHeadModel(config).save_pretrained(str(tmp_path / 'dir'))
  shutil.copy(shared / 'tokenizers/xlnet/spiece.model', tmp_path / 'dir')
  original = sentencepiece.SentencePieceProcessor(str(tmp_path / 'dir/spiece.model'))
  texts = ['Irish-born, £5.', '($1.50) "Quotes"']
  for opened, _ in through_each_door(tmp_path / 'dir'):
    assert [ids.tolist() for ids in opened().encode_batch(texts)] == original.encode(texts)
