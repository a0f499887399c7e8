"""The plans and masks of the systems, each value with its source: of configs and seqio Tasks.

A plan is `config.data.plan`, a mask `config.data.mask`; `*_PAIRS` and their like are whole recipes
of complete examples, `config.data` as far as it makes batches, for seqio Tasks.
"""

from typing import Any

from bertjax.cited import cited

SHARES = dict(rate=0.15, mask_share=0.8)  # predicted; of these [MASK]; random ids: the default, 0.1

BERT_PLAN = cited(
  'bert/create_pretraining_data.py:create_instances_from_document', name='pairs'
) | cited(
  'bert/create_pretraining_data.py:dupe_factor, short_seq_prob', dupe_factor=10, short_prob=0.1
)
BERT_MASK = (
  cited(
    'bert/create_pretraining_data.py:create_masked_lm_predictions',
    name='bert',
    rule='bert',
    mask_share=0.8,
  )
  | cited('bert/create_pretraining_data.py:masked_lm_prob', rate=0.15)
  # The same masks in every epoch.
  | cited('bert/create_pretraining_data.py:create_training_instances', static=True)
)

ROBERTA_PLAN = cited(
  'fairseq/examples/roberta/config/pretraining/base.yaml:sample_break_mode',
  name='blocks',
  break_mode='complete',
) | cited('RoBERTa paper, section 4.2; fairseq/examples/roberta: --keep-empty', separator=True)
ROBERTA_MASK = BERT_MASK | (
  cited(
    'fairseq/fairseq/data/mask_tokens_dataset.py:MaskTokensDataset',
    name='bert',
    rule='roberta',
    static=False,
  )
  # The original spares its first nspecial, <s> <pad> </s> <unk>, not <mask>, which comes last.
  | cited(
    'ours: all special tokens, by name; MaskTokensDataset may draw <mask>',
    never_drawn=('pad', 'unk', 'cls', 'sep', 'mask'),
  )
  | cited(
    'fairseq/fairseq/tasks/masked_lm.py:mask_prob, leave_unmasked_prob, random_token_prob', **SHARES
  )
)

ALBERT_PLAN = cited(
  'albert/create_pretraining_data.py:create_instances_from_document', name='order_pairs'
) | cited(
  'albert/create_pretraining_data.py:dupe_factor, short_seq_prob', dupe_factor=40, short_prob=0.1
)
ALBERT_MASK = BERT_MASK.without('rule') | cited(
  'albert/create_pretraining_data.py:create_masked_lm_predictions and its flags',
  name='albert_ngrams',
  **SHARES,
  static=True,
  max_targets=20,
)

SPANBERT_PLAN = cited(
  'SpanBERT/pretraining/fairseq/data/no_nsp_span_bert_dataset.py', name='spanbert_blocks'
)
SPANBERT_MASK = BERT_MASK | (
  cited(
    'SpanBERT/pretraining/fairseq/data/masking.py:PairWithSpanMaskingScheme',
    name='spanbert',
    rule='spans',
    **SHARES,
    static=False,
  )
)

ELECTRA_PLAN = cited(
  'electra/build_pretraining_dataset.py:ExampleBuilder', name='electra_segments', short_prob=0.05
)
ELECTRA_MASK = cited(
  'electra/pretrain/pretrain_helpers.py:mask', name='electra', mask_share=0.85, static=False
) | cited('electra/configure_pretraining.py:mask_prob, max_predictions_per_seq', rate=0.15)

DEBERTA_PLAN = cited(
  'DeBERTa/experiments/language_model/prepare_data.py: lines joined without separators',
  name='chunks',
  ends='',
  across=True,
  frame=True,
)
DEBERTA_MASK = cited(
  'DeBERTa/DeBERTa/apps/tasks/rtd_task.py:get_mask_generator', name='deberta_windows'
) | cited('DeBERTa/DeBERTa/apps/tasks/mlm_task.py:NGramMaskGenerator', rate=0.15)

ERNIE_PLAN = cited(
  'ERNIE/ERNIE/reader/pretraining.py:generate_neg_sample', name='ernie_pairs', dupe_factor=1
) | cited("ours: BERT's; the original's positives came ready made", short_prob=0.1)
ERNIE_MASK = cited(
  'ERNIE/ERNIE/batching.py:mask',
  name='ernie',
  **SHARES,
  static=False,
  never_drawn=('pad',),  # [1, V) of the original, whose [PAD] is 0
)

XLM_PLAN = cited(
  'XLM/xlm/data/dataset.py:StreamDataset, whose length is its sentences', name='xlm_stream'
)
XLM_MASK = cited('XLM/xlm/trainer.py:mask_out', name='xlm') | cited(
  'XLM/README.md:word_pred, word_mask_keep_rand', **SHARES
)
TRANSLATION_PLAN = cited(
  'XLM/xlm/utils.py:concat_batches', name='translation_pairs', lead='sep', reset_positions=True
) | cited("XLM/README.md's commands: en-ar and ar-en", orders='both')
DISTILBERT_PLAN = cited(
  'transformers/examples/research_projects/distillation/lm_seqs_dataset.py:LmSeqsDataset',
  name='sequences',
)
DISTILBERT_MASK = cited(
  'transformers/examples/research_projects/distillation/distiller.py:prepare_batch_mlm',
  name='distilbert',
) | cited(
  'transformers/examples/research_projects/distillation/train.py:'
  'mlm_mask_prop, word_mask, word_rand, mlm_smoothing',
  **SHARES,
)
# zihangdai/xlnet; `reuse_len` and `perm_size` follow from the length.
XLNET_PLAN = cited('xlnet/README.md:reuse_len, bi_data', name='xlnet_columns', reuse_len=256)
XLNET_MASK = cited(
  'xlnet/README.md:perm_size', name='xlnet_permutation', reuse_len=256, perm_size=256
)
DIFFUSION_MASK = cited('mdlm/diffusion.py:q_xt, _sample_t', name='diffusion')
CAUSAL_MASK = cited('ours: every token is a target', name='causal')

_TEXT: dict[str, Any] = dict(
  lowercase=None,
  split='auto',
  errors='strict',
  field='text',
  skip_bad=False,
  documents=0,
  columns=(),
  lexicon='',
  segmenter='',
  languages=(),
  language_alpha=None,
  language_block=1,
  pack=1,
)
BERT_PAIRS = _TEXT | dict(plan=BERT_PLAN, mask=BERT_MASK)
ROBERTA_SENTENCES = _TEXT | dict(split='lines', plan=ROBERTA_PLAN, mask=ROBERTA_MASK)
ALBERT_PAIRS = _TEXT | dict(plan=ALBERT_PLAN, mask=ALBERT_MASK)
SPANBERT_BLOCKS = _TEXT | dict(plan=SPANBERT_PLAN, mask=SPANBERT_MASK)
ELECTRA_SEGMENTS = _TEXT | dict(plan=ELECTRA_PLAN, mask=ELECTRA_MASK)
DISTILBERT_SEQUENCES = _TEXT | dict(
  split='lines', pack=16, plan=DISTILBERT_PLAN, mask=DISTILBERT_MASK
)
# Its units are ours for English: runs of capitalised words. A text of another language wants
# another segmenter, or a lexicon.
ERNIE_PAIRS = _TEXT | dict(segmenter='capitals', pack=8, plan=ERNIE_PLAN, mask=ERNIE_MASK)
