"""Special tokens around a text and a pair of texts, in each family of transformers."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from bertjax import json_files, models
from bertjax.errors import UserError
from bertjax.vocab import special, whole_words
from bertjax.vocab.sentencepiece_model import FAIRSEQ
from bertjax.vocab.vocabulary import Vocabulary

ROLES = ('cls', 'sep', 'pad', 'mask', 'unk')

# What stands around a text and around a pair, by role; behind a colon the token type, if not 0.
_BERT = ('cls A sep', 'cls A sep B:1 sep:1')
_ROBERTA = ('cls A sep', 'cls A sep sep B sep')
_LIKE_BERT = 'bert albert bigbird electra electra_net ernie spanbert deberta_v2'
_GPT = ('gpt2', 'openai_gpt')
_LIKE_ROBERTA = ('roberta', 'xlm_roberta', 'bart', 'longformer')
TUNED = '_tuned'  # behind the name of a family that has other tokens around a text with labels
LAYOUTS: dict[str, tuple[str, str]] = {
  **dict.fromkeys(_LIKE_BERT.split(), _BERT),
  **dict.fromkeys(_LIKE_ROBERTA, _ROBERTA),
  'xlnet': ('A sep cls:2', 'A sep B:1 sep:1 cls:2'),
  't5': ('A sep', 'A sep B sep'),
  **dict.fromkeys(('transformer_xl', *_GPT), ('A', 'A B')),
  **dict.fromkeys(
    ('xlm', 'distilbert', 'modernbert', *(name + TUNED for name in _GPT)),
    ('cls A sep', 'cls A sep B sep'),
  ),
}
PADDED_LEFT = ('xlnet', 'transformer_xl')


class Between(NamedTuple):
  """The separators and segments that tell the texts of a pair apart."""

  separators: int  # between them
  segments: bool  # whether the second one has token types of its own


def known(family: str) -> str:
  """Returns a family as LAYOUTS names it. Raises UserError if it is not there."""
  name = family.replace('-', '_')
  if name not in LAYOUTS:
    raise UserError(
      f'the tokenizers of the family {family!r} are not known to us: expected one of '
      f'{", ".join(sorted(LAYOUTS))}'
    )
  return name


def of_model(model: Any) -> str:
  """Returns the name in LAYOUTS of the family of a `config.model`."""
  return with_labels(model.family) if models.build(model).frame == 'end' else model.family


def with_labels(family: str) -> str:
  """Returns the name in LAYOUTS of a family whose texts have labels."""
  return family + TUNED if family + TUNED in LAYOUTS else family


def bare_texts(directory: pathlib.Path, family: str) -> list[str]:
  """Returns a line to say if the tokenizer of a model with labels puts nothing around a text, where
  ours puts what LAYOUTS has."""
  file = directory / 'tokenizer.json'
  processor = json_files.read(file).get('post_processor') if file.is_file() else None
  if with_labels(family) == family or 'TemplateProcessing' in json.dumps(processor):
    return []
  return [f'tokenizer: texts without tokens around them; here they are {LAYOUTS[family + TUNED]}']


def separators(family: str) -> int:
  """Returns the number of separators between the texts of a pair; 1 for an unknown family."""
  between = LAYOUTS.get(with_labels(family), _BERT)[1].partition('A')[2].partition('B')[0]
  return between.split().count('sep')


def between(vocabulary: Vocabulary) -> Between | None:
  """Returns how the files of a vocabulary from elsewhere tell the texts of a pair apart; None where
  they put nothing between them, or no [SEP]."""
  if vocabulary.ends_lines:
    return None
  if rust := vocabulary.tokenizer:
    single, pair = (rust.num_special_tokens_to_add(is_pair) for is_pair in (False, True))
    if pair > single:
      types = special.json_beside(vocabulary.files[0], special.CONFIG).get('model_input_names')
      told = types is None or 'token_type_ids' in types
      return Between(pair - single, told and any(rust.encode('a', 'a').type_ids))
  name, roles = vocabulary.files[0].name, vocabulary.special
  if name == FAIRSEQ or vocabulary.type == 'bpe' and roles['cls'] != roles['sep']:
    return Between(2, False)
  return Between(1, True) if name == 'vocab.txt' else None


def inputs(around: Sequence[Sequence[tuple[str, int]]]) -> list[str]:
  """Returns the names of a model's inputs, as tokenizers of transformers spell them; `around` is
  what `of` returned."""
  types = ['token_type_ids'] if any(number for _, number in around[1]) else []
  return ['input_ids', *types, 'attention_mask']


def of(
  vocabulary: Vocabulary, family: str, told: Between | None = None
) -> list[list[tuple[str, int]]]:
  """Returns the tokens around a text and around a pair, whose texts are told apart so, or as those
  of the family: lists of (role, A or B; token type). Raises UserError if the vocabulary lacks a
  role."""
  texts = LAYOUTS[family]
  if family == 'transformer_xl' and vocabulary.ends_lines:
    texts = ('A eos', 'A eos B eos')
  parts = [[part.partition(':') for part in text.split()] for text in texts]
  layouts = [[(name, int(number or 0)) for name, _, number in row] for row in parts]
  if told:
    names = [name for name, _ in layouts[1]]
    first, second = layouts[1][: names.index('A') + 1], layouts[1][names.index('B') :]
    typed = [(name, max(number, 1) * told.segments) for name, number in second]
    layouts[1] = [*first, *[('sep', 0)] * told.separators, *typed]
  needed = {role for row in layouts for role, _ in row} - {'A', 'B'}
  missing = sorted(role for role in needed if vocabulary.special.get(role) is None)
  if missing:
    raise UserError(
      f'tokenizers of the family {family!r} put {", ".join(sorted(needed))} around a text, and '
      f'{vocabulary.files[0]} has no {", ".join(missing)}: export without the tokenizer'
    )
  return layouts


def names(vocabulary: Vocabulary, family: str) -> dict[str, str]:
  """Returns the special tokens as transformers calls them."""
  found = {
    f'{role}_token': vocabulary.pieces[i]
    for role, i in vocabulary.special.items()
    if role in ROLES and i is not None
  }
  cls, sep = found.get('cls_token'), found.get('sep_token')
  if family == 'xlm':
    # XLM trains with </s> at both ends, where XLMTokenizer puts its bos_token.
    found['bos_token'] = found['cls_token']
  elif family in (*_LIKE_ROBERTA, 'albert') and cls and sep:
    found |= dict(bos_token=cls, eos_token=sep)
  elif family == 'xlnet' and {'<s>', '</s>'} <= {*vocabulary.pieces}:
    found |= dict(bos_token='<s>', eos_token='</s>')
  elif sep == '<|endoftext|>':  # GPT-2's only one
    found |= dict(bos_token=sep, eos_token=sep, unk_token=sep)
  elif family.removesuffix(TUNED) in ('t5', *_GPT) and sep:
    found |= dict(eos_token=sep) | (dict(bos_token=cls) if cls else {})
  elif vocabulary.type in whole_words.OF_WORDS:
    found['eos_token'] = whole_words.END[vocabulary.type]
  return found
