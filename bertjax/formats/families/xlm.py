"""XLMWithLMHeadModel, XLMModel, and XLM with the heads of fine-tuning; with or without language
embeddings, masked and causal."""

from collections.abc import Mapping
from typing import Any

from bertjax.errors import UserError
from bertjax.formats.families import bert, xlnet
from bertjax.formats.family import Family, Layout, named, uncomputed
from bertjax.formats.tables import Row, heads, layer, norm

SEQUENCE, CHOICE = 'XLMForSequenceClassification', 'XLMForMultipleChoice'


def layout(model: Any) -> Layout:
  """Returns the tables, the layers and, where there is one, the words' head."""
  language = Row('embeddings/language', 'transformer.lang_embeddings.weight', 'X,E->XE')
  rows = (
    Row('embeddings/word', 'transformer.embeddings.weight', 'V,E->VE'),
    Row('embeddings/position', 'transformer.position_embeddings.weight', 'T,E->TE'),
    *((language,) if model.extra else ()),
    *norm('embeddings/norm', 'transformer.layer_norm_emb', 'E'),
    *layer(
      'encoder/layers',
      'transformer.*',
      'attentions.{layer}.q_lin attentions.{layer}.k_lin attentions.{layer}.v_lin '
      'attentions.{layer}.out_lin layer_norm1.{layer} ffns.{layer}.lin1 ffns.{layer}.lin2 '
      'layer_norm2.{layer}',
    ),
  )
  words = heads((Row('mlm/bias', 'pred_layer.proj.bias', 'V->V'),))
  names = {name: 'sequence_summary.summary' for name, _ in model.labels}
  names |= {'span': 'qa_outputs'} | ({'right': 'logits_proj'} if 'right' in names else {})
  labels = xlnet.answers(model.width, 'qa_outputs.') if model.answers != 'none' else ()
  labels += bert.label_heads(model, '', names)
  return bert.whole(model, rows, words, 'pred_layer.proj', labels)


def write(model: Any) -> dict[str, Any]:
  """Returns the fields for languages and for the answers' beam. Raises UserError for another
  feed-forward width than the class has, and for other extra tables."""
  bert.require_ffn(model, 'the classes of XLM have')
  names = [name for name, _ in model.extra]
  if names not in ([], ['language']) or model.attend not in ('example', 'causal'):
    raise UserError(
      "the classes of XLM hold the extra table 'language' and config.model.attend='example' or "
      f"'causal', got {names} and {model.attend!r}"
    )
  rows = model.extra[0][1] if model.extra else 1
  found: dict[str, Any] = dict(n_langs=rows, use_lang_emb=bool(model.extra), asm=False)
  found |= xlnet.beam(model)
  if [name for name, _ in model.labels] == ['right']:
    # Its class has two linear maps, one after the other, and leaves out the first of them.
    found |= dict(summary_use_proj=False, num_labels=model.width)
  return found


def read(given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns no table of languages where the class has none. Raises UserError if labels read another
  summary of a text than its first token."""
  names = given.get('architectures') or ('',)
  choice = names[0] == CHOICE
  if choice or names[0] == SEQUENCE:
    ours = dict(summary_type='first', summary_activation=None, summary_use_proj=not choice)
    ours |= {} if choice else dict(summary_proj_to_labels=True)
    default = dict(ours, summary_use_proj=True)  # of transformers
    wrong = {key: x for key in ours if (x := given.get(key, default[key])) != ours[key]}
    if wrong:
      raise uncomputed(wrong, {key: ours[key] for key in wrong})
  # XLM-17 and XLM-100 say how many languages they have read, and have no table of them.
  return {} if given.get('use_lang_emb', True) else dict(extra=())


def languages(count: int) -> tuple[tuple[str, int], ...]:
  """Returns `config.model.extra` of so many languages."""
  return (('language', count),) if count > 1 else ()


FIELDS = named(
  vocab_size=('vocab_size', 30_145), width=('emb_dim', 2048), layers=('n_layers', 12),
  heads=('n_heads', 16),
  ffn=('emb_dim', 2048, {}, lambda ffn: ffn // 4, lambda width: 4 * width),
  activation=('gelu_activation', True, dict(gelu_erf=(True,), relu=(False,))),
  dropout=('dropout', 0.1), attention_dropout=('attention_dropout', 0.1),
  positions=('max_position_embeddings', 512), init_std=('embed_init_std', 2048**-0.5),
  norm_eps=('layer_norm_eps', 1e-12),
  attend=('causal', False, dict(example=(False,), causal=(True,))),
  extra=('n_langs', 1, {}, lambda extra: extra[0][1] if extra else 1, languages),
)  # fmt: skip
FAMILY = Family(
  model='bert',
  recipe='xlm',
  model_type='xlm',
  base='transformer',
  classes={
    'XLMWithLMHeadModel': 'word',
    'XLMModel': '',
    'XLMForQuestionAnsweringSimple': 'token:span',
    **bert.tuned_classes('XLM'),
    'XLMForQuestionAnswering': 'answers:xlnet',
  },
  layout=layout,
  fields=FIELDS,
  fixed=bert.plain('extra attend', transform=False, types=0, pooler_activation='none'),
  theirs=dict(asm=(False,), is_encoder=(True,), tie_word_embeddings=(True,)),
  write=write,
  read=read,
  takes=lambda module, batch: dict(langs=batch['language_BT']) if module.tables else {},
)
