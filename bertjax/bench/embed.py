"""python -m bertjax.bench embed: sentences/s of `Model.embed` and of the loop of transformers.

  python -m bertjax.bench embed --model=DIR --texts=FILE --against=transformers

Both read the same texts, one a line, and give their mean-pooled vectors, tokenizing included. The
rival sorts by length, pads batches of --rival_batch to their longest and pools as
sentence-transformers does; with --against=sentence_transformers it is that package itself.
`ratio` is our sentences/s over its, `difference` the largest of any component.
"""

import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from absl import flags

from bertjax.bench.parts import timing
from bertjax.data.text import compressed
from bertjax.model import Model

_MODEL = flags.DEFINE_string('model', None, 'A directory of transformers.', required=True)
_TEXTS = flags.DEFINE_string('texts', None, 'File of texts, one a line.', required=True)
_COUNT = flags.DEFINE_integer('count', 2000, 'Texts to read at most.', 1)
_AGAINST = flags.DEFINE_enum(
  'against', None, ['transformers', 'sentence_transformers'], 'Also time this rival.'
)
_BATCH = flags.DEFINE_integer('rival_batch', 32, 'Rows of its batches.', 1)
_CALLS = flags.DEFINE_integer('calls', 5, 'Timed calls of each side.', 1)


def read_texts(name: str, count: int) -> list[str]:
  """The first texts of a file."""
  path = pathlib.Path(name)
  with open(path, 'rb') as raw:
    lines = (line for line in compressed.lines(path, raw, 1 << 20) if line.strip())
    return [line.decode().strip() for line, _ in zip(lines, range(count), strict=False)]


def transformers_loop(directory: str, texts: list[str], batch: int) -> Callable[[], np.ndarray]:
  """Mean-pooled vectors by transformers, as sentence-transformers orders and pools them."""
  import torch
  import transformers

  torch.set_num_threads(len(os.sched_getaffinity(0)))
  tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
  model = transformers.AutoModel.from_pretrained(directory).eval()

  def call() -> np.ndarray:
    order_n = np.argsort([-len(text) for text in texts], kind='stable')
    found: list[Any] = [None] * len(texts)
    for start in range(0, len(texts), batch):
      index_n = order_n[start : start + batch]
      inputs = tokenizer(
        [texts[i] for i in index_n], padding=True, truncation=True, return_tensors='pt'
      )
      with torch.inference_mode():
        x_BTD = model(**inputs).last_hidden_state
        real_BT1 = inputs['attention_mask'][..., None].float()
        mean_BD = (x_BTD * real_BT1).sum(1) / real_BT1.sum(1).clamp(min=1e-9)
      for i, vector in zip(index_n, mean_BD.numpy(), strict=True):
        found[i] = vector
    return np.stack(found)

  return call


def sentence_transformers(directory: str, texts: list[str], batch: int) -> Callable:
  """The package's own loop, without the normalisation that its model may have."""
  import sentence_transformers as rival  # pyright: ignore[reportMissingImports]

  transformer = rival.models.Transformer(directory)
  pooling = rival.models.Pooling(transformer.get_word_embedding_dimension(), 'mean')
  model = rival.SentenceTransformer(modules=[transformer, pooling], device='cpu')
  return lambda: model.encode(texts, batch_size=batch, show_progress_bar=False)


def main() -> None:
  """Times both and prints one JSON line."""
  texts = read_texts(_TEXTS.value, _COUNT.value)
  model = Model.load(_MODEL.value)
  arms: dict[str, Callable[[], Any]] = dict(
    ours=lambda: model.embed(texts, 'mean', cut=True, normalize=False)
  )
  rivals = dict(transformers=transformers_loop, sentence_transformers=sentence_transformers)
  result: dict[str, Any] = dict(bench='embed', texts=len(texts), calls=_CALLS.value)
  if name := _AGAINST.value:
    arms[name] = rivals[name](_MODEL.value, texts, _BATCH.value)
    result['difference'] = float(np.abs(arms['ours']() - arms[name]()).max())
  length_n = np.array([len(each) for each in model.tokens(texts, cut=True)])
  result['tokens'] = dict(mean=round(float(length_n.mean()), 1), longest=int(length_n.max()))
  seconds = timing.alternate(arms, _CALLS.value, 1)
  result |= {arm: timing.summary(s, len(texts), 'sentences') for arm, s in seconds.items()}
  if name:
    result['ratio'] = round(float(np.median(seconds[name]) / np.median(seconds['ours'])), 4)
  result |= timing.environment() | dict(device=jax.devices()[0].device_kind)
  json.dump(result, sys.stdout)
  sys.stdout.write('\n')
