"""Fine-tuning what each family leaves: pretrained here, learned, predicted with, exported."""

import functools
import json
import random

import finetune_runs
import pytest

pytestmark = pytest.mark.full
WORDS = {'good': ('fine', 'great', 'lovely'), 'bad': ('poor', 'awful', 'dull')}
OTHERS = ('the', 'film', 'was', 'a', 'very', 'one', 'of', 'all')
TEXTS = ('the film was great', 'a very dull film')
ROOM = 64  # positions
# System -> fields of its model, and the class of transformers that a run on texts becomes.
SYSTEMS = dict(
  roberta=(dict(heads=4, positions=ROOM + 1), 'RobertaForSequenceClassification'),
  xlm_r=(dict(heads=4, positions=ROOM + 1), 'XLMRobertaForSequenceClassification'),
  longformer=(dict(heads=4, positions=ROOM + 1, window=3), 'LongformerForSequenceClassification'),
  albert=(dict(heads=4, embedding_width=16, positions=ROOM), 'AlbertForSequenceClassification'),
  ernie=(dict(heads=4, positions=ROOM), 'ErnieForSequenceClassification'),
  spanbert=(dict(heads=4, positions=ROOM), 'BertForSequenceClassification'),
  xlm=(dict(heads=4, ffn=128, positions=ROOM), 'XLMForSequenceClassification'),
  electra=(
    dict(embedding_width=16, generator_head=8, positions=ROOM),
    'ElectraForSequenceClassification',
  ),
  deberta_v3=(
    dict(heads=4, generator_head=8, generator_layers=1.0, positions=ROOM),
    'DebertaV2ForSequenceClassification',
  ),
  modernbert=(
    dict(layers=2, global_every=2, window=8, heads=4),
    'ModernBertForSequenceClassification',
  ),
  xlnet=(dict(heads=4), 'XLNetForSequenceClassification'),
  gpt=(dict(heads=4, positions=ROOM), 'GPT2ForSequenceClassification'),
)


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  """Texts whose class is told by one word among others, and text of the same words."""
  folder, draw = tmp_path_factory.mktemp('files'), random.Random(0)
  words = [*OTHERS, *WORDS['good'], *WORDS['bad']]
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '<eod>', *words]
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  sentence = lambda: ' '.join(draw.choices(words, k=draw.randrange(5, 30)))
  documents = ['\n'.join(sentence() for _ in range(3)) for _ in range(200)]
  (folder / 'text.txt').write_text('\n\n'.join(documents) + '\n')
  (folder / 'pairs.txt').write_text('\n'.join(sentence() for _ in range(100)) + '\n')
  (folder / 'lexicon.txt').write_text('very dull\n')
  for name, count in (('train', 200), ('dev', 50)):
    rows = ['stars\ttext']
    for _ in range(count):
      label = draw.choice(['good', 'bad'])
      said = draw.choices(OTHERS, k=draw.choice([1, 2, 4]))
      said.insert(draw.randrange(len(said)), draw.choice(WORDS[label]))
      rows.append(f'{label}\t{" ".join(said)}')
    (folder / f'{name}.tsv').write_text('\n'.join(rows) + '\n')
  return folder


def given(system, files):
  """(the text of a system, and keys of what it reads beside it)."""
  text, pairs = files / 'text.txt', files / 'pairs.txt'
  texts = dict(xlm_r=f'de={text},en={text}', xlm=f'de={text},en={text},de-en={pairs}+{pairs}')
  lexicon = {'data.lexicon': files / 'lexicon.txt'} if system == 'ernie' else {}
  return texts.get(system, text), lexicon


@pytest.fixture(scope='module', params=SYSTEMS)
def pretrained(request, files, tmp_path_factory):
  """(system, the workdir of four steps of it)."""
  workdir = tmp_path_factory.mktemp(request.param)
  model = dict(layers=1, width=32, ffn=64, init_std=0.2) | SYSTEMS[request.param][0]
  text, more = given(request.param, files)
  vocab = files / 'vocab.txt'
  finetune_runs.pretrain(f'{request.param}.py:test', workdir, text, vocab, model, **more)
  return request.param, workdir


def command(files, encoder, workdir):
  """Fine-tuning on the texts, from an encoder that brings its shape and its vocabulary."""
  keys = dict(length=40, epochs=10, batch_size=16, log_steps=1, init_from=encoder)
  keys |= {'data.train': files / 'train.tsv', 'data.dev': files / 'dev.tsv'}
  keys |= {'data.task.label': 'stars', 'data.task.classes': ('bad', 'good')}
  keys |= {'model.init_std': 0.2, 'optimizer.schedule.peak': 3e-3, 'data.language': 'en'}
  return finetune_runs.started('finetune/text.py', workdir, **keys)


@pytest.fixture(scope='module')
def tuned(files, pretrained, tmp_path_factory):
  """(system, workdir, what was printed)."""
  system, encoder = pretrained
  workdir = tmp_path_factory.mktemp(f'{system}-tuned')
  return system, workdir, finetune_runs.run(command(files, encoder, workdir))


def test_what_a_user_types_is_as_for_bert_and_it_learns(tuned):
  _, workdir, said = tuned
  assert 'sets config.model: ' in said and 'Made anew' in said
  assert finetune_runs.last(workdir, 'eval/dev/accuracy') > 0.9  # the majority has about half


def said_in(model, tokenizer, language, texts):
  """What a pipeline would say of each text, had it a language."""
  for text in texts:
    given = tokenizer(text, return_tensors='pt')
    logits = model(**given, langs=0 * given['input_ids'] + language).logits
    p_C = logits.softmax(-1)[0].tolist()
    yield [dict(label=model.config.id2label[i], score=p) for i, p in enumerate(p_C)]


def test_an_exported_run_says_the_same_in_transformers(tuned, tmp_path):
  import transformers

  system, workdir, _ = tuned
  exported = finetune_runs.exported(workdir, tmp_path / 'hf')
  given = json.loads((exported / 'config.json').read_text())
  assert given['architectures'] == [SYSTEMS[system][1]]
  theirs = transformers.pipeline('text-classification', str(exported), top_k=None)
  if system == 'xlm':  # to which a pipeline gives no language
    theirs = functools.partial(said_in, theirs.model, theirs.tokenizer, 1)
  theirs = theirs(list(TEXTS))
  own = ('--language=en',) if system == 'xlm' else ()
  ours = finetune_runs.predicted(workdir, *(f'--text={text}' for text in TEXTS), *own)
  for mine, other in zip(ours, theirs, strict=True):
    other = {each['label']: each['score'] for each in other}
    assert mine['probabilities'] == pytest.approx(other, abs=1e-5)
