"""The masked-LM collator of transformers on the rows that our loader builds."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tokenizers
import transformers

from bertjax.examples.examples import Examples
from bertjax.examples.noise import causal
from bertjax.options import NoOptions


def features(examples: Examples, batch_size: int, batches: int) -> list[list[dict[str, Any]]]:
  """Returns the rows of the first batches as a tokenizer returns them: lists of the real tokens."""
  # The causal masking hides nothing.
  shown = dict(masking=causal.MASKING, mask_options=NoOptions())
  plain = dataclasses.replace(examples, recipe=examples.recipe._replace(**shown))
  special = [examples.store.special[name] for name in ('cls', 'sep')]
  out = []
  for first in range(0, batch_size * batches, batch_size):
    batch = plain.batch(np.arange(first, first + batch_size), shuffle=True)
    rows = zip(batch['token_BT'], batch['type_BT'], batch['example_BT'] > 0, strict=True)
    out.append([
      dict(
        input_ids=token[real].tolist(), token_type_ids=kind[real].tolist(),
        special_tokens_mask=np.isin(token[real], special).astype(int).tolist(),
      )
      for token, kind, real in rows
    ])  # fmt: skip
  return out


def collator(store: Any, rate: float, kind: str) -> Callable:
  """Returns `DataCollatorForLanguageModeling` with the store's special tokens, which masks this
  share of the tokens, on its torch path ('pt') or its NumPy path ('np')."""
  transformers.logging.set_verbosity_error()
  # The collator asks the tokenizer for the special ids and the number of ids alone.
  vocabulary = {f'[id {i}]': i for i in range(store.vocabulary_size)}
  vocabulary = {token: i for token, i in vocabulary.items() if i not in store.special.values()}
  names = {f'{name}_token': f'[{name.upper()}]' for name in ('pad', 'unk', 'cls', 'sep', 'mask')}
  vocabulary |= {f'[{name.upper()}]': i for name, i in store.special.items()}
  model = tokenizers.models.WordLevel(vocabulary, unk_token='[UNK]')
  tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(model), **names
  )
  return transformers.DataCollatorForLanguageModeling(
    tokenizer, mlm_probability=rate, return_tensors=kind
  )
