"""A tag for each word, read off its first piece (Devlin et al. 2019, sections 4.1 and 5.3).

The loss is the mean cross-entropy of the words, as of transformers' `...ForTokenClassification`.
"""

from bertjax.errors import UserError
from bertjax.kernels.cross_entropy import score
from bertjax.objectives import label_model, labels_of, of_heads, refuse_words
from bertjax.options import NoOptions
from bertjax.types import Batch, Factory, Objective, Term

TAG = 'tag'


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.token_labels` is (('tag', C),). Raises
  UserError: see `label_model` and `tags_of`."""
  model = label_model(config)
  tags_of(config)
  return of_heads(model, terms, ('tagging',))


def tags_of(config) -> int:
  """Returns the number of tags of the head. Raises UserError: a model with a head for words or for
  other labels, or fewer than two tags."""
  name = config.objective.name
  others, labels = (labels_of(config.model, kind) for kind in ('text', 'token'))
  if [label for label, _ in labels] != [TAG] or others:
    raise UserError(
      f'the objective {name!r} learns tags alone: expected config.model.token_labels='
      f'(({TAG!r}, 0),) and labels=(), got {labels!r} and {others!r}'
    )
  refuse_words(config)
  found = dict(labels)[TAG]
  if found < 2:
    raise UserError(
      f"the objective {name!r} needs examples with tags: expected config.data.task.name='tags', or "
      f'a task of yours that has them, got a head of {found} classes'
    )
  return found


def terms(out, batch: Batch) -> dict[str, Term]:
  """Returns the mean over words of -log p and of what is right, of the logits of all tokens."""
  nll_BT, right_BT, _ = score(out['token_label_BTC'][TAG], batch['tag_BT'])
  return Term.learned(TAG, nll_BT, right_BT, batch['tag_weight_BT'])


OBJECTIVE = Factory(NoOptions, make, targets=lambda config: ('tags',))
