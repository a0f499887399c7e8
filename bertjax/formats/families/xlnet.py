"""XLNetLMHeadModel, XLNetModel, and those of fine-tuning, whose query biases are those of each
layer: `config.model.untie_r`."""

from typing import Any

from bertjax.formats.families import bert
from bertjax.formats.family import ACTIVATIONS, Family, Field, Layout, named
from bertjax.formats.tables import Row, dense, heads, norm
from bertjax.models.layers.answers import FORMS


def layers() -> tuple[Row, ...]:
  """Returns the layers, without the query biases."""
  ours, theirs = 'layers', 'transformer.layer.{layer}'
  attention = f'{theirs}.rel_attn'
  project = lambda name, letter: Row(
    f'{ours}/attention/{name}/kernel', f'{attention}.{letter}', 'D,N,H->DNH'
  )
  return (
    project('query', 'q'),
    project('key', 'k'),
    project('value', 'v'),
    project('position', 'r'),
    Row(f'{ours}/attention/out/kernel', f'{attention}.o', 'D,N,H->NHD'),
    *norm(f'{ours}/attention_norm', f'{attention}.layer_norm'),
    *dense(f'{ours}/ffn/up', f'{theirs}.ff.layer_1', 'F', 'D'),
    *dense(f'{ours}/ffn/down', f'{theirs}.ff.layer_2', 'D', 'F'),
    *norm(f'{ours}/ffn_norm', f'{theirs}.ff.layer_norm'),
  )


def layout(model: Any) -> Layout:
  """Returns the table, the mask's vector, the layers and the heads; of the words' it is a bias."""
  attention = 'transformer.layer.{layer}.rel_attn'
  rows = (
    Row('word', 'transformer.word_embedding.weight', 'V,D->VD'),
    Row('mask', 'transformer.mask_emb', 'A,A,D->D'),
    *layers(),
    Row('layers/u', f'{attention}.r_w_bias', 'N,H->NH'),
    Row('layers/w', f'{attention}.r_r_bias', 'N,H->NH'),
    Row('layers/z', f'{attention}.r_s_bias', 'N,H->NH'),
    Row('layers/segment', f'{attention}.seg_embed', 'S,N,H->SNH'),
  )
  words = heads((Row('head/bias', 'lm_loss.bias', 'V->V'),))
  names = {'span': 'qa_outputs', **{name: 'logits_proj' for name, _ in model.labels}}
  labels = bert.label_heads(model, 'sequence_summary.summary', names)
  labels += answers(model.width) if model.answers != 'none' else ()
  return bert.whole(model, rows, words, 'lm_loss', labels)


def answers(width: int, base: str = '') -> tuple[Row, ...]:
  """Returns the head of answers to questions, below a module of its class; I is two states side by
  side."""
  rows = (
    *dense('answers/start', f'{base}start_logits.dense', 'A', 'D'),
    *dense('answers/end_hidden', f'{base}end_logits.dense_0', 'O', 'I'),
    *norm('answers/end_norm', f'{base}end_logits.LayerNorm'),
    *dense('answers/end', f'{base}end_logits.dense_1', 'A', 'D'),
    *dense('answers/none_hidden', f'{base}answer_class.dense_0', 'O', 'I'),
    dense('answers/none', f'{base}answer_class.dense_1', 'A', 'D')[0],
  )
  return heads(rows, I=2 * width)


def beam(model: Any) -> dict[str, Any]:
  """That of answers, where there is their head."""
  if model.answers == 'none':
    return {}
  return dict.fromkeys(('start_n_top', 'end_n_top'), FORMS[model.answers].beam)


# Of both kinds of Transformer that transformers computes with these classes.
COMMON = named(
  vocab_size=('vocab_size', 32_000), width=('d_model', 1024), layers=('n_layer', 24),
  heads=('n_head', 16), ffn=('d_inner', 4096), activation=('ff_activation', 'gelu', ACTIVATIONS),
  dropout=('dropout', 0.1), init_std=('initializer_range', 0.02),
  norm_eps=('layer_norm_eps', 1e-12),
  mem_len=('mem_len', 512, {}, lambda places: places or None, lambda n: n or 0),
  clamp_len=('clamp_len', -1, {}, lambda n: n or -1, lambda n: max(n, 0)),
)  # fmt: skip
THEIRS = dict(
  attn_type=('bi',), bi_data=(False,), untie_r=(True,), same_length=(False,),
  tie_word_embeddings=(True,), summary_use_proj=(True,), summary_activation=('tanh',),
)  # fmt: skip
FAMILY = Family(
  model='xlnet',
  model_type='xlnet',
  base='transformer',
  classes={
    'XLNetLMHeadModel': 'word',
    'XLNetModel': '',
    'XLNetForQuestionAnsweringSimple': 'token:span',
    **bert.tuned_classes('XLNet'),
    'XLNetForQuestionAnswering': 'answers:xlnet',
  },
  layout=layout,
  fields=(*COMMON, Field('pooling', 'summary_type', 'last', dict(last=('last',)))),
  fixed=dict(untie_r=True),
  theirs=THEIRS,
  write=beam,
)
