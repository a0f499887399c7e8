"""A table that describes a finished store to the person who made it."""

from rich.console import Console
from rich.table import Table

from bertjax.store.reader import Store, open_store
from bertjax.text import sentence_split
from bertjax.vocab.vocabulary import Vocabulary, much_unknown

_LINES_ARE = {
  sentence_split.LINES: 'sentences',
  sentence_split.SENTENCES: 'paragraphs',
  sentence_split.VERBATIM: 'kept as they are',
}


def show(store: Store, vocabulary: Vocabulary, rate: float) -> None:
  """Prints the table; `rate` is in tokens per second."""
  meta, stats = store.meta, store.meta['stats']
  held_out = open_store(store.path / 'heldout').meta if (store.path / 'heldout').exists() else None
  unk = vocabulary.special['unk']
  unknown = 0 if unk is None else store.counts[unk] / max(meta['tokens'], 1)
  table = Table(title=str(store.path), show_header=held_out is not None)
  for column in ('', 'train', 'held out'):
    table.add_column(column, justify='right' if column else 'left')
  for name in ('documents', 'sentences', 'tokens'):
    table.add_row(name, f'{meta[name]:,}', f'{held_out[name]:,}' if held_out else '')
  table.add_row('unknown tokens', f'{unknown:.4%}')
  bad = stats['bad_lines'] + stats['bad_documents']
  for name, count, shown in (
    ('empty documents dropped', stats['empty_documents'], True),
    ('empty sentences dropped', stats['empty_sentences'], True),
    ('characters replaced', stats['replaced'], True),
    ('special tokens that are spelled in the text', stats['spelled_special'], True),
    ('bad lines, records and documents left out', bad, bad),
    ('pairs with an empty side dropped', stats['broken_pairs'], stats['broken_pairs']),
    ('phrases and entities found', stats['found_units'], meta['units']),
  ):
    if shown:
      table.add_row(name, f'{count:,}')
  if meta['languages']:
    table.add_row('languages', ', '.join(meta['languages']))
  table.add_row('text', f'{stats["bytes"] / 1e6:,.1f} MB')
  table.add_row('lines are', _LINES_ARE[meta['split']])
  table.add_row('lowercase', str(vocabulary.lowercase).lower())
  table.add_row('accents', 'kept' if vocabulary.accents else 'stripped')
  table.add_row('tokens/s', f'{rate:,.0f}')
  Console().print(table)
  if warning := much_unknown(unknown):
    print(f'Warning: {warning}')
  tokens = held_out['tokens'] if held_out else 0
  asked, share = meta['options']['holdout'], tokens / max(tokens + meta['tokens'], 1)
  much = share > 3 * asked + 0.01
  if much or asked and not held_out:
    said = f'{share:.0%} of the tokens are' if much else 'nothing is'
    print(
      f'Warning: {said} held out, where --holdout={asked:g} asks for that share: few documents '
      'are there, which in plain text empty lines separate; --holdout=0 keeps all for training'
    )
  for name in stats['bad_first']:
    print(f'left out: {name}')
  if bad > len(stats['bad_first']):
    print(f'left out: {bad - len(stats["bad_first"]):,} more')
