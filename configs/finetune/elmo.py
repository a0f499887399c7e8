"""Features of ELMo (Peters et al. 2018): tags of words, or classes of texts, off its layers.

  python -m bertjax.main --config=configs/finetune/elmo.py:ner --workdir=runs/ner \
      --config.init_from=runs/elmo --config.data.train=train.conll --config.data.dev=dev.conll

Also pos, and classes, whose files have columns as those of text.py. ELMo, a run of configs/elmo.py,
stays as it is; words of any spelling are read by their characters. A label is a linear map of the
three layers, whose weights are learned with it (bilm-tf, bilm/elmo.py:weight_layers), at each word,
or at the mean of the text.

Not as there: every text begins with states of zeros, which the original keeps from batch to batch.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs import elmo
from configs.finetune import tagging, text

WEIGHTS = 'bilm-tf/bilm/elmo.py:weight_layers'
OURS = 'ours: a linear map on frozen features'
KINDS = (*tagging.KINDS, 'classes')


def get_config(arg: str | None = None) -> Recipe:
  """The recipe for `arg`: ner (the default), pos or classes."""
  kind = defaults.parse_size(arg, KINDS, 'ner')
  c = text.get_config(kind) if kind == 'classes' else tagging.get_config(kind)
  c.update(cited(defaults.NAMES, name=f'elmo-{kind}'))
  c.update(cited(OURS, epochs=10.0))
  heads = {key: c.model[key] for key in ('labels', 'token_labels') if key in c.model}
  c.model = elmo.model('original')
  c.model.update(cited(OURS, words=False, **heads))
  c.model.update(cited('allennlp/modules/elmo.py:Elmo', head_dropout=0.5))
  frozen = (r'(spelled|word|forwards_\d+|backwards_\d+)(/.*)?',)
  c.optimizer.update(
    cited(WEIGHTS, freeze=frozen) | cited(OURS, weight_decay=0.0, decay=defaults.DECAY_ALL)
  )
  c.optimizer.schedule.update(cited("ours: Adam's usual rate of small networks", peak=1e-3))
  return c
