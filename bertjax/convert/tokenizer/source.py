"""Tokenizers from transformers: which file of a directory is read, and what would be read wrong."""

import json
import pathlib
from typing import Any

from bertjax.convert.tokenizer import layouts
from bertjax.data.vocab import fastbpe
from bertjax.data.vocab.formats import CONFIG
from bertjax.data.vocab.sentencepiece_model import FAIRSEQ
from bertjax.data.vocab.vocabulary import Vocabulary, load_vocabulary
from bertjax.errors import UserError

# Files, the first that is there is read; and the classes of transformers, without Fast, whose
# tokenizer it is. Others read files of these names too, and cut text by rules that are not ours:
# BertJapaneseTokenizer, CLIPTokenizer, CamembertTokenizer, PegasusTokenizer, ...
_BACKENDS = ('', 'PreTrainedTokenizer', 'TokenizersBackend', 'PythonBackend')
_BERT = (
  'BertTokenizer', 'DistilBertTokenizer', 'ElectraTokenizer', 'ErnieTokenizer',
  'MobileBertTokenizer', 'ConvBertTokenizer', 'LayoutLMTokenizer', 'SqueezeBertTokenizer',
)  # fmt: skip
_BPE = ('RobertaTokenizer', 'GPT2Tokenizer', 'BartTokenizer', 'LongformerTokenizer')
_PIECES = ('AlbertTokenizer', 'XLNetTokenizer', 'T5Tokenizer', 'BigBirdTokenizer')
_READ = {
  'vocab.txt': _BERT,
  'vocab.json': _BPE,
  FAIRSEQ: ('XLMRobertaTokenizer',),
  'spiece.model': _PIECES,
}
_XLM = 'XLMTokenizer'
_OTHER = ('sentencepiece.model', 'spm.model', 'tokenizer.model', 'bpe.codes', 'tekken.json')


def read(directory: pathlib.Path) -> pathlib.Path | None:
  """The file of a directory of transformers from which `load_vocabulary` makes its tokenizer.

  Args:
    directory: with tokenizer.json; vocab.txt; vocab.json and merges.txt, of byte-level BPE or of
      XLM; spiece.model; or sentencepiece.bpe.model.

  Returns:
    The file; None where the directory has no tokenizer.

  Raises:
    UserError: a tokenizer that we would read with other ids, other rules or other special tokens.
  """
  settings = _json(directory / CONFIG)
  file = directory / 'tokenizer.json'
  if not file.is_file():
    found = [directory / name for name in (*_READ, *_OTHER) if (directory / name).is_file()]
    if not found:
      return None
    file = found[0]
    _check_class(file, settings)
  vocabulary = load_vocabulary(file)
  if file.name == 'tokenizer.json':
    _check_agreement(file, settings)
  _check_added(file, vocabulary, settings)
  _check_roles(file, vocabulary, settings)
  return file


def _json(file: pathlib.Path) -> dict[str, Any]:
  if not file.is_file():
    return {}
  try:
    return json.loads(file.read_text(encoding='utf-8'))
  except ValueError as error:
    raise UserError(f'{file} cannot be read as JSON: {error}') from error


def _check_class(file: pathlib.Path, settings: dict[str, Any]) -> None:
  """Refuses files of a class that reads them as we do not."""
  config = _json(file.parent / 'config.json')
  said = settings.get('tokenizer_class') or config.get('tokenizer_class') or ''
  name = said.removesuffix('Fast')
  known = _READ.get(file.name, ())
  if file.name == 'vocab.json' and fastbpe.MASK in _json(file):
    known = (_XLM,)
  if file.name not in _READ or name not in (*known, *_BACKENDS):
    raise UserError(
      f'{file} is of {said or "a tokenizer"} that we cannot read: expected '
      f'{", ".join(known) or ", ".join(_READ)}, or a tokenizer.json. Save it with transformers as '
      'one: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)'
    )
  if settings.get('do_basic_tokenize') is False:
    raise UserError(
      f'{file.parent / CONFIG} says do_basic_tokenize=False, text that is cut at spaces alone: we '
      'read WordPiece with its basic tokenizer only'
    )


def _check_agreement(file: pathlib.Path, settings: dict[str, Any]) -> None:
  """Refuses a tokenizer.json that the class beside it would not follow."""
  name = settings.get('tokenizer_class') or 'the class of the model'
  if name.removesuffix('Fast') in _BACKENDS:
    return
  normalizer = _json(file)['normalizer'] or {}
  if normalizer.get('type') != 'BertNormalizer':
    return
  pairs = dict(
    lowercase='do_lower_case',
    strip_accents='strip_accents',
    handle_chinese_chars='tokenize_chinese_chars',
  )
  wrong = [
    f'{ours}={normalizer[ours]} and {theirs}={settings[theirs]}'
    for ours, theirs in pairs.items()
    if theirs in settings and settings[theirs] != normalizer[ours]
  ]
  if wrong:
    raise UserError(
      f'{file} and {CONFIG} beside it disagree: {"; ".join(wrong)}, and '
      f'{name} follows the latter. Make them agree'
    )


def _check_added(file: pathlib.Path, vocabulary: Vocabulary, settings: dict[str, Any]) -> None:
  """Refuses added tokens that are not in the file."""
  added = {name: i for name, i in _json(file.parent / 'added_tokens.json').items()}
  for i, token in settings.get('added_tokens_decoder', {}).items():
    added[token['content']] = int(i)
  pieces = vocabulary.pieces
  wrong = {n: i for n, i in added.items() if i >= len(pieces) or pieces[i] != n}
  if wrong:
    raise UserError(
      f'{file}: transformers adds {wrong} to it, which are not these ids of the file. Save the '
      'tokenizer with transformers as tokenizer.json: '
      'AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)'
    )


def _check_roles(file: pathlib.Path, vocabulary: Vocabulary, settings: dict[str, Any]) -> None:
  """Refuses special tokens of other names than those that we know."""
  said = {**_json(file.parent / 'special_tokens_map.json'), **settings}
  wrong = []
  for role in layouts.ROLES:
    value = said.get(f'{role}_token')
    name = value.get('content') if isinstance(value, dict) else value
    i = vocabulary.special[role]
    ours = None if i is None else vocabulary.pieces[i]
    # One that we have none of is missed by whoever needs it: GPT-2 calls its only token unknown.
    if name is not None and name != ours and (ours is not None or name not in vocabulary.pieces):
      wrong.append(f'{role}_token {name!r}, ours {ours!r}')
  if wrong:
    raise UserError(
      f'{file}: the files beside it say {"; ".join(wrong)}. The special tokens of our vocabularies '
      'go by their names: rename them in all files'
    )
