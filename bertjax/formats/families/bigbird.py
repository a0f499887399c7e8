"""BigBirdForMaskedLM and BigBirdForTokenClassification.

In evaluation transformers has no random blocks: it meets the first block again in their place, so
its keys count 1 + num_random_blocks times (modeling_big_bird.py). Rows that see all are computed
alike: of at most 5 + 2 num_random_blocks blocks there, of 4 + num_random_blocks here.
"""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import Derived, Family, Layout, named


def layout(model: Any) -> Layout:
  """Returns the encoder and the heads; the classes have a pooler that nothing reads."""
  labels = bert.label_heads(model, '', {})
  found = bert.whole(model, bert.encoder('bert'), bert.WORDS, bert.DECODER, labels)
  pooler = {
    'bert.pooler.weight': Derived((model.width, model.width)),
    'bert.pooler.bias': Derived((model.width,)),
  }
  return found._replace(derived=pooler)


FAMILY = Family(
  model='bigbird',
  model_type='big_bird',
  base='bert',
  classes=dict(BigBirdForMaskedLM='word', BigBirdForTokenClassification='token:*'),
  layout=layout,
  fields=(
    *bert.with_defaults(vocab_size=50_358, activation='gelu_new', positions=4096),
    # Of the random blocks; the class, which has other ones, keeps the key and reads it not.
    *named(
      block=('block_size', 64), random_blocks=('num_random_blocks', 3), seed=('block_seed', 0)
    ),
  ),
  fixed=bert.PLAIN,
  theirs=bert.THEIRS
  | dict(attention_type=('block_sparse',), use_bias=(True,), rescale_embeddings=(False,)),
)
