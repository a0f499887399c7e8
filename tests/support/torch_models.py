"""Random models of transformers at odd shapes, saved as directories."""

import numpy as np
from slow_imports import torch, transformers

from bertjax.export import parity, receipt
from bertjax.formats import config_json, directory, weights
from bertjax.sources import runs

SHAPES = dict(
  vocab_size=211, hidden_size=36, num_hidden_layers=3, num_attention_heads=3, intermediate_size=52,
  max_position_embeddings=45, type_vocab_size=3,
)  # fmt: skip
XLNET = dict(vocab_size=211, d_model=36, n_layer=3, n_head=3, d_inner=52)
XLM = dict(vocab_size=211, emb_dim=36, n_layers=3, n_heads=3, max_position_embeddings=45)
DISTIL = dict(
  vocab_size=211, dim=36, n_layers=3, n_heads=3, hidden_dim=52, max_position_embeddings=45
)
MODERN = dict(
  vocab_size=211, hidden_size=36, num_hidden_layers=5, num_attention_heads=3, intermediate_size=52,
  max_position_embeddings=45, local_attention=6, pad_token_id=0, bos_token_id=2, eos_token_id=3,
  cls_token_id=2, sep_token_id=3,
)  # fmt: skip
GPT = dict(vocab_size=211, n_embd=36, n_layer=3, n_head=3, n_positions=45)
T5 = dict(vocab_size=211, d_model=36, d_kv=10, d_ff=52, num_layers=3, num_heads=3)
BART = dict(
  vocab_size=211, d_model=36, max_position_embeddings=45, scale_embedding=True,
  **{f'{side}_{name}': n for side in ('encoder', 'decoder')
     for name, n in dict(layers=3, attention_heads=3, ffn_dim=52).items()},
)  # fmt: skip
DEBERTA = SHAPES | dict(
  type_vocab_size=0, relative_attention=True, position_buckets=8, norm_rel_ebd='layer_norm',
  share_att_key=True, pos_att_type=['c2p', 'p2c'], position_biased_input=False, legacy=False,
)  # fmt: skip
LONG = SHAPES | dict(
  attention_window=8, pad_token_id=1, bos_token_id=0, eos_token_id=2, sep_token_id=2,
  max_position_embeddings=47,
)  # fmt: skip
NARROW = dict(embedding_size=20, **SHAPES)
# Name of a case, a class and perhaps a remark behind it -> the fields of its config.
CASES = {
  'BertForPreTraining': SHAPES,
  'BertForMaskedLM': dict(hidden_act='gelu_new', **SHAPES),
  'BertModel': SHAPES,
  'BertForSequenceClassification': dict(num_labels=5, **SHAPES),
  'BertForQuestionAnswering': SHAPES,
  'BertForMultipleChoice': SHAPES,
  'BertForTokenClassification': dict(num_labels=7, **SHAPES),
  'RobertaForMaskedLM': SHAPES,
  'RobertaModel': SHAPES,
  'RobertaForSequenceClassification': dict(num_labels=5, **SHAPES),
  'RobertaForQuestionAnswering': SHAPES,
  'RobertaForMultipleChoice': SHAPES,
  'XLMRobertaForTokenClassification': dict(num_labels=7, **SHAPES),
  'XLMRobertaForMaskedLM': dict(layer_norm_eps=1e-5, **SHAPES),
  'AlbertForPreTraining': dict(num_hidden_groups=2, inner_group_num=2, **NARROW),
  'AlbertForMaskedLM': NARROW,
  'AlbertForSequenceClassification': dict(num_labels=3, **NARROW),
  'AlbertForTokenClassification': dict(num_labels=7, **NARROW),
  'AlbertForQuestionAnswering': NARROW,
  'AlbertModel': NARROW,
  'ElectraForPreTraining': NARROW,
  'ElectraForMaskedLM': NARROW,
  'ElectraModel': NARROW,
  'ElectraForSequenceClassification': dict(num_labels=3, **NARROW),
  'ElectraForTokenClassification': dict(num_labels=7, **NARROW),
  'ElectraForMultipleChoice': NARROW,
  'ElectraForQuestionAnswering': NARROW,
  'XLNetLMHeadModel': XLNET,
  'XLNetModel': XLNET,
  'XLNetForSequenceClassification': dict(num_labels=3, **XLNET),
  'XLNetForTokenClassification': dict(num_labels=7, **XLNET),
  'XLNetForMultipleChoice': XLNET,
  'XLNetForQuestionAnswering': XLNET,
  'XLNetForQuestionAnsweringSimple': XLNET,
  'XLNetLMHeadModel to the left': dict(
    attn_type='uni', tie_word_embeddings=False, ff_activation='relu', **XLNET
  ),
  'XLMWithLMHeadModel': dict(n_langs=4, **XLM),
  'XLMModel': dict(gelu_activation=False, **XLM),
  'XLMForSequenceClassification': dict(n_langs=4, num_labels=3, **XLM),
  'XLMForTokenClassification': dict(use_lang_emb=False, num_labels=7, **XLM),
  'XLMForMultipleChoice': dict(n_langs=4, summary_use_proj=False, num_labels=36, **XLM),
  'XLMForQuestionAnswering': dict(n_langs=4, **XLM),
  'XLMForQuestionAnsweringSimple': dict(n_langs=4, **XLM),
  'GPT2LMHeadModel': dict(n_inner=52, **GPT),
  'GPT2DoubleHeadsModel': GPT,
  'GPT2ForSequenceClassification': dict(num_labels=5, **GPT),
  'GPT2ForTokenClassification': dict(num_labels=7, **GPT),
  'GPT2ForQuestionAnswering': GPT,
  'OpenAIGPTLMHeadModel': GPT,
  'OpenAIGPTDoubleHeadsModel': GPT,
  'OpenAIGPTForSequenceClassification': dict(num_labels=1, **GPT),
  'T5ForConditionalGeneration': T5,
  'T5ForConditionalGeneration 1.1': dict(
    feed_forward_proj='gated-gelu', tie_word_embeddings=False, **T5
  ),
  'BartForConditionalGeneration': BART,
  'DebertaV2ForMaskedLM': DEBERTA,
  'DebertaV2Model': DEBERTA | dict(pos_att_type='p2c|c2p'),
  'DebertaV2ForSequenceClassification': dict(num_labels=3, **DEBERTA),
  'DebertaV2ForTokenClassification': dict(num_labels=7, **DEBERTA),
  'DebertaV2ForMultipleChoice': DEBERTA,
  'DebertaV2ForQuestionAnswering': DEBERTA,
  'BigBirdForMaskedLM': SHAPES,
  'BigBirdForTokenClassification': dict(num_labels=7, **SHAPES),
  'LongformerForMaskedLM': LONG,
  'LongformerModel': LONG | dict(attention_window=[6, 6, 6]),
  'LongformerForSequenceClassification': dict(num_labels=3, **LONG),
  'LongformerForTokenClassification': dict(num_labels=7, **LONG),
  'LongformerForQuestionAnswering': LONG,
  'ErnieForPreTraining': dict(use_task_id=False, hidden_act='relu', **SHAPES),
  'DistilBertForMaskedLM': DISTIL,
  'DistilBertModel': DISTIL,
  'DistilBertForSequenceClassification': dict(num_labels=3, **DISTIL),
  'DistilBertForTokenClassification': dict(num_labels=7, **DISTIL),
  'DistilBertForMultipleChoice': DISTIL,
  'DistilBertForQuestionAnswering': DISTIL,
  'ModernBertForMaskedLM': MODERN,
  'ModernBertModel': dict(global_attn_every_n_layers=2, **MODERN),
  'ModernBertForSequenceClassification': dict(num_labels=3, classifier_pooling='mean', **MODERN),
  'ModernBertForTokenClassification': dict(num_labels=7, **MODERN),
  'ModernBertForMultipleChoice': MODERN,
  'ModernBertForQuestionAnswering': MODERN,
}


def config_of(case: str, **fields):
  """The config of a case for transformers, or of its class with other fields."""
  return getattr(transformers, case.partition(' ')[0]).config_class(**fields or CASES[case])


def loud(model, std: float = 0.1):
  """The model in evaluation with large random weights: no bias is zero and no norm the identity."""
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      is_scale = 'norm' in name.lower() and name.endswith('weight')
      parameter.normal_(1.0 if is_scale else 0.0, std)
  return model.eval()


def state_of(model) -> dict[str, np.ndarray]:
  """A copy of its weights."""
  return {name: leaf.detach().numpy().copy() for name, leaf in model.state_dict().items()}


IDS = dict(pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3)


def like(model, name: str, std: float = 0.1, seed: int = 0, **more):
  """A model of this class, as our `config.model` says it, see `loud`; `more` has further fields of
  its config."""
  torch.manual_seed(seed)
  kind, fields = getattr(transformers, name), config_json.write(model, {}, 'float32')
  fields |= dict(attn_implementation='eager')
  if model.name in ('gpt', 'modernbert'):  # whose ids are those of large vocabularies
    fields |= IDS
  return loud(kind(kind.config_class(**(fields | more))), std)


def build(case: str, std: float = 0.1):
  """The model of a case, see `loud`."""
  torch.manual_seed(0)
  model = loud(getattr(transformers, case.partition(' ')[0])(config_of(case)), std)
  with torch.no_grad():
    if case.endswith('1.1'):  # which transformers ties
      model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    if case.startswith('BigBird'):  # whose classes for tokens have a pooler that nothing reads
      for leaf in (model.bert.pooler.weight, model.bert.pooler.bias):
        leaf.zero_()
    if case.endswith('to the left'):  # what a Transformer-XL is as an XLNet
      head = model.lm_loss.weight
      model.transformer.word_embedding.weight.copy_(head * np.float32(head.shape[1] ** 0.5))
      model.transformer.mask_emb.zero_()
      for layer in model.transformer.layer:
        layer.rel_attn.r_s_bias.zero_()
        layer.rel_attn.seg_embed.zero_()
  return model


def save(case: str, directory, std: float = 0.1):
  """Saves the model of a case; returns it."""
  model = build(case, std)
  model.save_pretrained(directory)
  return model


def opened(path):
  """(our model, what is taken of the tensors, see `huggingface.take`) of a directory; heads that it
  lacks are made."""
  found = directory.open_directory(path)
  model = directory.whole_model(found, runs.recipe_of(found.recipe).model)
  return model, found.take(model)


def check_outputs(path, model, params) -> int:
  """Holds our outputs against those of the class that a directory holds, which gets all its
  tensors; returns how many arrays are compared."""
  inputs = parity.inputs_of(model, None)
  ours = parity.ours(model, params, inputs)
  found = receipt.compared(path, model, inputs, ours, weights.read(path))
  assert found['missing'] == found['unexpected'] == []
  assert [each for each in found['differences'] if not each['ok']] == []
  return len(found['differences'])
