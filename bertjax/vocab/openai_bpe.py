"""GPT-1's vocabulary: pairs of letters merged over words that are cleaned as the original does.

openai/finetune-transformer-lm, text_utils.py: ftfy mends letters that were decoded wrongly and
writes quotes and ligatures plainly; runs of punctuation get spaces around them; the end of a line
is a word. Words are lowercased, and cut as spaCy's blank English (3.8) does; what no piece has is
<unk>, 0. transformers' OpenAIGPTTokenizer cuts words as BERT does: other ids on 175 of 300 odd
lines.

Affixes come off what stands between two spaces until it is one of EXCEPTIONS or none is left; then
it is cut inside. Left out are emoticons and addresses of the web, which are in pieces already where
punctuation has spaces around it, as GPT's has.
"""

import functools
import pathlib
import re
import string
import unicodedata
from collections.abc import Sequence
from typing import Any

from tokenizers import pre_tokenizers

from bertjax.errors import package
from bertjax.vocab import fastbpe

MARK = '\n</w>'  # a piece of it and of no other vocabulary
_UNK = '<unk>'
_PLAIN = str.maketrans({'—': '-', '–': '-', '―': '-', '…': '...', '´': "'"})
_RUN = re.compile(r'([-~!";?+,()/*\[\]{}|_])\1*')
_PUNCTUATION = '…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪'
_QUOTES = '\'"”“`‘´’‚„»«「」『』（）〔〕【】《》〈〉⟦⟧'
_CURRENCY = r'[$£€¥฿₠-₿﷼]|US\$|[CA]\$'
_UNITS = (
  'km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz kmh '
  'mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K %'
)
_EITHER = f'[{re.escape(_PUNCTUATION + _QUOTES)}]|\\.\\.+'
_PREFIX = re.compile(rf'[§%=—–]|\+(?!\d)|{_EITHER}|{_CURRENCY}')
_SUFFIX = re.compile(
  rf"({_EITHER}|''|'[sS]|’[sS]|[—–]|(?<=\d)(\+|{_CURRENCY}|{'|'.join(_UNITS.split())}))$"
)
_INSIDE = re.compile(r'\.\.+|…|\.|(?<=\d)\^(?=[\d-])|(?<=[^\W_])[:<>=](?=[^\W\d_])')

# Words whose full stop is their own, and a few more; in this case of letters alone.
_ABBREVIATED = (
  'Adm. Ak. Ala. Apr. Ariz. Ark. Aug. Bros. Calif. Co. Colo. Conn. Corp. D.C. Dec. Del. Dr. E.G. '
  'E.g. Feb. Fla. Ga. Gen. Gov. I.E. I.e. Ia. Id. Ill. Inc. Ind. Jan. Jr. Jul. Jun. Kan. Kans. '
  'Ky. La. Ltd. Mar. Mass. Md. Messrs. Mich. Minn. Miss. Mo. Mont. Mr. Mrs. Ms. Mt. N.C. N.D. N.H. '
  'N.J. N.M. N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. Ore. Pa. Ph.D. Prof. Rep. Rev. S.C. Sen. Sep. '
  "Sept. St. Tenn. Va. Wash. Wis. a.m. co. e.g. i.e. p.m. v.s. vs. ä. ö. ü. ' '' \\n \\t"
)
# Words with an apostrophe or without, also with a capital.
_WHOLE = (
  "'cause 'cos 'coz 'cuz 's 'bout 'd 'em 'll 'nuff 're doin doin' goin goin' havin havin' lovin "
  "lovin' ma'am nothin nothin' nuthin nuthin' o'clock ol ol' somethin somethin'"
)
_OTHERS = 'ill its hell shell shed were well whore'.split()  # no contractions


def read(merges: pathlib.Path, pieces: Sequence[str]) -> dict[str, Any]:
  """Returns the pieces and functions of a vocabulary, as `formats.Found` has them. Raises
  UserError: lines of another kind, or ftfy is not installed."""
  index = {piece: i for i, piece in enumerate(pieces)}
  spaces = pre_tokenizers.Split(' ', 'removed')
  tokenizer, id_n = fastbpe.merger(index, fastbpe.merges_of(merges), index[_UNK], spaces)
  mend = package('ftfy', "the text of GPT-1's vocabulary").fix_text

  def encode(texts: Sequence[str]) -> list[list[int]]:
    cut = [' '.join(words(standardized(mend(text)))) for text in texts]
    batch = tokenizer.encode_batch_fast(cut, add_special_tokens=False)
    return [id_n[encoding.ids].tolist() for encoding in batch]

  return dict(pieces=pieces, _encode=encode, _decode=functools.partial(fastbpe.decode, pieces))


def standardized(text: str) -> str:
  """Returns a text, which ftfy has mended, with spaces where the original has them."""
  text = _RUN.sub(r' \g<0> ', text.translate(_PLAIN))
  return re.sub(r'[^\S\n]+', ' ', re.sub(r'\s*\n\s*', ' \n ', text)).strip()


def _exceptions() -> dict[str, tuple[str, ...]]:
  """Returns what is cut in two or three, with and without apostrophes, and what is not cut."""
  ask, many = 'who what when where why how there', 'these those'
  every = f'i you he she it we they {ask} that this {many}'
  parts = ["c'm on", 'can not', 'gon na', 'got ta', "let 's", "how 'd 'y"]
  for words, *ends in (
    (every, "'ll", "'ll 've", "'d", "'d 've"),
    ('i', "'m", "'m a"),
    (f'i you we they {ask} {many} could might must should would not', "'ve"),
    (f'you we they {ask} {many}', "'re"),
    (f'he she it {ask} that this', "'s"),
    ('ai are is was were have has dare', "n't"),
    ('ca could do does did had may might must need ought sha should wo would', "n't", "n't 've"),
  ):
    parts += [f'{word} {end}' for word in words.split() for end in ends]
  bare = [part.replace("'", '') for part in parts if part not in ("c'm on", "let 's", "how 'd 'y")]
  parts += [part for part in bare if part.replace(' ', '') not in _OTHERS]
  parts += [part.capitalize() for part in parts + _WHOLE.split()]
  parts += [*_WHOLE.split(), *_ABBREVIATED.split(), "y' all", 'y all']
  parts += [f'{letter}.' for letter in string.ascii_lowercase]
  parts += [f'{hour} {half}' for hour in range(1, 13) for half in ('am', 'pm', 'a.m.', 'p.m.')]
  return {part.replace(' ', ''): tuple(part.split()) for part in parts}


EXCEPTIONS = _exceptions()


def words(text: str) -> list[str]:
  """Returns the words of a text, lowercased; each symbol is one."""
  spaced = ''.join(f' {c} ' if unicodedata.category(c) == 'So' else c for c in text)
  return [word for part in spaced.split(' ') for word in _cut(part)]


@functools.lru_cache(2**16)
def _cut(part: str) -> tuple[str, ...]:
  """Returns the words of what stands between two spaces."""
  before, behind = [], []
  while part and part not in EXCEPTIONS:
    first = _PREFIX.match(part)
    if first:
      before.append(first[0])
      part = part[first.end() :]
    size = 0 if part in EXCEPTIONS else _suffix(part)
    if size:
      behind.append(part[-size:])
      part = part[:-size]
    if not first and not size:
      break
  found: list[str] = []
  for word in (*before, *(EXCEPTIONS.get(part) or _inside(part)), *reversed(behind)):
    if found and word == '.' and f'{found[-1]}.' in EXCEPTIONS:
      word = found.pop() + word
    found.append(word)
  return tuple(word.lower() for word in found)


def _suffix(part: str) -> int:
  """Returns how many characters the last affix has."""
  # None is longer than eight characters but dots, so that long parts take no quadratic time.
  if found := _SUFFIX.search(part, max(0, len(part.rstrip('.\n')) - 8)):
    return len(part) - found.start()
  if part.endswith('.') and len(part) > 1:
    end = part[-2]
    low = end.isdigit() or _low(end) or end in '%²-+' + _QUOTES
    return int(low or (len(part) > 2 and part[-3:-1].isalpha() and part[-3:-1].isupper()))
  return 0


def _low(letter: str) -> bool:
  """Returns True for a letter that is no capital."""
  return letter.isalpha() and not letter.isupper()


def _inside(part: str) -> list[str]:
  """Returns a part without affixes, cut where two words stand together: "end.Begin"."""
  found, start = [], 0
  for match in _INSIDE.finditer(part):
    left, right = part[: match.start()][-1:], part[match.end() :][:1]
    ends = _low(left) or left in _QUOTES
    begins = right and ((right.isalpha() and not right.islower()) or right in _QUOTES)
    if not left or (match[0] == '.' and not (ends and begins)):
      continue
    found += [part[start : match.start()], match[0]]
    start = match.end()
  return [word for word in (*found, part[start:]) if word]
