"""ERNIE 1.0 is BERT to `transformers`, whose own class adds task ids."""

from bertjax.tools.bench.rivals.bert import RIVAL as RIVAL
