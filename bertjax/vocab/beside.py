"""Refuses a vocabulary that the files beside it would have transformers read with other ids:
config.json, tokenizer_config.json, special_tokens_map.json and added_tokens.json."""

import json
import pathlib
from typing import Any

from bertjax.errors import UserError
from bertjax.vocab import special
from bertjax.vocab.sentencepiece_model import CLEANED, FAIRSEQ, GENERIC

# The classes of transformers, without Fast, whose files we read as they do. Others read files of
# these names too, and cut text by rules that are not ours: CLIPTokenizer, CamembertTokenizer, ...
_BERT = (
  'BertTokenizer', 'DistilBertTokenizer', 'ElectraTokenizer', 'ErnieTokenizer',
  'MobileBertTokenizer', 'ConvBertTokenizer', 'LayoutLMTokenizer', 'SqueezeBertTokenizer',
  'MegatronBertTokenizer', 'NezhaTokenizer',
)  # fmt: skip
_BPE = ('RobertaTokenizer', 'GPT2Tokenizer', 'BartTokenizer', 'LongformerTokenizer')
_PIECES = (
  'AlbertTokenizer', 'XLNetTokenizer', 'T5Tokenizer', 'BigBirdTokenizer', 'DebertaV2Tokenizer',
  'FNetTokenizer', 'RemBertTokenizer', 'BertGenerationTokenizer',
)  # fmt: skip
_READ = {
  'wordpiece': _BERT,
  'bpe': _BPE,
  'fastbpe': ('XLMTokenizer',),
  'openai_bpe': ('OpenAIGPTTokenizer',),
  FAIRSEQ: ('XLMRobertaTokenizer',),
  'sentencepiece': _PIECES,
}
_FLAGS = dict(
  lowercase='do_lower_case', strip_accents='strip_accents',
  handle_chinese_chars='tokenize_chinese_chars',
)  # fmt: skip
_OF_LOWERCASE = ('lowercase', 'strip_accents', 'normalizer')
_CODE = 'a class with code of its own'
# These read no tokenizer.json that lies in their directory.
_PYTHON = (
  _CODE, 'BertJapaneseTokenizer', 'BertGenerationTokenizer', 'BertweetTokenizer', 'TapasTokenizer',
  'CanineTokenizer', 'CpmTokenizer', 'EsmTokenizer', 'FlaubertTokenizer', 'PhobertTokenizer',
  'ProphetNetTokenizer', 'RoCBertTokenizer', 'XLMTokenizer', 'BartphoTokenizer', 'CTRLTokenizer',
)  # fmt: skip
_SAVE = 'AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)'


def check(vocabulary: Any, asked: bool | None) -> None:
  """Refuses a `Vocabulary` that transformers would read with other ids, rules or special tokens;
  `asked` is the `lowercase` that the user wants."""
  file = vocabulary.files[0]
  settings = special.json_beside(file, special.CONFIG)
  name = _class(file, settings)
  _check_class(vocabulary, file, name)
  if name not in GENERIC and vocabulary.tokenizer:
    _check_rules(vocabulary, file, settings, name, asked)
  _check_added(vocabulary, file)
  _check_roles(vocabulary, file, settings)


def _class(file: pathlib.Path, settings: dict[str, Any]) -> str:
  """Finds the class that reads a directory, without Fast: said, or the model's; else ''."""
  config = special.json_beside(file, 'config.json')
  if 'AutoTokenizer' in (settings.get('auto_map') or ()):
    return _CODE
  if settings.get('do_basic_tokenize') is False and file.suffix == '.txt':
    return 'a class that cuts text at spaces alone, do_basic_tokenize=False,'
  if said := settings.get('tokenizer_class') or config.get('tokenizer_class'):
    return str(said).removesuffix('Fast')
  kind = str(config.get('model_type') or '').replace('-', '').replace('_', '')
  names = {name.lower(): name for names in _READ.values() for name in names}
  return kind and names.get(f'{kind.lower()}tokenizer', f'{kind}Tokenizer')


def _check_class(vocabulary: Any, file: pathlib.Path, name: str) -> None:
  whole = file.suffix == '.json' and file.name != 'vocab.json'
  known = () if whole else _READ[FAIRSEQ if file.name == FAIRSEQ else vocabulary.type]
  if vocabulary.type == 'bpe' and not whole:
    ends = sum(piece.endswith('</w>') for piece in vocabulary.pieces)
    name = 'a BPE of words that end in </w>' if ends > vocabulary.word_starts.sum() else name
  if name in _PYTHON if whole else name not in (*known, *GENERIC):
    raise UserError(
      f'{file} is of {name} that we cannot read: expected {", ".join(known) or "another class"}, '
      f'or a tokenizer.json. Save it with transformers as one: {_SAVE}'
    )


def _check_rules(vocabulary: Any, file: pathlib.Path, settings, name: str, asked) -> None:
  """Refuses rules that its class, which makes them anew beside the pieces, does not follow."""
  rust, ours = vocabulary.tokenizer, dict[str, Any](lowercase=vocabulary.lowercase)
  parts = dict(normalizer=rust.normalizer, pre_tokenizer=rust.pre_tokenizer)
  for key, part in parts.items():
    state = {} if part is None else json.loads(part.__getstate__())
    ours |= state | {key: state.get('type')}
  for key in ('continuing_subword_prefix', 'max_input_chars_per_word', 'end_of_word_suffix'):
    ours[key] = getattr(rust.model, key, None) or None
  theirs = _rules(name, settings)
  if not theirs and ours.get('normalizer') == 'BertNormalizer':
    theirs = {mine: settings[flag] for mine, flag in _FLAGS.items() if flag in settings}
  for rules in (ours, theirs):
    if rules.get('strip_accents', True) is None:
      rules['strip_accents'] = rules.get('lowercase')
  wrong = [
    f'{key}={ours.get(key)} and {_FLAGS.get(key, key)}={value}'
    for key, value in theirs.items()
    if ours.get(key) != value and (asked is None or key not in _OF_LOWERCASE)
  ]
  if wrong:
    raise UserError(
      f'{file} and the files beside it disagree: {"; ".join(wrong)}, and {name} follows the '
      f'latter, its own default where {special.CONFIG} says nothing. Make them agree there, or '
      'say PreTrainedTokenizerFast beside a tokenizer.json that is right'
    )


def _rules(name: str, settings: dict[str, Any]) -> dict[str, Any]:
  if name in _BERT:
    return dict(
      normalizer='BertNormalizer', pre_tokenizer='BertPreTokenizer', clean_text=True,
      continuing_subword_prefix='##', max_input_chars_per_word=100,
      lowercase=settings.get('do_lower_case', True), strip_accents=settings.get('strip_accents'),
      handle_chinese_chars=settings.get('tokenize_chinese_chars', True),
    )  # fmt: skip
  if name in _BPE:
    spaced = settings.get('add_prefix_space', False)
    whole = dict(normalizer=None, pre_tokenizer='ByteLevel', end_of_word_suffix=None)
    return dict(whole, add_prefix_space=spaced)
  if name in CLEANED.values():
    return dict(lowercase=settings.get('do_lower_case', name == 'AlbertTokenizer'))
  return {}


def _check_added(vocabulary: Any, file: pathlib.Path) -> None:
  wrong = {
    name: 'a new id' if i is None else i
    for name, (i, _) in special.added(file).items()
    if name not in vocabulary.index or i not in (None, vocabulary.index[name])
  }
  if wrong:
    raise UserError(
      f'{file}: transformers adds {wrong} to it, which are not these ids of the file. Save the '
      f'tokenizer with transformers as tokenizer.json: {_SAVE}'
    )


def _check_roles(vocabulary: Any, file: pathlib.Path, settings: Any) -> None:
  said = {**special.json_beside(file, 'special_tokens_map.json'), **settings}
  wrong = []
  for role in special.ROLES:
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
