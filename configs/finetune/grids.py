"""What the papers chose from when they fine-tuned, for `bertjax.sweep --grid=NAME`.

  python -m bertjax.sweep --config=configs/finetune/glue.py:mrpc --workdir=runs/mrpc --seeds=5 \
      --best --grid=bert --config.init_from=hf:DIR ...

Each point of a grid is a whole run: bert has 18 of them, bert_small 20. Families without a name
here (ALBERT, ELECTRA, XLNet) say one value for each task, which is their recipe (families.py).
"""

from typing import NamedTuple

PKD = 'intersun/PKD-for-BERT-Model-Compression'


class Grid(NamedTuple):
  """Values that were tried.

  Attributes:
    source: who says so.
    axes: as `--grid` takes them, KEY=VALUE,VALUE.
  """

  source: str
  axes: tuple[str, ...]


GRIDS = dict(
  bert=Grid(
    'BERT paper, appendix A.3',
    ('batch_size=16,32', 'optimizer.schedule.peak=5e-5,3e-5,2e-5', 'epochs=2,3,4'),
  ),
  bert_small=Grid(
    'google-research/bert, README: smaller models; four epochs',
    ('epochs=4', 'batch_size=8,16,32,64,128', 'optimizer.schedule.peak=3e-4,1e-4,5e-5,3e-5'),
  ),
  roberta=Grid(
    'RoBERTa paper, table 10 (unverified); ten epochs',
    ('epochs=10', 'batch_size=16,32', 'optimizer.schedule.peak=1e-5,2e-5,3e-5'),
  ),
  spanbert=Grid(
    'SpanBERT paper (unverified); four epochs, ten for RTE and TACRED',
    ('epochs=4', 'batch_size=16,32', 'optimizer.schedule.peak=5e-6,1e-5,2e-5,3e-5,5e-5'),
  ),
  kd=Grid(
    f'{PKD}; its soft=0.2,0.5,0.7 goes with hard=1-soft: one at a time',
    ('objective.temperature=5,10,20', 'optimizer.schedule.peak=5e-5,2e-5,1e-5'),
  ),
  pkd=Grid(
    f'{PKD}; at the temperature that was best for kd',
    ('objective.states=10,100,500,1000', 'optimizer.schedule.peak=5e-5,2e-5,1e-5'),
  ),
)
