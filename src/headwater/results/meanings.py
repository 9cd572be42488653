"""What the words beside the numbers mean, in a sentence each: shown wherever such a word stands.

The glossary (docs/glossary.md) has the same sentences.
"""

from __future__ import annotations

MEANINGS = {
    "relevance": "how much an input contributed to a score, in the score's unit; negative where it lowered it",
    "score": "the one number that is explained: a logit, a probability, a difference of two logits, or a function of "
    "your own",
    "logit": "the number that a model gives to a class or a token before it is made a probability",
    "advantage": "a logit minus the mean of all logits, weighed by their probabilities at a temperature of 2: what "
    "sets a token apart from the others",
    "ledger": "the sum written out: inputs + biases + constants + what was cut off or held + readout + unaccounted = "
    "score",
    "inputs": "what is explained: the embeddings of the tokens, an image's pixels, a graph's nodes, or a tensor or a "
    "module's output that you name",
    "biases": "learned numbers that enter by themselves, whatever the input is (a bias vector, a class token), and "
    "take their share of the score",
    "constants": "what is neither an input nor a bias: rows of a table that no word chose (of positions, of "
    "distances), numbers in the model's code, and what was set aside, such as the attention offset",
    "cut off": "what was made from the input, but by a way that no gradient goes back",
    "held": "learned numbers that are multiplied by something a rule holds constant, although it depends on the input",
    "readout": "what the score function adds of its own, where the score is no sum of the model's outputs, as a "
    "probability is not",
    "unaccounted": "what the method lost or invented on its way from the score to the inputs",
    "attention offset": "the part of attention weights that comes from no query and no key: weights sum to 1 whatever "
    "the words are, so this part of the score belongs to no word",
    "attention sink": "the first token, on which attention rests without reading it; its relevance can be set aside, "
    "as a line of the ledger",
    "special tokens": "tokens that the tokenizer adds and no text has; their relevance can be set aside, as a line of "
    "the ledger",
    "score of the baseline": "what the model says to an input with nothing in it (unknown words, an image of zeros); "
    "the inputs have what they add to it",
    "audit": "one explanation with every module watched: where relevance is kept, and where it is lost",
    "method": "a way to give relevance, by name",
    "mask": "to put the token for an unknown word in place of a word and to ask the model again",
}

# Lines among the constants that have a name of their own: a sum names them, for they are no numbers of the model.
OWN_NAMES = ("attention offset", "attention sink", "special tokens", "score of the baseline")
_SINGULAR = {"bias": "biases", "constant": "constants", "offset": "attention offset", "sink": "attention sink"}


def kind_of_line(name: str) -> str:
    """What a line of the ledger is of, without its module: `layers.0.self_attn: attention offset` is an offset."""
    return name.rpartition(": ")[2].rpartition(".")[2]


def meaning_of(word: str) -> str:
    """What a word or a line of the ledger is, in a sentence; empty where it needs none. Its last part decides."""
    last = kind_of_line(word)
    for name in (word, last, _SINGULAR.get(last, "")):
        if name in MEANINGS:
            return MEANINGS[name]
    return ""
