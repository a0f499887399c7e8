"""A tag for each word, read off its first piece (Devlin et al. 2019, sections 4.1 and 5.3).

The loss is the mean cross-entropy of the words, as of transformers' `...ForTokenClassification`.
"""

from bertjax.errors import UserError
from bertjax.kernels.cross_entropy import score
from bertjax.objectives import check_heads, in_one_pass, label_model, labels_of
from bertjax.options import NoOptions
from bertjax.types import Batch, Factory, Objective, Term

TAG = 'tag'


def make(config) -> Objective:
  """Builds the objective from a run's config: `config.model.token_labels` is (('tag', C),). Raises
  UserError: see `label_model` and `tags_of`."""
  model = label_model(config)
  tags_of(config)
  return in_one_pass(model, terms, ('tagging',))


def tags_of(config) -> int:
  """Returns the number of tags of the head. Raises UserError: as `check_heads`; fewer than two
  tags."""
  check_heads(config, token=((TAG, 0),))
  found = dict(labels_of(config.model, 'token'))[TAG]
  if found < 2:
    raise UserError(
      f'the objective {config.objective.name!r} needs examples with tags: expected '
      f"config.data.task.name='tags', or a task of yours that has them, got a head of {found} "
      'classes'
    )
  return found


def terms(out, batch: Batch) -> dict[str, Term]:
  """Returns the mean over words of -log p and of what is right, of the logits of all tokens."""
  nll_BT, right_BT, _ = score(out['token_label_BTC'][TAG], batch['tag_BT'])
  return Term.learned(TAG, nll_BT, right_BT, batch['tag_weight_BT'])


OBJECTIVE = Factory(NoOptions, make, targets=lambda config: ('tags',))
