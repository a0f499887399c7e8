"""Tags read from the layers of an encoder: a tagger on its frozen features.

  python -m bertjax.main --config=configs/finetune/probe.py:ner --workdir=runs/last \
      --config.init_from=hf:DIR --config.data.train=train.conll --config.data.dev=dev.conll

  python -m bertjax.sweep --config=configs/finetune/probe.py:ner --workdir=runs/probe --seeds=3 \
      --grid=objective.features=embeddings,last,second_to_last,sum,concat_last_four,mix \
      --config.init_from=hf:DIR --config.data.train=train.conll --config.data.dev=dev.conll

The second is the table of Devlin et al. 2019 (section 5.3, table 7), a line for each kind of
features. Files are those of tagging.py. The tagger is the paper's, two LSTMs in both directions and
a linear map; `--config.objective.kind=linear` is the map alone. The encoder, a run or hf:DIR, stays
as it is. Only scores come out of such a run: predict and convert do not take it.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from configs.finetune import tagging

PAPER = 'BERT paper, section 5.3'


def get_config(arg: str | None = None):
  """The recipe for `arg`: ner (the default) or pos."""
  c = tagging.get_config(arg)
  c.update(cited(defaults.NAMES, name=f'probe-{c.name.removeprefix("finetune-")}'))
  c.objective = cited(PAPER, name='probe')
  c.optimizer.update(cited(PAPER, freeze=(r'(?!tagger/).*',)))
  c.optimizer.schedule.update(cited("ours: Adam's usual rate of small networks", peak=1e-3))
  return c
