"""What the rival of the bench of fine-tuning gets of a task, and what its logits are worth.

The rows are those of our run and scores are ours: the model, the order, the batches and all of the
training are the rival's.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertjax.data.labelled.common import from_config
from bertjax.data.labelled.spans import END, START, labelled
from bertjax.data.store.reader import Store
from bertjax.data.types import Labelled
from bertjax.evals import classification, spans, tagging
from bertjax.objectives.classify import LABEL
from bertjax.objectives.tag import TAG

UNLABELLED = -100  # transformers' label of a token that carries none


class RivalRows(NamedTuple):
  """A task for the rival.

  Attributes:
    train, dev: {name: list} of each row, as the forward pass of a model of transformers names them.
    outputs: of its head: classes of a row, or scores of each token.
    judge: logits of each row of `dev`, float32 [C] or [T, C] -> scores; T may be more than it has.
  """

  train: list[dict[str, Any]]
  dev: list[dict[str, Any]]
  outputs: int
  judge: Callable[[Sequence[np.ndarray]], dict[str, float]]


def _with(examples: Labelled, **columns: Sequence[Any]) -> list[dict[str, Any]]:
  """Rows with what else the columns have of each."""
  return [
    dict(input_ids=id_T.tolist(), token_type_ids=type_T.tolist(), attention_mask=[1] * len(id_T))
    | {name: column[n] for name, column in columns.items()}
    for n, (id_T, type_T) in enumerate(zip(examples.id_n, examples.type_n, strict=True))
  ]


def _classify(train: Labelled, dev: Labelled, config: Any) -> RivalRows:
  label = lambda examples: dict(labels=examples.label[LABEL].tolist())
  return RivalRows(
    _with(train, **label(train)), _with(dev, **label(dev)), dict(config.model.labels)[LABEL],
    lambda logits: classification.judged(np.stack(logits), dev.label[LABEL]),
  )  # fmt: skip


def _tags(train: Labelled, dev: Labelled, config: Any) -> RivalRows:
  def labels(examples: Labelled) -> dict[str, Any]:
    weight, tag = examples.token_label[f'{TAG}_weight'], examples.token_label[TAG]
    pairs = zip(weight, tag, strict=True)
    return dict(labels=[np.where(w_T > 0, tag_T, UNLABELLED).tolist() for w_T, tag_T in pairs])

  task = config.data.task
  return RivalRows(
    _with(train, **labels(train)), _with(dev, **labels(dev)), dict(config.model.token_labels)[TAG],
    lambda logits: tagging.judged(logits, dev, task.scheme, task.classes),
  )  # fmt: skip


def _spans(train: Labelled, questions: spans.Questions, config: Any) -> RivalRows:
  dev = labelled(questions.windows, {})
  ends = lambda start_n, end_n: dict(start_positions=start_n, end_positions=end_n)
  # Transformers' Trainer asks for labels where it evaluates; these are not looked at.
  none = [0] * len(dev.id_n)
  no_answer = config.data.task.no_answer
  return RivalRows(
    _with(train, **ends(train.label[START].tolist(), train.label[END].tolist())),
    _with(dev, **ends(none, none)), 2,
    lambda logits: questions.judged(logits, config.evals.dev, no_answer),
  )  # fmt: skip


# Kind -> (examples to train on, examples or questions to judge, config) -> rows.
KINDS: dict[str, Callable[[Labelled, Any, Any], RivalRows]] = dict(
  classify=_classify, tags=_tags, spans=_spans
)


def make(config: Any, store: Store) -> RivalRows:
  """The rows of a run, by its config and its vocabulary (`row_stream.open_vocabulary`)."""
  dev = config.evals.dev
  files = {
    'train': (config.data.train, 'config.data.train', config.data.examples),
    'dev': (dev.file or config.data.dev, 'config.data.dev', dev.examples),
  }

  def examples(part: str) -> Labelled:
    path, key, limit = files[part]
    return from_config.open_rows(config, path, key, store, limit, 1).examples

  kind = config.data.task.name
  path, key, limit = files['dev']
  asked = kind == 'spans'
  judged = spans.open_questions(config, path, key, limit, store) if asked else examples('dev')
  return KINDS[kind](examples('train'), judged, config)
