"""GPT-1's vocabulary: pairs of letters merged over words that are cleaned as the original does.

openai/finetune-transformer-lm, text_utils.py: ftfy mends letters that were decoded wrongly and
writes quotes and ligatures plainly; runs of punctuation get spaces around them; the end of a line
is a word. Words are English (`english_words.py`) and lowercased; what no piece has is <unk>, 0.
transformers' OpenAIGPTTokenizer cuts words as BERT does: other ids on 175 of 300 odd lines.
"""

import functools
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from tokenizers import pre_tokenizers

from bertjax.errors import package
from bertjax.vocab import english_words, fastbpe

MARK = '\n</w>'  # a piece of it and of no other vocabulary
_UNK = '<unk>'
_PLAIN = str.maketrans({'—': '-', '–': '-', '―': '-', '…': '...', '´': "'"})
_RUN = re.compile(r'([-~!";?+,()/*\[\]{}|_])\1*')


def read(merges: pathlib.Path, pieces: Sequence[str]) -> dict[str, Any]:
  """Returns the pieces and functions of a vocabulary, as `formats.Found` has them. Raises
  UserError: lines of another kind, or ftfy is not installed."""
  index = {piece: i for i, piece in enumerate(pieces)}
  spaces = pre_tokenizers.Split(' ', 'removed')
  tokenizer, id_n = fastbpe.merger(index, fastbpe.merges_of(merges), index[_UNK], spaces)
  mend = package('ftfy', "the text of GPT-1's vocabulary").fix_text

  def encode(texts: Sequence[str]) -> list[list[int]]:
    cut = [' '.join(english_words.words(standardized(mend(text)))) for text in texts]
    batch = tokenizer.encode_batch_fast(cut, add_special_tokens=False)
    return [id_n[encoding.ids].tolist() for encoding in batch]

  return dict(pieces=pieces, _encode=encode, _decode=functools.partial(fastbpe.decode, pieces))


def standardized(text: str) -> str:
  """Returns a text, which ftfy has mended, with spaces where the original has them."""
  text = _RUN.sub(r' \g<0> ', text.translate(_PLAIN))
  return re.sub(r'[^\S\n]+', ' ', re.sub(r'\s*\n\s*', ' \n ', text)).strip()
