"""The recipes of fine-tuning and distillation: whole, with sources, scored by what a task has."""

import dataclasses
import importlib

import pytest
from mutation import mutation

from bertjax.config import schema, sections, timeline
from bertjax.errors import UserError
from bertjax.evals import choice, classification, generated, tagging
from bertjax.evals.squad import scores
from bertjax.examples.labelled import classify, tags
from bertjax.examples.labelled.common import from_config
from bertjax.vocab.vocabulary import load_vocabulary
from configs.finetune import chinese, families, glue, squad, tasks, tfds, xnli


def whole(config):
  """The config with its defaults."""
  sections.complete(config)
  return config


def sourced(folder, recipe):
  """The config of 'NAME:ARGUMENT', whose values all have a source, and whose text says its use."""
  name, _, argument = recipe.partition(':')
  module = importlib.import_module(f'configs.{folder}.{name}')
  config = module.get_config(argument or None)
  assert not [row.key for row in schema.listing(config) if not row.source]
  assert f'python -m bertjax.main --config=configs/{folder}/{name}.py' in module.__doc__
  return config


OTHERS = """
  text:classes text:number text:several ulmfit:classes elmo:ner elmo:pos elmo:classes write:t5
  write:bart tagging:ner tagging:pos chinese:chnsenticorp chinese:msra_ner chinese:xnli probe:ner
  probe:pos choice:dream choice:race choice:swag squad:v1 squad:v2 squad:v1,de,zh
  squad:v2,electra,de xnli:de,zh
"""
RECIPES = [
  *(f'glue:{task}' for task in glue.TASKS),
  *OTHERS.split(),
  *(f'tfds:glue/{task}' for task in ('cola', 'stsb', 'mnli')),
  *(f'tfds:{name}' for name in tfds.OTHERS),
  # Tasks that a family knows by their names.
  *(f'glue:{t},{f}' for t in ('qnli', 'qqp', 'stsb') for f in families.having(t) if f != 'bert'),
  *(f'squad:{v},{f}' for v in ('v1', 'v2') for f in families.having(v) if f != 'bert'),
]


@pytest.mark.parametrize('recipe', RECIPES)
@mutation('update(cited("GLUE\'s files", header=header))', 'header = header', case='glue:cola')
def test_every_value_has_a_source_and_best_is_a_score(recipe):
  config = sourced('finetune', recipe)
  if recipe in ('text:classes', 'text:several', 'ulmfit:classes', 'elmo:classes'):  # the user's
    config.data.task.classes = ('a', 'b')
  task, options = from_config.task_of(config.data.task)
  (classes,) = task.classes(options).values() or (0,)
  names = dict(
    write=lambda: generated.NAMES,
    classify=lambda: classification.names(classes, options.several),
    tags=lambda: tagging.names(options.scheme),
    choice=lambda: choice.NAMES,
    spans=lambda: scores.names(options.no_answer),
  )
  assert config.best.metric.removeprefix('eval/dev/') in names[config.data.task.name]()


DISTILLED = (
  'kd:kd', 'kd:pkd', 'distilbert:', 'minilm:l6_h384', 'minilm:l12_h384', 'minilm:l6_h768',
  'minilm:l6_h384,v2', 'tinybert:4l_312', 'tinybert:6l_768', 'tinybert:4l_312,task',
  'tinybert:4l_312,answers', 'soft_labels:',
)  # fmt: skip


@pytest.mark.parametrize('recipe', DISTILLED)
@mutation('cited(PRESET, temperature=own', 'dict(temperature=own', case='kd:kd')
def test_every_value_of_a_student_has_a_source(recipe):
  sourced('distill', recipe)


@mutation('head_dropout=0.0', 'head_dropout=0.1', file='configs/distill/tinybert.py')
def test_tinybert_learns_answers_without_dropout_on_its_head():
  """TinyBertForSequenceClassification applies none; its layers have BERT's."""
  model = importlib.import_module('configs.distill.tinybert').get_config('4l_312,answers').model
  assert (model.head_dropout, model.dropout) == (0.0, 0.1)


@mutation("columns = dict(text=('text_a', 'text_b')", "columns = dict(text=('text_a',)")
@mutation("separator='\\x02'", "separator=' '")
def test_chinese_tasks_are_read_from_the_files_of_ernie(shared):
  vocabulary = load_vocabulary(shared / 'tokenizers/ernie-1.0/vocab.txt')

  def read(task, kind):
    options = from_config.task_of(chinese.get_config(task).data.task)[1]
    found = list(kind.read(str(shared / f'zh/tasks/{task}/dev.tsv.gz'), options))
    return found, kind.encode(found[:50], options, vocabulary, 256)

  opinions, made = read('chnsenticorp', classify)
  assert len(opinions) == 1200 and set(made.label['label']) == {0, 1}
  pairs, made = read('xnli', classify)
  assert len(pairs) == 2490 and set(made.label['label']) == {0, 1, 2}
  assert [r.values['label'] for r in pairs[:2]] == ['neutral', 'contradiction']
  assert made.label['label'][:2].tolist() == [2, 0]
  assert all(type_T.any() for type_T in made.type_n)
  sentences, made = read('msra_ner', tags)
  assert len(sentences) == 2318 and len(sentences[0].words) == 69
  tagged = sum(weight_T.sum() for weight_T in made.token_label['tag_weight'])
  assert tagged == sum(min(len(s.words), 254) for s in sentences[:50])


def files_and_steps(config):
  """Name of an evaluation -> its file, and its steps, where those of the run are 7."""
  config.eval_steps = 7
  return {name: (given.file, given.every) for name, given in config.evals.items()}


def test_each_language_is_judged_by_a_file_of_its_own():
  found = files_and_steps(whole(xnli.get_config('de,zh')))
  assert found == dict(dev=('', 7), de=('de.jsonl', 7), zh=('zh.jsonl', 7))
  for wrong in ('de,', 'dev', 'de;zh'):
    with pytest.raises(UserError, match='expected languages with commas'):
      xnli.get_config(wrong)


@mutation("file=f'xquad.{name}.json', every=0", "file=f'xquad.{name}.json'")
@mutation('**c.evals.dev)', "**recipe(version == 'v2').evals.dev)")
def test_questions_are_judged_in_other_languages_at_the_end():
  config = whole(squad.get_config('v1,electra,de,zh'))
  found = files_and_steps(config)
  assert found == dict(dev=('', 7), de=('xquad.de.json', 0), zh=('xquad.zh.json', 0))
  assert {given.threshold for given in config.evals.values()} == {-2.75}
  assert config.best.metric == 'eval/dev/f1'
  assert list(squad.get_config('v2').evals) == ['dev']
  for wrong, said in (
    ('v1,dev', "'dev' is the language that is learned"), ('v1,elektra,de', "mean 'electra'"),
    ('v1,roberta,albert', "unknown size 'roberta,albert'"),
  ):  # fmt: skip
    with pytest.raises(UserError, match=said):
      squad.get_config(wrong)


@mutation("file='dev_mismatched.tsv'", "file=''")
def test_glue_is_read_from_its_files(tmp_path):
  """CoLA's test file alone has a header; MNLI has a second dev file."""
  texts = dict(train='gj04\t1\t\ta film\n', test='index\tsentence\n0\ta film\n')
  options = from_config.task_of(whole(glue.get_config('cola')).data.task)[1]
  for name, text in texts.items():
    (tmp_path / f'{name}.tsv').write_text(text)
    asked = dataclasses.replace(options, unlabelled=name == 'test')
    (record,) = classify.read(str(tmp_path / f'{name}.tsv'), asked)
    assert record.values['sentence'] == 'a film'
  files = {name: given.file for name, given in whole(glue.get_config('mnli')).evals.items()}
  assert files == dict(dev='', mm='dev_mismatched.tsv')


@mutation('objective = task.data.task, task.objective', 'objective = task.data.task, c.objective')
def test_several_tasks_keep_their_own_and_share_the_rest():
  arg = 'sst2,points=text:number,names=tagging:ner,asked=squad:v2,choice=choice:dream,x=xnli:de'
  c = sourced('finetune', f'tasks:{arg}')
  phases = {phase.name: phase.config for phase in timeline.make(c).parts}
  kinds = {name: (p.data.task.name, p.objective.name) for name, p in phases.items()}
  assert kinds == dict(
    sst2=('classify', 'classify'), points=('classify', 'classify'), names=('tags', 'tag'),
    asked=('spans', 'spans'), choice=('choice', 'choose'), x=('classify', 'classify'),
  )  # fmt: skip
  assert phases['sst2'].data.task == whole(glue.get_config('sst2')).data.task
  assert set(phases['x'].evals) == {'dev', 'de'} and set(phases['names'].evals) == {'dev'}
  assert phases['names'].evals.dev.type == 'tagging'
  assert {p.optimizer.schedule.peak for p in phases.values()} == {5e-5}
  assert c.best.mean[:2] == ('eval/sst2/dev/accuracy', 'eval/points/dev/spearman')
  c.eval_steps = 7
  assert {p.config.evals.dev.every for p in timeline.make(c).parts} == {7}


# What the originals' commands and flags say: steps or epochs, batch, length, peak, warm-up of 1000.
PUBLISHED = {
  'mrpc': (3.0, 32, 128, 3e-5, 100, 'bert_linear'),
  'mrpc,roberta': (10.0, 16, 512, 1e-5, 60, 'linear'),
  'rte,roberta': (10.0, 16, 512, 2e-5, 60, 'linear'),
  'qqp,roberta': (10.0, 32, 512, 1e-5, 250, 'linear'),
  'mrpc,albert': (800, 32, 512, 2e-5, 250, 'bert_linear'),
  'mnli,albert': (10_000, 128, 512, 3e-5, 100, 'bert_linear'),
  'mrpc,electra': (3.0, 32, 128, 1e-4, 100, 'product_linear'),
  'rte,electra': (10.0, 32, 128, 1e-4, 100, 'product_linear'),
  'stsb,electra_large': (10.0, 32, 128, 5e-5, 100, 'product_linear'),
  'v1,roberta': (2.0, 48, 384, 1.5e-5, 60, 'linear'),
  'v2,electra': (2.0, 32, 512, 1e-4, 100, 'product_linear'),
  'v2,xlnet': (8000, 48, 512, 3e-5, 125, 'linear'),
  'v2,xlnet_base': (12_000, 24, 512, 2e-5, 83, 'linear'),
}


@pytest.mark.parametrize('recipe', PUBLISHED)
@mutation("if task == 'qqp':", "if task == 'QQP':", case='qqp,roberta')
@mutation("LONGER = ('rte', 'stsb')", "LONGER = ('stsb',)", case='rte,electra')
@mutation("c.get_ref('total_steps') * warmup // steps", 'warmup', case='mrpc,albert')
def test_a_family_is_fine_tuned_as_its_original_was(recipe):
  c = (squad if recipe.startswith('v') else glue).get_config(recipe)
  assert c.epochs or c.total_steps == PUBLISHED[recipe][0]
  first = c.epochs or c.total_steps
  c.total_steps = 1000
  schedule = c.optimizer.schedule
  found = (first, c.batch_size, c.length, schedule.peak, schedule.warmup_steps, schedule.name)
  assert found == PUBLISHED[recipe]


# The head, its dropout, and of an evaluation n-best, tokens of an answer, threshold.
HEADS = {
  'v2': ('none', 0.0, 20, 30, 0.0),
  'v2,roberta': ('none', 0.0, 20, 30, 0.0),
  'v1,albert': ('none', 0.0, 20, 30, 0.0),
  'v2,albert': ('xlnet', 0.1, 20, 30, 0.0),
  'v1,electra': ('electra', 0.0, 20, 30, -2.75),
  'v2,electra_large': ('electra', 0.0, 20, 30, -2.75),
  'v1,xlnet': ('xlnet', 0.1, 5, 64, 0.0),
  'v2,xlnet_base': ('xlnet', 0.1, 5, 64, 0.0),
}


@pytest.mark.parametrize('recipe', HEADS)
@mutation("if task == 'v2':", 'if task:', case='v1,albert')
def test_a_family_answers_with_the_head_of_its_original(recipe):
  c = whole(squad.get_config(recipe))
  dev = c.evals.dev
  found = (c.model.answers, c.model.head_dropout, dev.best, dev.longest, dev.threshold)
  assert found == HEADS[recipe]
  assert c.model.token_labels == ((('span', 0),) if c.model.answers == 'none' else ())


@pytest.mark.parametrize(
  ('module', 'arg', 'said'),
  [
    (tasks, 'sst2,sstb', "did you mean 'stsb'"),
    (tasks, 'sst2,mrpc,sst2', "give 'sst2' another name"),
    (tasks, 'sst2,,mrpc', "give '' another name"),
    (tasks, 'mine=txt', "did you mean 'text'"),
    (glue, 'mrpc,elektra', "did you mean 'electra'"),
    (glue, 'mrcp,electra', "did you mean 'mrpc'"),
    (glue, 'mrpc,xlnet', "unknown size 'xlnet', expected one of bert, roberta, albert, electra"),
  ],
)
def test_a_task_or_a_family_that_there_is_not_is_refused(module, arg, said):
  with pytest.raises(UserError, match=said):
    module.get_config(arg)
