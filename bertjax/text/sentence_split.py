"""Documents to units, the "sentences" of the token store: lines, or sentences that we find in them.

The splitter is rule-based and knows no language: terminal punctuation of many scripts, what follows
it, and a list of abbreviations. Nothing is lost but the white space between units, which a
vocabulary may ask to have left as a space; verbatim lines lose none.
"""

import re
from collections.abc import Iterable

from bertjax.errors import UserError

LINES, SENTENCES, VERBATIM, AUTO = 'lines', 'sentences', 'verbatim', 'auto'

# Largest share of sampled lines with several sentences if lines are sentences.
_PARAGRAPH_SHARE = 0.25

_CLOSING = '"\'”’»)\\]」』》】〉）〕'
_OPENING = '"\'“‘«([¿¡„「『《【〈（〔-–—'
# Ends that need no space after them, and those that do. Nothing is given back (++), or marks would
# be parted from those before them, and a million dots be tried from each of them.
_END = re.compile(
  f'[。！？｡։።।॥۔؟]++[!?.…]*+[{_CLOSING}]*+|(?<![.!?…])[.!?…]++[{_CLOSING}]*+(?=\\s)'
)
_BEFORE = 80  # characters before an end in which its last word is looked for
_NOT_WORD = re.compile(r'\W')
_SPACELESS = frozenset('。！？｡')

# Never the end of a sentence: a name or a number follows. Lower case, without the period.
_ABBREVIATIONS = frozenset(
  'mr mrs ms dr drs prof rev hon st ste sgt capt cpt cmdr col gen maj lt adm gov sen rep pres '
  'messrs mme mlle mgr fr sr sra srta dott sig ing dipl hr frl herr '
  'vs cf viz al approx ca resp ibid op cit ed eds trans illus ff seq '
  'e.g i.e z.b d.h u.a p.ex eg ie bzw vgl sog usw evtl ggf '
  'fig figs eq eqs sec ch chap vol vols art par pp nos bd abb nr núm '
  'jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun'.split()
)
# The end of a sentence unless a digit follows.
_BEFORE_NUMBER = frozenset('no p pg'.split())
# After these a capital says nothing, so the next word decides.
_MAYBE = frozenset('jr sr inc ltd co corp bros esq etc ave blvd rd mt ft a.m p.m ph.d'.split())
_STARTERS = frozenset(
  'The A An This That These Those He She It We They You I His Her Its Their Our My In On At By For '
  'From With As After Before When While Although Though Because Since If There Here However But '
  'And Or So Then Also Both Each Some Many Most All No Not One Two During Under '
  'Over Between'.split()
)
_ORDINAL_MONTHS = frozenset(
  'Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember '
  'januar februar mars april maj mai juni juli august september oktober november december'.split()
)


def decode(document: bytes, errors: str) -> str:
  """Returns the text of a document. Raises UserError if it is not UTF-8 and errors are 'strict';
  'replace' puts U+FFFD there."""
  try:
    return document.decode('utf-8', errors)
  except UnicodeDecodeError as error:
    raise UserError(
      f'a document is not UTF-8 at its byte {error.start} (0x{document[error.start]:02x}, '
      f'{error.reason}); it begins with {document[:60]!r}. Pass --errors=replace to put U+FFFD '
      'there and count it'
    ) from error


def split_document(text: str, how: str) -> list[str]:
  """Returns the units of a document: its stripped 'lines' or their 'sentences', without empty ones;
  or 'verbatim' all lines, each with its line feed."""
  if how == VERBATIM:
    return re.findall('[^\n]*\n|[^\n]+', text)
  # Not splitlines(): a line may hold U+0085 or U+2028.
  lines = [line for line in map(str.strip, text.split('\n')) if line]
  if how == LINES:
    return lines
  return [sentence for line in lines for sentence in split_sentences(line)]


def detect(documents: Iterable[str]) -> str:
  """Decides what the lines of some documents are. They are sentences, and stay whole, if at most a
  quarter of them would be split further; else they are paragraphs. Returns 'lines' or
  'sentences'."""
  lines = [line for text in documents for line in split_document(text, LINES)]
  several = sum(len(split_sentences(line)) > 1 for line in lines)
  return SENTENCES if several > _PARAGRAPH_SHARE * len(lines) else LINES


def split_sentences(paragraph: str, spaced: bool = False) -> list[str]:
  """Returns the stripped sentences of a line in order; only white space is lost. 'Dr. A. Smith
  left. "Why?" he asked.' gives 'Dr. A. Smith left.' and '"Why?" he asked.' With `spaced` a sentence
  behind white space begins with a space, so that sentences laid end to end are the text again."""
  pieces, start = [], 0
  for match in _END.finditer(paragraph):
    if _is_end(paragraph, start, match):
      pieces.append(paragraph[start : match.end()])
      start = match.end()
  pieces.append(paragraph[start:])
  sentences = [(piece[:1].isspace(), piece.strip()) for piece in pieces]
  sentences = [(apart, sentence) for apart, sentence in sentences if sentence]
  return [
    f' {sentence}' if spaced and apart and number else sentence
    for number, (apart, sentence) in enumerate(sentences)
  ]


def _is_end(text: str, start: int, match: re.Match) -> bool:
  rest = text[match.end() : match.end() + 40].lstrip().lstrip(_OPENING).lstrip()
  if not rest:
    return True
  mark = match.group()
  if mark[0] in _SPACELESS:
    # A quoted sentence goes on with a particle: 「はい。」と言った。
    return not (mark[-1] in _CLOSING and 'ぁ' <= rest[0] <= 'ん')
  if rest[0].islower() or rest[0] in ',;:':
    return False
  if mark[0] != '.' or mark.startswith('..'):
    return True
  return not _is_abbreviated(text[max(start, match.start() - _BEFORE) : match.start()], rest)


def _is_abbreviated(before: str, rest: str) -> bool:
  """Returns True if the period after `before` belongs to its last word."""
  words = before.rsplit(None, 1)
  word = words[-1].lstrip(_OPENING) if words else ''
  lower, following = word.lower(), _NOT_WORD.split(rest, maxsplit=1)[0]
  if lower in _ABBREVIATIONS or not word:
    return True
  if lower in _BEFORE_NUMBER:
    return rest[0].isdigit()
  if word.isdigit():
    # A list's number, or the day of a date in the languages that write it so.
    return len(words) == 1 or (len(word) <= 2 and following in _ORDINAL_MONTHS)
  if len(word) == 1 and word.isupper():
    return (word != 'I' or len(following) == 1) and following not in _STARTERS
  if lower in _MAYBE or re.fullmatch(r'(?:\w\.)+\w', word):
    return following not in _STARTERS
  return False
