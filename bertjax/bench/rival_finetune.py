"""The same fine-tuning by transformers' Trainer: its own model, tokenizer, batches by length.

Rates, betas and decay are the recipe's; scores are ours, of its logits after each epoch.
"""

import json
import os
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Spec(NamedTuple):
  """What is trained.

  Attributes:
    directory: of the model.
    train, dev: examples: [texts, label], a label is the id of a class or a number.
    classes: how many; 1: a number.
    length: tokens of a row at most.
    batch_size, dev_batch_size: rows.
    epochs: of `train`.
    rates: of each step.
    b1, b2, eps, weight_decay, clip: of AdamW.
    seed: of the head and the order.
  """

  directory: str
  train: list
  dev: list
  classes: int
  length: int
  batch_size: int
  dev_batch_size: int
  epochs: int
  rates: list[float]
  b1: float
  b2: float
  eps: float
  weight_decay: float
  clip: float
  seed: int


def main(spec_path: str, result_path: str) -> None:
  """Trains and writes {seconds: of training with its evaluations, scores: one for each epoch}."""
  import torch
  import transformers

  from bertjax.evals import classification

  spec = Spec(**json.loads(pathlib.Path(spec_path).read_text()))
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  transformers.set_seed(spec.seed)
  tokenizer = transformers.AutoTokenizer.from_pretrained(spec.directory)
  model = transformers.AutoModelForSequenceClassification.from_pretrained(
    spec.directory, num_labels=spec.classes
  )

  def rows(examples: Sequence[Any]) -> list[dict[str, Any]]:
    texts = [list(column) for column in zip(*(texts for texts, _ in examples), strict=True)]
    found = tokenizer(*texts, truncation=True, max_length=spec.length)
    return [
      {key: found[key][i] for key in found} | dict(labels=label)
      for i, (_, label) in enumerate(examples)
    ]

  scores: list[dict[str, float]] = []

  def judge(predicted: Any) -> dict[str, float]:
    scores.append(classification.judged(np.asarray(predicted[0]), np.asarray(predicted[1])))
    return scores[-1]

  plain = lambda name: name.endswith('bias') or 'LayerNorm' in name
  named = list(model.named_parameters())
  groups = [
    dict(params=[p for n, p in named if not plain(n)], weight_decay=spec.weight_decay),
    dict(params=[p for n, p in named if plain(n)], weight_decay=0.0),
  ]
  optimizer = torch.optim.AdamW(groups, lr=1.0, betas=(spec.b1, spec.b2), eps=spec.eps)
  rate = lambda step: spec.rates[min(step, len(spec.rates) - 1)]
  with tempfile.TemporaryDirectory() as directory:
    options = transformers.TrainingArguments(
      output_dir=directory, per_device_train_batch_size=spec.batch_size,
      per_device_eval_batch_size=spec.dev_batch_size, num_train_epochs=spec.epochs,
      max_grad_norm=spec.clip, train_sampling_strategy='group_by_length', eval_strategy='epoch',
      save_strategy='no', logging_strategy='no', report_to=[], disable_tqdm=True, use_cpu=True,
      seed=spec.seed,
    )  # fmt: skip
    trainer = transformers.Trainer(
      model, options, transformers.DataCollatorWithPadding(tokenizer),
      rows(spec.train), rows(spec.dev), compute_metrics=judge,
      optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate)),
    )  # fmt: skip
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
  pathlib.Path(result_path).write_text(json.dumps(dict(seconds=seconds, scores=scores)))
