"""Writes the tokenizer of an export."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, processors

from bertjax.errors import UserError, package
from bertjax.formats.tokenizer import layouts, sentencepiece_json
from bertjax.formats.tokenizer.compare import FIXED_TEXTS
from bertjax.vocab import fastbpe, whole_words
from bertjax.vocab.formats import CONFIG
from bertjax.vocab.sentencepiece_model import FAIRSEQ
from bertjax.vocab.vocabulary import Vocabulary


def write(
  vocabulary: Vocabulary,
  directory: pathlib.Path,
  family: str,
  max_length: int,
  told: layouts.Between | None = None,
) -> None:
  """Writes a tokenizer that AutoTokenizer reads with the ids of a vocabulary: tokenizer.json,
  tokenizer_config.json, special_tokens_map.json, and the files of its kind (vocab.txt; vocab.json
  and merges.txt; spiece.model; sentencepiece.bpe.model). The family decides what stands around a
  text, and `told`, if given, what between those of a pair. Raises UserError that names what cannot
  be expressed; nothing is written then."""
  family = layouts.known(family)
  around = layouts.of(vocabulary, family, told)
  if vocabulary.type == 'fastbpe':
    files = _xlm_files(vocabulary)
    config: dict[str, Any] = dict(
      tokenizer_class='XLMTokenizer',
      do_lowercase_and_remove_accent=vocabulary.lowercase,
      additional_special_tokens=list(fastbpe.SPECIAL[4:]),
    )
  elif vocabulary.type == 'openai_bpe':  # the class reads the files, and cuts words as BERT does
    files = {file.name: file.read_bytes() for file in vocabulary.files}
    config = dict(tokenizer_class='OpenAIGPTTokenizer')
  else:
    spec = _spec(vocabulary)
    spec['post_processor'] = _processor(spec, vocabulary, around)
    _check_ids(Tokenizer.from_str(json.dumps(spec)), vocabulary)
    files = {'tokenizer.json': _json(spec), **_companions(vocabulary, spec)}
    config = dict(tokenizer_class='PreTrainedTokenizerFast', do_lower_case=vocabulary.lowercase)
    normalizer = spec['normalizer'] or {}
    if normalizer.get('type') == 'BertNormalizer':  # with which BertTokenizer normalizes as we do
      config['strip_accents'] = normalizer['strip_accents']
      config['tokenize_chinese_chars'] = normalizer['handle_chinese_chars']
    config['added_tokens_decoder'] = {
      str(token['id']): {key: token[key] for key in token if key != 'id'}
      for token in spec['added_tokens']
    }
  names = layouts.names(vocabulary, family)
  config |= dict(
    model_max_length=max_length,
    padding_side='left' if family in layouts.PADDED_LEFT else 'right',
    clean_up_tokenization_spaces=False,
    model_input_names=layouts.inputs(around),
    **names,
  )
  directory.mkdir(parents=True, exist_ok=True)
  for name, content in files.items():
    (directory / name).write_bytes(content)
  (directory / CONFIG).write_bytes(_json(config))
  (directory / 'special_tokens_map.json').write_bytes(_json(names))


def _json(value: Any) -> bytes:
  return (json.dumps(value, ensure_ascii=False, indent=1) + '\n').encode()


def _spec(vocabulary: Vocabulary) -> dict[str, Any]:
  """tokenizer.json of a vocabulary, with its special tokens; what is around a text is left out."""
  control: Sequence[str] = ()
  if vocabulary.type == 'sentencepiece':
    tokenizer, control = sentencepiece_json.tokenizer_of(vocabulary)
  else:
    tokenizer = vocabulary.tokenizer
  assert tokenizer is not None  # of all types but 'sentencepiece' and those above
  if tokenizer.get_vocab_size() > vocabulary.size:
    said = 'makes some pieces unknown, which tokenizer.json cannot express'
    raise UserError(f'{vocabulary.files[0]} {said}: export without the tokenizer')
  spec = json.loads(tokenizer.to_str())
  if vocabulary.type in whole_words.END:
    spec['normalizer'] = _as_python(vocabulary, spec['normalizer'])
  roles = {
    vocabulary.pieces[i]
    for r, i in vocabulary.special.items()
    if r in layouts.ROLES and i is not None
  }
  added = {token['id']: token for token in spec['added_tokens']}
  flags = dict.fromkeys(('single_word', 'lstrip', 'rstrip', 'normalized'), False)
  for name in (*control, *roles):
    i = vocabulary.index[name]
    added.setdefault(i, dict(id=i, content=name, **flags))['special'] = True
  mask = vocabulary.special['mask']
  if mask is not None and vocabulary.type != 'wordpiece':
    added[mask]['lstrip'] = True  # pieces carry the space before them: so does the mask
  spec['added_tokens'] = [added[i] for i in sorted(added)]
  return spec


def _as_python(vocabulary: Vocabulary, normalizer: Any) -> dict[str, Any]:
  """Adds to a normalizer what Python's split() and lower() do and the Rust library does not."""
  found = []
  if vocabulary.type in whole_words.OF_WORDS:
    found.append(('[\\x1c-\\x1f]', ' '))
  if vocabulary.lowercase:
    found.append((sentencepiece_json.FINAL_SIGMA, 'ς'))
  parts = [dict(type='Replace', pattern=dict(Regex=a), content=b) for a, b in found]
  return dict(type='Sequence', normalizers=[*parts, *filter(None, [normalizer])])


def _processor(
  spec: dict[str, Any], vocabulary: Vocabulary, around: Sequence[Sequence[tuple[str, int]]]
) -> dict[str, Any]:
  """Returns the post processor of tokenizer.json that puts the special tokens around a text."""
  ids: dict[str, Any] = {
    role: vocabulary.special[role] for role, _ in around[1] if role not in 'AB'
  }
  names = {role: vocabulary.pieces[i] for role, i in ids.items()} | dict(A='$A', B='$B')
  single, pair = ([f'{names[role]}:{number}' for role, number in layout] for layout in around)
  used = [(names[role], i) for role, i in ids.items()]
  made: Any = processors.TemplateProcessing(single=single, pair=pair, special_tokens=used)
  template = json.loads(made.__getstate__())
  before = spec['pre_tokenizer'] or {}
  if before.get('type') != 'ByteLevel':
    return template
  # It trims the space that a piece begins with from the piece's offsets, as RoBERTa's does.
  return dict(type='Sequence', processors=[dict(before, trim_offsets=True), template])


def _companions(vocabulary: Vocabulary, spec: Mapping[str, Any]) -> dict[str, bytes]:
  """Returns the files that programs without tokenizer.json read."""
  if vocabulary.type == 'sentencepiece':
    file = vocabulary.files[0]
    return {FAIRSEQ if file.name == FAIRSEQ else 'spiece.model': file.read_bytes()}
  model = spec['model']
  # Of Unigram pairs of a piece and its score.
  known = {x if isinstance(x, str) else x[0] for x in model['vocab']}
  if not {*filter(None, vocabulary.pieces)} <= known or vocabulary.type in whole_words.END:
    return {}  # some ids are only in tokenizer.json
  if model['type'] == 'WordPiece':
    return {'vocab.txt': ''.join(piece + '\n' for piece in vocabulary.pieces).encode()}
  if model['type'] == 'BPE' and (spec['pre_tokenizer'] or {}).get('type') == 'ByteLevel':
    merges = [m if isinstance(m, str) else ' '.join(m) for m in model['merges']]
    lines = ''.join(line + '\n' for line in ('#version: 0.2', *merges))
    return {'vocab.json': _json(model['vocab']), 'merges.txt': lines.encode()}
  return {}


def _xlm_files(vocabulary: Vocabulary) -> dict[str, bytes]:
  package('sacremoses', f"{vocabulary.files[0]}: transformers' reader of XLM's tokenizer")
  first, second = vocabulary.files
  codes = second if first.name == 'vocab.json' else first
  merges = ''.join(f'{a} {b}\n' for a, b in fastbpe.merges_of(codes))
  return {'vocab.json': _json(vocabulary.index), 'merges.txt': merges.encode()}


def _check_ids(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
  for text, ids in zip(FIXED_TEXTS, vocabulary.encode_batch(FIXED_TEXTS), strict=True):
    theirs = tokenizer.encode(text, add_special_tokens=vocabulary.ends_lines).ids
    if theirs != ids.tolist():
      raise UserError(
        f'{vocabulary.files[0]} cannot be expressed as a tokenizer.json: {text!r} is '
        f'{ids.tolist()}, and would be {theirs}. Export without the tokenizer'
      )
