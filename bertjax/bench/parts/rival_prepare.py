"""Raw `tokenizers` over the text that `prepare` reads."""

from collections.abc import Callable
from typing import Any

import tokenizers

from bertjax.data.vocab.vocabulary import load_vocabulary
from bertjax.errors import UserError

BATCH = 10_000  # sentences per call of encode_batch


def raw_tokenizer(path: str) -> Any:
  """The Rust tokenizer of a vocab.txt (with BERT's rules) or a tokenizer.json."""
  if path.endswith('.json'):
    return tokenizers.Tokenizer.from_file(path)
  if not path.endswith('.txt'):
    raise UserError(f'--vocab: expected vocab.txt or tokenizer.json, got {path}')
  return tokenizers.BertWordPieceTokenizer(path, lowercase=load_vocabulary(path).lowercase)


def encode(tokenizer: Any, sentences: list[str]) -> Callable[[], None]:
  """Raw `encode_batch` over the sentences as a call."""

  def call() -> None:
    for start in range(0, len(sentences), BATCH):
      tokenizer.encode_batch(sentences[start : start + BATCH], add_special_tokens=False)

  return call
