"""A model that was fine-tuned elsewhere answers by its head, as transformers' own pipeline does."""

from types import SimpleNamespace

import forks
import processes
import pytest
import used_models
from mutation import mutation
from slow_imports import transformers
from tiers import in_tiers

from bertjax.errors import UserError
from bertjax.export import exporting
from bertjax.export.importing import import_model
from bertjax.models.layers.heads import Head
from bertjax.use import load

TEXTS = ['the cat sat on the mat.', 'a dog barks', 'rain fell on the town all night long']
PAIRS = ['a dog sat.', 'the cat', 'rain']
QUESTIONS = ['what sat on the mat', 'what fell on the town all night']
CLASSES = ('happy', 'sad', 'angry')
KINDS = {
  'text-classification': 'SequenceClassification', 'token-classification': 'TokenClassification',
  'question-answering': 'QuestionAnswering', 'fill-mask': 'MaskedLM',
}  # fmt: skip


def tokenizer_of(family, path):
  import tokenizers

  lines = TEXTS + QUESTIONS
  if family == 'bert':
    pieces = [*used_models.BERT, *'abcdefghijklmnopqrstuvwxyz.', *(f'##{c}' for c in 'aeimnoprst')]
    pieces += sorted(
      {word.strip('.') for line in lines for word in line.split()} - {*pieces, 'long'}
    )
    pieces += [f'##{each}' for each in ('ong', 'ng', 'g')]
    (path / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
    return transformers.BertTokenizerFast(str(path / 'vocab.txt'))
  made = tokenizers.ByteLevelBPETokenizer()
  made.train_from_iterator(
    lines * 3, 300, special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>']
  )
  made.save_model(str(path))
  mask = transformers.AddedToken('<mask>', lstrip=True, special=True)
  return transformers.RobertaTokenizerFast.from_pretrained(str(path), mask_token=mask)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """(family, task of a pipeline) -> directory of a random model, and the pipeline. A family may
  have the tokenizer of another one, and has two segments then: 'bert by roberta'."""
  import torch

  known = {}

  def get(family, task):
    if (family, task) in known:
      return known[family, task]
    kind, _, by = family.partition(' by ')
    path = tmp_path_factory.mktemp(kind)
    tokenizer = tokenizer_of(by or kind, path)
    torch.manual_seed(0)
    classes = dict(id2label=dict(enumerate(CLASSES))) if task.endswith('classification') else {}
    config = transformers.AutoConfig.for_model(
      kind, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, hidden_size=32,
      num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, initializer_range=0.4,
      max_position_embeddings=66, type_vocab_size=1 if family == 'roberta' else 2, **classes,
    )  # fmt: skip
    net = getattr(transformers, f'AutoModelFor{KINDS[task]}').from_config(config).eval()
    for part in (net, tokenizer):
      part.save_pretrained(path / 'hf')
    if task == 'question-answering':  # which has no pipeline in version 5
      return known.setdefault((family, task), (path / 'hf', (net, tokenizer)))
    pipeline = transformers.pipeline(task, model=net, tokenizer=tokenizer, device='cpu')
    return known.setdefault((family, task), (path / 'hf', pipeline))

  return get


def check_labels(found, theirs):
  for mine, other in zip(found, theirs, strict=True):
    other = {each['label']: each['score'] for each in other}
    assert tuple(mine.probabilities) == CLASSES and mine.label == max(other, key=other.__getitem__)
    assert mine.probabilities == pytest.approx(other, abs=1e-5)


@mutation('opened.languages, opened.classes, opened', 'opened.languages, {}, opened')
@mutation('layouts.Between(*told) if told else ', '', case='roberta by bert')
@mutation("if self.task.get('segments', True)", 'if True', case='bert by roberta')
@pytest.mark.parametrize('family', ['bert', 'roberta', 'bert by roberta', 'roberta by bert'])
def test_texts_and_pairs_are_classified(made, family):
  path, pipeline = made(family, 'text-classification')
  model = used_models.load(path)
  check_labels(model.label(TEXTS), pipeline(TEXTS, top_k=None))
  pairs = [dict(text=a, text_pair=b) for a, b in zip(TEXTS, PAIRS, strict=True)]
  check_labels(model.label(TEXTS, PAIRS), [pipeline(each, top_k=None) for each in pairs])
  assert used_models.load(f'hf:{path}').label(TEXTS) == model.label(TEXTS)
  with pytest.raises(UserError, match='was not fine-tuned on tags'):
    model.tag([['cat']])


@mutation('Between(layouts.separators(family), True)', 'Between(1, True)')
def test_a_model_of_an_earlier_version_tells_pairs_apart_as_its_family():
  found = SimpleNamespace(task={}, meta={}, classes={}, model=dict(family='roberta'))
  assert load.task_of(found, [Head('text', 'label', 2, '')], None)['separators'] == 2


@mutation('return told and layouts.Between(told[0], told[1] and segments)', 'return None')
def test_pairs_are_told_apart_alike_behind_both_conversions(made, tmp_path):
  path, pipeline = made('roberta by bert', 'text-classification')
  import_model(f'hf:{path}', tmp_path / 'run')
  exporting.export(tmp_path / 'run', tmp_path / 'out')
  again = type(pipeline)(
    model=pipeline.model, tokenizer=transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
  )
  pairs = [dict(text=a, text_pair=b) for a, b in zip(TEXTS, PAIRS, strict=True)]
  check_labels(used_models.load(tmp_path / 'run').label(TEXTS, PAIRS), again(pairs, top_k=None))


@pytest.mark.parametrize('family', in_tiers(['bert', 'roberta'], ['bert']))
def test_words_are_tagged(made, family):
  path, pipeline = made(family, 'token-classification')
  model = used_models.load(path)
  found = model.tag([text.split() for text in TEXTS])
  for text, tags in zip(TEXTS, found, strict=True):
    spaced = f' {text}'  # each word is encoded behind a blank
    pieces = pipeline(spaced, ignore_labels=[])
    theirs = {each['start']: each for each in reversed(pieces)}  # the first piece of a word
    starts = [n + 1 for n, letter in enumerate(spaced) if letter == ' ']
    assert len(tags) == len(starts)
    for tag, start in zip(tags, starts, strict=True):
      assert tag.tag == theirs[start]['entity']
      assert tag.probability == pytest.approx(theirs[start]['score'], abs=1e-5)
  assert [tag[:1] for tag in model.tag(['the cat, sat'])[0]] == [
    tag[:1] for tag in model.tag([['the', 'cat', ',', 'sat']])[0]
  ]
  with pytest.raises(UserError, match='expected a list of texts'):
    model.tag('the cat')  # not one character a sentence


def test_questions_are_answered(made):
  import torch

  path, (net, tokenizer) = made('roberta', 'question-answering')
  texts = [TEXTS[0], TEXTS[2]]
  found = used_models.load(path).answer(QUESTIONS, texts)
  for question, text, answer in zip(QUESTIONS, texts, found, strict=True):
    given = tokenizer(question, text, return_tensors='pt', return_offsets_mapping=True)
    place_T2, inside = given.pop('offset_mapping')[0].tolist(), given.sequence_ids(0)
    with torch.no_grad():
      out = net(**given)
    of_text = [column for column, part in enumerate(inside) if part == 1]
    score_TT = out.start_logits[0][:, None] + out.end_logits[0]
    pairs = [(a, b) for a in of_text for b in of_text if a <= b < a + 15]
    _, start, end = max((float(score_TT[pair]), *pair) for pair in pairs)
    begin = place_T2[start][0]
    assert answer.text == text[begin : place_T2[end][1]].strip()
    assert text[answer.begin :].startswith(answer.text) and answer.odds is None


def test_blanks_are_filled(made):
  path, pipeline = made('roberta', 'fill-mask')
  text = 'the cat sat on the [MASK].'
  ((found,),) = used_models.load(path).fill([text])
  theirs = pipeline(text.replace('[MASK]', pipeline.tokenizer.mask_token), top_k=5)
  assert [each.id for each in found] == [each['token'] for each in theirs]
  assert [each.probability for each in found] == pytest.approx(
    [x['score'] for x in theirs], rel=1e-3
  )


@pytest.mark.full
@mutation('run.imported_classes, run.meta', '{}, run.meta')
@mutation('        check_beside(', '        dict(', file='bertjax/predict.py')
@mutation('for one in (model, *beside)', 'for one in (model,)')
def test_converted_runs_answer_the_same_and_so_does_the_command_by_their_mean(made, tmp_path):
  theirs = []
  for family in ('bert', 'roberta'):
    path, pipeline = made(family, 'text-classification')
    import_model(f'hf:{path}', tmp_path / family)
    assert used_models.load(tmp_path / family).label(TEXTS) == used_models.load(path).label(TEXTS)
    theirs.append([{x['label']: x['score'] for x in each} for each in pipeline(TEXTS, top_k=None)])
  (tmp_path / 'in.txt').write_text('\n'.join(TEXTS))
  given = (f'--workdir={tmp_path}/bert', f'--beside={tmp_path}/roberta', '--json')
  done = forks.run(
    'bertjax.predict', *given, f'--input={tmp_path}/in.txt', cwd=processes.ROOT,
    env=processes.environment(),
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  for line, one, other in zip(used_models.json_lines(done.stdout), *theirs, strict=True):
    mean = {name: (one[name] + other[name]) / 2 for name in CLASSES}
    assert line['probabilities'] == pytest.approx(mean, abs=1e-5)
    assert line['label'] == max(mean, key=mean.__getitem__)
  other, _ = made('bert', 'token-classification')
  refused = forks.run(
    'bertjax.predict', given[0], f'--beside={other}', '--text=a', cwd=processes.ROOT,
    env=processes.environment(),
  )  # fmt: skip
  assert refused.stderr.splitlines()[-1].startswith(
    f'bertjax.predict: --beside={other} has the task'
  )
