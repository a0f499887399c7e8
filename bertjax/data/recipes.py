"""Recipes of complete examples, `config.data` as configs/ has it, for seqio Tasks."""

_BERT_MASK = dict(
  rule='bert',
  rate=0.15,
  mask_share=0.8,
  random_share=0.1,
  whole_word=False,
  static=True,
  max_targets=0,
  special_ids=0,
)
BERT_PAIRS = dict(
  lowercase=None,
  split='auto',
  errors='strict',
  documents=0,
  columns=(),
  lexicon='',
  segmenter='',
  plan='pairs',
  dupe_factor=10,
  short_prob=0.1,
  pack=False,
  max_examples=8,
  language_alpha=None,
  language_block=1,
  languages=(),
  corrupt='bert',
  mask=_BERT_MASK,
)
ROBERTA_SENTENCES = BERT_PAIRS | dict(
  split='lines',
  plan='full_sentences',
  mask=_BERT_MASK | dict(rule='roberta', static=False, special_ids=4),
)
ALBERT_PAIRS = BERT_PAIRS | dict(
  plan='order_pairs',
  random_b=True,
  dupe_factor=40,
  corrupt='albert_ngrams',
  mask=_BERT_MASK | dict(whole_word=True, ngram=3, favor_longer=False, max_targets=20),
)
SPANBERT_BLOCKS = BERT_PAIRS | dict(
  plan='spanbert_blocks',
  keep_block=False,
  corrupt='spanbert',
  mask=_BERT_MASK
  | dict(
    rule='spans',
    static=False,
    max_words=10,
    geometric_p=0.2,
    entity_prob=0.0,
    max_pair_targets=15,
  ),
)
ELECTRA_SEGMENTS = BERT_PAIRS | dict(
  plan='electra_segments',
  short_prob=0.05,
  one_segment_prob=0.1,
  rejoin=True,
  corrupt='electra',
  mask=_BERT_MASK | dict(static=False, mask_share=0.85, random_share=0.0, replacement=True),
)
# Its units are ours for English: runs of capitalised words. A text of another language wants
# another segmenter, or a lexicon.
ERNIE_PAIRS = BERT_PAIRS | dict(
  segmenter='capitals',
  plan='ernie_pairs',
  dupe_factor=1,
  halves=True,
  pack=True,
  corrupt='ernie',
  mask=_BERT_MASK | dict(rule='units', static=False, special_ids=1, word_prob=0.5, block=64),
)
