"""Compares answers as the programs of data sets do whose languages have no spaces between words, or
other articles than English.

  squad      words without English articles (SQuAD 1.1 and 2.0)
  cmrc       characters, those that stand in one run in both alone (CMRC 2018, DRCD: ymcui/cmrc2018,
             squad-style-data/cmrc2018_evaluate.py)
  mlqa_LANG  words without the articles of LANG, Chinese by characters (facebookresearch/MLQA,
             mlqa_evaluation_v1.py)

CMRC's program has NLTK cut what is no Chinese; here that is numbers with their points and commas,
runs of letters and digits, and single other characters: "don't" and "U.S." are cut otherwise.
"""

import collections
import difflib
import functools
import re
import string
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

Name = Literal[
  'squad', 'cmrc', 'mlqa_ar', 'mlqa_de', 'mlqa_en', 'mlqa_es', 'mlqa_hi', 'mlqa_vi', 'mlqa_zh'
]  # fmt: skip
_ENGLISH = re.compile(r'\b(a|an|the)\b')
_ARTICLES = dict(
  ar=re.compile('\\sال^|ال'),
  de=re.compile(r'\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b'),
  en=_ENGLISH,
  es=re.compile(r'\b(un|una|unos|unas|el|la|los|las)\b'),
  vi=re.compile(r'\b(của|là|cái|chiếc|những)\b'),
)
_ASCII = str.maketrans('', '', string.punctuation)
_CMRC_DROPS = str.maketrans('', '', '-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』')
_CMRC_PARTS = re.compile(r'[\u4e00-\u9fa5]|\d+(?:[.,]\d+)+|[^\W\u4e00-\u9fa5]+|[^\w\s]')
_HAN_APART = re.compile('([\u4e00-\u9fa5])')


class Program(NamedTuple):
  """The comparison of two answers."""

  words: Callable[[str], list[str]]  # that F1 counts
  same: Callable[[Sequence[str], Sequence[str]], int]  # number of them that two answers share
  whole: Callable[[str], Any]  # what is equal of an exact match


def words(text: str) -> list[str]:
  """Splits a text into SQuAD's words: lower case, no ASCII punctuation, no English articles."""
  return _ENGLISH.sub(' ', text.lower().translate(_ASCII)).split()


def named(name: str) -> Program:
  """Returns the program of a `Name`."""
  if name == 'cmrc':
    whole = lambda text: text.lower().strip().translate(_CMRC_DROPS)
    return Program(lambda text: _CMRC_PARTS.findall(whole(text)), _run, whole)
  cut = words if name == 'squad' else functools.partial(_mlqa, name.removeprefix('mlqa_'))
  return Program(cut, _bag, cut)


def _mlqa(language: str, text: str) -> list[str]:
  text = text.lower().translate(_punctuation())
  if language in _ARTICLES:
    text = _ARTICLES[language].sub(' ', text)
  return (_HAN_APART.sub(r' \1 ', text) if language == 'zh' else text).split()


@functools.cache
def _punctuation() -> dict[int, None]:
  every = (i for i in range(sys.maxunicode) if unicodedata.category(chr(i))[0] == 'P')
  return dict.fromkeys([*every, *map(ord, string.punctuation)])


def _bag(theirs: Sequence[str], ours: Sequence[str]) -> int:
  return (collections.Counter(theirs) & collections.Counter(ours)).total()


def _run(theirs: Sequence[str], ours: Sequence[str]) -> int:
  """Returns the length of the longest run that both hold."""
  return difflib.SequenceMatcher(None, theirs, ours, autojunk=False).find_longest_match().size
