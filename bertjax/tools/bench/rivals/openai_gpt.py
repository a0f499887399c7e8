"""OpenAIGPTLMHeadModel, which takes what GPT-2's class does."""

from bertjax.tools.bench.rivals.gpt2 import RIVAL as RIVAL
