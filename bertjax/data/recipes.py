"""The plans and masks of the systems, one home for each: of configs and seqio Tasks.

A plan is `config.data.plan`, a mask `config.data.mask`; `*_PAIRS` and their like are whole recipes
of complete examples, `config.data` as far as it makes batches, for seqio Tasks.
"""

from typing import Any

# google-research/bert, create_pretraining_data.py
BERT_PLAN: dict[str, Any] = dict(name='pairs', dupe_factor=10, short_prob=0.1)
BERT_MASK: dict[str, Any] = dict(
  name='bert',
  rule='bert',
  rate=0.15,
  mask_share=0.8,
  random_share=0.1,
  whole_word=False,
  static=True,  # the same masks in every epoch
  max_targets=0,  # slots per row; 0: ceil(rate * length)
  special_ids=0,  # ids below it are never drawn as random replacements
)

# fairseq, mask_tokens_dataset.py
ROBERTA_PLAN: dict[str, Any] = dict(name='blocks', break_mode='complete')
ROBERTA_MASK = BERT_MASK | dict(rule='roberta', static=False, special_ids=4)

# google-research/albert, create_pretraining_data.py
ALBERT_PLAN: dict[str, Any] = dict(
  name='order_pairs', dupe_factor=40, short_prob=0.1, random_b=True
)
ALBERT_MASK: dict[str, Any] = {k: v for k, v in BERT_MASK.items() if k != 'rule'} | dict(
  name='albert_ngrams', whole_word=True, ngram=3, favor_longer=False, max_targets=20
)

# facebookresearch/SpanBERT, pretraining/fairseq
SPANBERT_PLAN: dict[str, Any] = dict(name='spanbert_blocks', keep_block=False)
SPANBERT_MASK: dict[str, Any] = {k: v for k, v in BERT_MASK.items() if k != 'whole_word'} | dict(
  name='spanbert',
  rule='spans',
  static=False,
  max_words=10,
  geometric_p=0.2,
  entity_prob=0.0,
  max_pair_targets=15,
)

# google-research/electra, build_pretraining_dataset.py and pretrain_helpers.py
ELECTRA_PLAN: dict[str, Any] = dict(
  name='electra_segments',
  short_prob=0.05,
  one_segment_prob=0.1,
  rejoin=True,  # quirk: a short sentence joins the first segment even after the second has begun
)
ELECTRA_MASK: dict[str, Any] = dict(
  name='electra',
  rate=0.15,
  mask_share=0.85,
  static=False,
  max_targets=0,  # int((rate + .005) * length)
  replacement=True,  # quirk: slots are drawn with replacement; False makes them distinct
)

# PaddlePaddle/ERNIE 1.0, batching.py
ERNIE_PLAN: dict[str, Any] = dict(
  name='ernie_pairs',
  dupe_factor=1,  # negatives are as many again
  short_prob=0.1,  # ours, as BERT's; the original's positives came ready made
  halves=True,  # ours: so that the length does not tell which pairs are next
)
ERNIE_MASK: dict[str, Any] = dict(
  name='ernie',
  rate=0.15,
  mask_share=0.8,
  random_share=0.1,
  static=False,
  max_targets=0,  # mean and 5 deviations
  special_ids=1,  # random ids in [1, V): all but [PAD]
  word_prob=0.5,  # ours: mask_word of a file is its own
  block=64,  # ours: rows that share the coin, the original's file
)

# facebookresearch/XLM
XLM_PLAN: dict[str, Any] = dict(name='xlm_stream')
XLM_MASK: dict[str, Any] = dict(
  name='xlm',
  rate=0.15,
  mask_share=0.8,
  random_share=0.1,
  static=False,
  max_targets=0,  # mean and 5 deviations
  special_ids=0,
  alpha=0.0,  # sample_alpha, the code's default; paper 0.5 (unverified)
  block=32,  # rows of a batch of the original
)
TRANSLATION_PLAN: dict[str, Any] = dict(name='translation_pairs', lead='sep', reset_positions=True)
CAUSAL_MASK: dict[str, Any] = dict(name='causal')

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
# Its units are ours for English: runs of capitalised words. A text of another language wants
# another segmenter, or a lexicon.
ERNIE_PAIRS = _TEXT | dict(segmenter='capitals', pack=8, plan=ERNIE_PLAN, mask=ERNIE_MASK)
