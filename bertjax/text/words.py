"""Words of plain text, cut as the data that taggers learn from: punctuation stands by itself.

'Berlin's 3.5% (U.S.), 我住'  ->  Berlin 's 3.5 % ( U.S. ) , 我 住

Whole stay numbers, abbreviations of single letters, addresses, words with a mark within (can't,
AT&T), and emoji of several characters. Han characters stand by themselves, as MSRA's and Weibo's
entities have them; other scripts without blanks (Thai, kana) stay as they are, since to cut them
takes a dictionary.
"""

import re
import unicodedata

HAN = re.compile('[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]')
# ASCII stays; of all else x is a letter, 0 a digit, ¨ what belongs to the character before it, ·
# what joins that with the next, ¶ half of a flag, 中 a Han character, § any other sign.
_LETTER, _WITHIN = '[a-zA-Z0-9_]', '[a-zA-Z0-9_¨·]'
_JOINED = rf"(?:(?!'[sS](?!{_LETTER}))[-.'/@&+]|(?<=[0-9])[,:](?=[0-9]))"
_WORD = re.compile(
  rf'(?:[a-zA-Z]+://|www\.)[^\s中]*[a-zA-Z0-9_/]'
  rf'|(?:[a-zA-Z]¨*\.){{2,}}'
  rf"|'[sS](?!{_LETTER})"
  rf'|{_LETTER}{_WITHIN}*(?:{_JOINED}{_LETTER}{_WITHIN}*)*'
  r'|¶¶|\.{2,}|-{2,}|\S¨*(?:·\S¨*)*'
)


def cut(text: str) -> list[str]:
  """Returns the words of a text, in their order, as they stand there."""
  codes = ''.join(c if c.isascii() else _code(c) for c in text)
  return [text[slice(*found.span())] for found in _WORD.finditer(codes)]


def _code(letter: str) -> str:
  kind = unicodedata.category(letter)
  if letter.isspace() or letter in '\ufeff\u200b':  # marks of an order of bytes, and of no width
    return ' '
  if letter in '’ʼ':
    return "'"
  if letter == '\u200d':
    return '·'
  if kind[0] == 'M' or kind == 'Cf' or '\U0001f3fb' <= letter <= '\U0001f3ff':  # skin tones
    return '¨'
  if HAN.match(letter):
    return '中'
  if '\U0001f1e6' <= letter <= '\U0001f1ff':
    return '¶'
  return ('0' if letter.isdigit() else 'x') if letter.isalnum() else '§'
