"""The same fine-tuning by transformers' Trainer: its own model and batches by length.

Rates, betas and decay are the recipe's; rows, and the scores of its logits, are ours.
"""

import json
import os
import pathlib
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np


class Spec(NamedTuple):
  """What is trained.

  Attributes:
    directory: of the model.
    kind: of the task: 'classify', 'tags' or 'spans'.
    train, dev: rows, see `finetune_rows.RivalRows`; `dev` from the shortest to the longest.
    outputs: of the head; of 'classify' 1 is a number.
    batch_size, dev_batch_size: rows.
    steps, eval_steps: of the run, and between two evaluations; the last step has one too.
    rates: of each step.
    b1, b2, eps, weight_decay, clip: of AdamW.
    seed: of the head and the order.
  """

  directory: str
  kind: str
  train: list[dict[str, Any]]
  dev: list[dict[str, Any]]
  outputs: int
  batch_size: int
  dev_batch_size: int
  steps: int
  eval_steps: int
  rates: list[float]
  b1: float
  b2: float
  eps: float
  weight_decay: float
  clip: float
  seed: int


def main(spec_path: str, result_path: str) -> None:
  """Trains and writes an .npz: seconds of training with its evaluations, and the logits of `dev`
  after each, logits_0, logits_1, .. float32 [n, C] or, of tokens, [n, T, C]."""
  import torch
  import transformers

  spec = Spec(**json.loads(pathlib.Path(spec_path).read_text()))
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  transformers.set_seed(spec.seed)
  tokenizer = transformers.AutoTokenizer.from_pretrained(spec.directory)
  model_class, collator = {
    'classify': ('SequenceClassification', transformers.DataCollatorWithPadding),
    'tags': ('TokenClassification', transformers.DataCollatorForTokenClassification),
    'spans': ('QuestionAnswering', transformers.DataCollatorWithPadding),
  }[spec.kind]
  model = getattr(transformers, f'AutoModelFor{model_class}').from_pretrained(
    spec.directory, num_labels=spec.outputs
  )
  found: list[np.ndarray] = []

  def keep(predicted: Any) -> dict[str, float]:
    logits = predicted[0]
    found.append(np.stack(logits, -1) if isinstance(logits, tuple) else np.asarray(logits))
    return {}

  class Trainer(transformers.Trainer):
    """Evaluates rows in their order."""

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
      return torch.utils.data.SequentialSampler(eval_dataset)

  class LastStep(transformers.TrainerCallback):
    """Evaluates after the last step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
      control.should_evaluate |= state.global_step == state.max_steps

  with tempfile.TemporaryDirectory() as directory:
    options = transformers.TrainingArguments(
      output_dir=directory, per_device_train_batch_size=spec.batch_size,
      per_device_eval_batch_size=spec.dev_batch_size, max_steps=spec.steps,
      max_grad_norm=spec.clip, train_sampling_strategy='group_by_length', eval_strategy='steps',
      eval_steps=spec.eval_steps, save_strategy='no', logging_strategy='no', report_to=[],
      disable_tqdm=True, use_cpu=True, seed=spec.seed,
    )  # fmt: skip
    trainer = Trainer(
      model, options, collator(tokenizer), spec.train, spec.dev, compute_metrics=keep,
      optimizers=_optimizer(model, spec), callbacks=[LastStep()],
    )  # fmt: skip
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
  logits: dict[str, Any] = {f'logits_{n}': x for n, x in enumerate(found)}
  np.savez(result_path, seconds=seconds, **logits)


def _optimizer(model: Any, spec: Spec) -> tuple[Any, Any]:
  """AdamW without decay of norms and biases, and its rates."""
  import torch

  plain = lambda name: name.endswith('bias') or 'LayerNorm' in name
  named = list(model.named_parameters())
  groups = [
    dict(params=[p for n, p in named if not plain(n)], weight_decay=spec.weight_decay),
    dict(params=[p for n, p in named if plain(n)], weight_decay=0.0),
  ]
  optimizer = torch.optim.AdamW(groups, lr=1.0, betas=(spec.b1, spec.b2), eps=spec.eps)
  rate = lambda step: spec.rates[min(step, len(spec.rates) - 1)]
  return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
