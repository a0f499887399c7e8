"""Compares the tokenizer of a directory of transformers with ours, by ids."""

import pathlib
from typing import Any

from bertjax.formats.tokenizer import layouts, sentencepiece_json
from bertjax.vocab.vocabulary import Vocabulary

# Of what tokenizers are known to differ on. None spells a special token; and none has a letter
# three times in a row, for SentencePiece may cut 000 as 00 0 or 0 00, of which neither is better.
FIXED_TEXTS = (
  'The quick brown fox jumps over the lazy dog.',
  '  Leading, trailing   and double  spaces  ',
  'A tab\there,\u00a0a no-break space, \u3000an ideographic one',
  "\"Quotes\", 'single', “curly” ‘ones’, «guillemets» and ``two'' of LaTeX",
  "don't, it's, we'll: o'clock; rock'n'roll",
  '$5.00, £3.50, €20, ¥1,024, ₽7 and 50% off!',
  '1,234,567.89 in 2026-11-22, 3/4 x 2^10 = ~768; 9, 10,',
  'U.S.A. (a-b) [c] {d} <e> — f – g … h/i\\j|k & @l #m _n_ *o* `p`',
  'café naïve Ångström São Tomé Łódź',
  'cafe\u0301 nai\u0308ve decomposed',
  'UPPER Lower ΑΣ ΣΑΣ, ΟΔΥΣΣΕΥΣ. İstanbul straße',
  'Привет, мир! Ёлка и йод.',
  '今天天气很好,我们去公园。「引号」、2026年',
  '日本語のテキスト、カタカナとｶﾀｶﾅ。',
  '한국어 텍스트입니다.',
  'مرحبا بالعالم، كيف الحال؟',
  'नमस्ते दुनिया, हिन्दी में पाठ।',
  'สวัสดีชาวโลก น้ำ',
  'Tiếng Việt có dấu, được không?',
  '😀 emoji 👍🏽 and ❤️ 🇩🇪 👨‍👩‍👧‍👦',
  'ﬁne Ｆｕｌｌ ｗｉｄｔｈ ½ ² ㎏ ™',
  'zero\u200bwidth, soft\u00adhyphen and \ufeffmark',
  'Pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism',
  'abcdefghijklmnopqrstuvwxyz' * 5,
  'http://example.com/a?b=c&d=%20e#f me@example.org',
  ' ',
)


def differences(
  vocabulary: Vocabulary, directory: pathlib.Path, family: str, told: layouts.Between | None = None
) -> list[str]:
  """Returns a line for each difference between our ids and those that AutoTokenizer gives for a
  directory: of FIXED_TEXTS, the special tokens, a spelled mask, and the tokens that the family has
  around a text and a pair."""
  import transformers

  theirs = transformers.AutoTokenizer.from_pretrained(str(directory))
  found = _of_roles(vocabulary, theirs)
  # Of a .model the class cuts user-defined pieces out of the text before the model sees it, with
  # other ids; ours are those of sentencepiece, with which such a model was trained.
  if (directory / 'tokenizer.json').is_file() or not sentencepiece_json.defined(vocabulary):
    found = _of_texts(vocabulary, theirs) + found
  if len(theirs) > vocabulary.size:
    found.append(f'size: transformers has {len(theirs)} ids, we have {vocabulary.size}')
  return found + _around(vocabulary, theirs, layouts.known(family), told)


def _of_texts(vocabulary: Vocabulary, theirs: Any) -> list[str]:
  # Ours end each line of words, characters and bytes; theirs do that around the text.
  ours = [ids.tolist() for ids in vocabulary.encode_batch(FIXED_TEXTS)]
  got = [
    theirs(text, add_special_tokens=vocabulary.ends_lines)['input_ids'] for text in FIXED_TEXTS
  ]
  return [
    f'{text!r}: ours {a}, transformers {b}'
    for text, a, b in zip(FIXED_TEXTS, ours, got, strict=True)
    if a != b
  ]


def _of_roles(vocabulary: Vocabulary, theirs: Any) -> list[str]:
  ours = {role: vocabulary.special.get(role) for role in layouts.ROLES}
  got = {role: getattr(theirs, f'{role}_token_id') for role in layouts.ROLES}
  found = [
    f'{role}: ours {i}, transformers {got[role]}'
    for role, i in ours.items()
    if i is not None and i != got[role]
  ]
  mask = ours['mask']
  if mask is None or mask != got['mask']:
    return found
  text = f'The {theirs.mask_token} sat on {theirs.mask_token}.'
  ids = theirs(text, add_special_tokens=False)['input_ids']
  if ids.count(mask) != 2:
    found.append(f'{text!r}: expected the mask {mask} twice, transformers {ids}')
  return found


def _around(
  vocabulary: Vocabulary, theirs: Any, family: str, told: layouts.Between | None
) -> list[str]:
  """Lists differences between the tokens that transformers and the family put around texts."""
  texts = ('A text', 'and another')
  ends = vocabulary.ends_lines
  ours = [ids.tolist()[: len(ids) - ends] for ids in vocabulary.encode_batch(texts)]
  parts = dict(zip('AB', ours, strict=True))
  found = []
  around = layouts.of(vocabulary, family, told)
  for given, layout in zip((texts[:1], texts), around, strict=True):
    rows = [(parts.get(name) or [vocabulary.special[name]], number) for name, number in layout]
    wanted = dict(input_ids=[i for ids, _ in rows for i in ids])
    if 'token_type_ids' in layouts.inputs(around):
      wanted['token_type_ids'] = [number for ids, number in rows for _ in ids]
    got = theirs(*given, return_token_type_ids=True)
    found += [
      f'{name} of {given}: ours {ids}, transformers {got.get(name)}'
      for name, ids in wanted.items()
      if ids != got.get(name)
    ]
  left = 'left' if family in layouts.PADDED_LEFT else 'right'
  if theirs.padding_side != left:
    found.append(f'padding: ours {left}, transformers {theirs.padding_side}')
  return found
