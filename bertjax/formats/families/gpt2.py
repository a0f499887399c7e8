"""GPT2LMHeadModel: norms before, positions of their own, one table for words and logits; and those
of fine-tuning, whose class for choices scores words too."""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import ACTIVATIONS, Family, Layout, named
from bertjax.formats.tables import Row, norm

NAMES = dict(word='wte', position='wpe')


def layout(model: Any) -> Layout:
  """Returns the tables, the layers and the last norm."""
  return stack(model, NAMES, norm('final_norm', 'transformer.ln_f'))


def stack(model: Any, names: dict[str, str], last: tuple[Row, ...] = ()) -> Layout:
  """Returns the tables and layers of both generations; their kernels lie [in, out], those of
  queries, keys and values side by side."""
  ours, theirs = 'layers', 'transformer.h.{layer}'
  attention = [
    Row(
      f'{ours}/attention/{name}/{leaf}', f'{theirs}.attn.c_attn.{own}', axes, part=(i, 3), axis=at
    )
    for leaf, own, axes, at in (('kernel', 'weight', 'D,NH->DNH', 1), ('bias', 'bias', 'NH->NH', 0))
    for i, name in enumerate(('query', 'key', 'value'))
  ]
  rows = (
    Row('word', f'transformer.{names["word"]}.weight', 'V,D->VD'),
    Row('position', f'transformer.{names["position"]}.weight', 'T,D->TD', dict(T=model.positions)),
    *norm(f'{ours}/attention_norm', f'{theirs}.ln_1'),
    *attention,
    *conv(f'{ours}/attention/out', f'{theirs}.attn.c_proj', 'NH', 'D'),
    *norm(f'{ours}/ffn_norm', f'{theirs}.ln_2'),
    *conv(f'{ours}/ffn_up', f'{theirs}.mlp.c_fc', 'D', 'F'),
    *conv(f'{ours}/ffn_down', f'{theirs}.mlp.c_proj', 'F', 'D'),
    *last,
  )
  tied = {'lm_head.weight': f'transformer.{names["word"]}.weight'}
  found = Layout((*rows, *labels(model)), tied, ignored=('.attn.bias', '.attn.masked_bias'))
  tuned = [name for name, _ in (*model.labels, *model.token_labels) if name != 'right']
  return found._replace(tied={}, spare=tuple(tied)) if tuned else found


def labels(model: Any) -> tuple[Row, ...]:
  """Returns the heads of labels; that of classes has no bias."""
  names = {name: 'score' for name, _ in model.labels}
  names |= dict(right='multiple_choice_head.summary', span='qa_outputs')
  rows = bert.label_heads(model, '', names)
  return tuple(row for row in rows if row.theirs != 'score.bias')


def conv(ours: str, theirs: str, into: str, out: str) -> tuple[Row, Row]:
  """Returns a Conv1D of transformers, whose weight lies as our kernel."""
  kernel = Row(f'{ours}/kernel', f'{theirs}.weight', f'{into},{out}->{into}{out}')
  return kernel, Row(f'{ours}/bias', f'{theirs}.bias', f'{out}->{out}')


def write(model: Any) -> dict[str, Any]:
  """Returns the width of the feed-forward, which 4 * width is where none is said."""
  return dict(n_inner=None if model.ffn == 4 * model.width else model.ffn)


# Of both generations.
COMMON = named(
  width=('n_embd', 768), layers=('n_layer', 12), heads=('n_head', 12), dropout=('resid_pdrop', 0.1),
  embedding_dropout=('embd_pdrop', 0.1), attention_dropout=('attn_pdrop', 0.1),
  norm_eps=('layer_norm_epsilon', 1e-5), init_std=('initializer_range', 0.02),
)  # fmt: skip
# Of the head of choices.
SUMMARY = dict(
  summary_type=('cls_index',), summary_use_proj=(True,), summary_activation=(None,),
  summary_proj_to_labels=(True,),
)  # fmt: skip

FAMILY = Family(
  model='gpt',
  model_type='gpt2',
  base='transformer',
  classes={
    'GPT2LMHeadModel': 'word',
    'GPT2DoubleHeadsModel': 'word text:right',
    'GPT2ForSequenceClassification': 'text:*',
    'GPT2ForQuestionAnswering': 'token:span',
    'GPT2ForTokenClassification': 'token:*',
  },
  layout=layout,
  fields=(
    *COMMON,
    *named(
      vocab_size=('vocab_size', 50_257),
      positions=('n_positions', 1024),
      activation=('activation_function', 'gelu_new', ACTIVATIONS),
    ),
  ),  # fmt: skip
  fixed=dict(norms='before', one_table=False, both_orders=False, pooling='end'),
  theirs=dict(
    scale_attn_weights=(True,),
    scale_attn_by_inverse_layer_idx=(False,),
    add_cross_attention=(False,),
    reorder_and_upcast_attn=(False,),
    **SUMMARY,
    tie_word_embeddings=(True,),
  ),
  write=write,
  read=lambda given: dict(ffn=given.get('n_inner') or 4 * given.get('n_embd', 768)),
)
