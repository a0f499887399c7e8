"""Random models of transformers at odd shapes, saved as directories."""

import numpy as np
import torch
import transformers

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
NARROW = dict(embedding_size=20, **SHAPES)
t = transformers
# Name of a case, a class and perhaps a remark behind it -> its config.
CASES = {
  'BertForPreTraining': t.BertConfig(**SHAPES),
  'BertForMaskedLM': t.BertConfig(hidden_act='gelu_new', **SHAPES),
  'BertModel': t.BertConfig(**SHAPES),
  'BertForSequenceClassification': t.BertConfig(num_labels=5, **SHAPES),
  'BertForQuestionAnswering': t.BertConfig(**SHAPES),
  'BertForMultipleChoice': t.BertConfig(**SHAPES),
  'BertForTokenClassification': t.BertConfig(num_labels=7, **SHAPES),
  'RobertaForMaskedLM': t.RobertaConfig(**SHAPES),
  'RobertaModel': t.RobertaConfig(**SHAPES),
  'RobertaForSequenceClassification': t.RobertaConfig(num_labels=5, **SHAPES),
  'RobertaForQuestionAnswering': t.RobertaConfig(**SHAPES),
  'RobertaForMultipleChoice': t.RobertaConfig(**SHAPES),
  'XLMRobertaForTokenClassification': t.XLMRobertaConfig(num_labels=7, **SHAPES),
  'XLMRobertaForMaskedLM': t.XLMRobertaConfig(layer_norm_eps=1e-5, **SHAPES),
  'AlbertForPreTraining': t.AlbertConfig(num_hidden_groups=2, inner_group_num=2, **NARROW),
  'AlbertForMaskedLM': t.AlbertConfig(**NARROW),
  'AlbertForSequenceClassification': t.AlbertConfig(num_labels=3, **NARROW),
  'AlbertForTokenClassification': t.AlbertConfig(num_labels=7, **NARROW),
  'AlbertForQuestionAnswering': t.AlbertConfig(**NARROW),
  'AlbertModel': t.AlbertConfig(**NARROW),
  'ElectraForPreTraining': t.ElectraConfig(**NARROW),
  'ElectraForMaskedLM': t.ElectraConfig(**NARROW),
  'ElectraModel': t.ElectraConfig(**NARROW),
  'ElectraForSequenceClassification': t.ElectraConfig(num_labels=3, **NARROW),
  'ElectraForTokenClassification': t.ElectraConfig(num_labels=7, **NARROW),
  'ElectraForMultipleChoice': t.ElectraConfig(**NARROW),
  'ElectraForQuestionAnswering': t.ElectraConfig(**NARROW),
  'XLNetLMHeadModel': t.XLNetConfig(**XLNET),
  'XLNetModel': t.XLNetConfig(**XLNET),
  'XLNetForSequenceClassification': t.XLNetConfig(num_labels=3, **XLNET),
  'XLNetForTokenClassification': t.XLNetConfig(num_labels=7, **XLNET),
  'XLNetForMultipleChoice': t.XLNetConfig(**XLNET),
  'XLNetForQuestionAnswering': t.XLNetConfig(**XLNET),
  'XLNetForQuestionAnsweringSimple': t.XLNetConfig(**XLNET),
  'XLNetLMHeadModel to the left': t.XLNetConfig(
    attn_type='uni', tie_word_embeddings=False, ff_activation='relu', **XLNET
  ),
  'XLMWithLMHeadModel': t.XLMConfig(n_langs=4, **XLM),
  'XLMModel': t.XLMConfig(gelu_activation=False, **XLM),
  'XLMForSequenceClassification': t.XLMConfig(n_langs=4, num_labels=3, **XLM),
  'XLMForTokenClassification': t.XLMConfig(use_lang_emb=False, num_labels=7, **XLM),
  'XLMForMultipleChoice': t.XLMConfig(n_langs=4, summary_use_proj=False, num_labels=36, **XLM),
  'XLMForQuestionAnswering': t.XLMConfig(n_langs=4, **XLM),
  'XLMForQuestionAnsweringSimple': t.XLMConfig(n_langs=4, **XLM),
  'ErnieForPreTraining': t.ErnieConfig(use_task_id=False, hidden_act='relu', **SHAPES),
  'DistilBertForMaskedLM': t.DistilBertConfig(**DISTIL),
  'DistilBertModel': t.DistilBertConfig(**DISTIL),
  'DistilBertForSequenceClassification': t.DistilBertConfig(num_labels=3, **DISTIL),
  'DistilBertForTokenClassification': t.DistilBertConfig(num_labels=7, **DISTIL),
  'DistilBertForMultipleChoice': t.DistilBertConfig(**DISTIL),
  'DistilBertForQuestionAnswering': t.DistilBertConfig(**DISTIL),
  'ModernBertForMaskedLM': t.ModernBertConfig(**MODERN),
  'ModernBertModel': t.ModernBertConfig(global_attn_every_n_layers=2, **MODERN),
  'ModernBertForSequenceClassification': t.ModernBertConfig(
    num_labels=3, classifier_pooling='mean', **MODERN
  ),
  'ModernBertForTokenClassification': t.ModernBertConfig(num_labels=7, **MODERN),
  'ModernBertForMultipleChoice': t.ModernBertConfig(**MODERN),
  'ModernBertForQuestionAnswering': t.ModernBertConfig(**MODERN),
}


def build(case: str, std: float = 0.1):
  """The model of a case; no bias is zero and no norm the identity."""
  torch.manual_seed(0)
  model = getattr(transformers, case.partition(' ')[0])(CASES[case]).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      is_scale = 'norm' in name.lower() and name.endswith('weight')
      parameter.normal_(1.0 if is_scale else 0.0, std)
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
