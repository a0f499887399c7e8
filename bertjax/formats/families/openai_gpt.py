"""OpenAIGPTLMHeadModel: GPT with norms behind what they serve, and a table of positions of its own;
and those of fine-tuning.

The original has one table, whose positions are rows of the softmax too (`config.model.one_table`);
the class leaves them out of it, so it holds models without.
"""

from typing import Any

from bertjax.formats.families import bert, gpt2
from bertjax.formats.family import Family, Layout, named

NAMES = dict(word='tokens_embed', position='positions_embed')


def layout(model: Any) -> Layout:
  """Returns the tables, the layers and the heads. The class of choices keeps the words as those of
  its output."""
  found = gpt2.stack(model, NAMES)
  if not dict(model.labels).get('right'):
    return found
  ((copy, source),) = found.tied.items()
  first = found.rows[0]._replace(theirs=copy)
  return found._replace(rows=(first, *found.rows[1:]), tied={source: copy})


FAMILY = Family(
  model='gpt',
  model_type='openai-gpt',
  base='transformer',
  classes={
    'OpenAIGPTLMHeadModel': 'word',
    'OpenAIGPTDoubleHeadsModel': 'word text:right',
    'OpenAIGPTForSequenceClassification': 'text:*',
  },
  layout=layout,
  fields=(
    *gpt2.COMMON,
    *named(
      vocab_size=('vocab_size', 40_478),
      positions=('n_positions', 512),
      activation=('afn', 'gelu', dict(gelu_tanh=('gelu',), relu=('relu',), silu=('silu',))),
      ffn=('n_embd', 768, {}, lambda ffn: ffn // 4, lambda width: 4 * width),
    ),
  ),  # fmt: skip
  fixed=dict(norms='after', one_table=False, both_orders=False, pooling='end'),
  theirs=dict(tie_word_embeddings=(True,), **gpt2.SUMMARY),
  write=lambda model: bert.require_ffn(model, 'the class of GPT has'),
)
