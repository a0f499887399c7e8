"""The recipes of distillation: every value has a source, and their text says how to run them."""

import importlib

import pytest
import recipes
from mutation import mutation

RECIPES = (
  'kd:kd', 'kd:pkd', 'distilbert:', 'minilm:l6_h384', 'minilm:l12_h384', 'minilm:l6_h768',
  'minilm:l6_h384,v2', 'tinybert:4l_312', 'tinybert:6l_768', 'tinybert:4l_312,task',
  'tinybert:4l_312,answers', 'soft_labels:',
)  # fmt: skip


@pytest.mark.parametrize('recipe', RECIPES)
@mutation('cited(PRESET, temperature=own', 'dict(temperature=own', case='kd:kd')
def test_every_value_has_a_source(recipe):
  recipes.sourced('distill', recipe)


@mutation('head_dropout=0.0', 'head_dropout=0.1', file='configs/distill/tinybert.py')
def test_tinybert_learns_answers_without_dropout_on_its_head():
  """TinyBertForSequenceClassification applies none; its layers have BERT's."""
  model = importlib.import_module('configs.distill.tinybert').get_config('4l_312,answers').model
  assert (model.head_dropout, model.dropout) == (0.0, 0.1)
