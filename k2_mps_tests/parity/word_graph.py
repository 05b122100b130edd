"""Makes a random decoding graph as large as the graphs of speech recognition.

The graph is the composition of a CTC topology, a lexicon and a bigram.  In dense intersection, each
arc takes a frame.  So the graph must not have epsilons.
"""

import k2
import numpy as np
import torch

FINAL_SCORE, BACKOFF_SCORE = -1.1, -2.3


class _Arcs:
    """Collects arcs of the lexicon and the bigram."""

    def __init__(self):
        self.parts = []

    def add(self, src, dest, token, score, word=0):
        """Adds arcs.  An argument is an array with a value for each arc, or one value for all arcs.

        word: the word that is complete after the arc, or 0.
        """
        columns = np.broadcast_arrays(src, dest, token, score, word)
        self.parts.append([np.asarray(column, np.float64).ravel() for column in columns])

    def columns(self):
        """Returns arrays of all arcs, sorted by src: src, dest, token, score, word."""
        columns = [np.concatenate(column) for column in zip(*self.parts)]
        order = np.argsort(columns[0], kind="stable")
        ints = [columns[i][order].astype(np.int64) for i in (0, 1, 2, 4)]
        src, dest, token, word = ints
        return src, dest, token, columns[3][order], word


def word_graph(num_words: int, num_tokens: int, num_next: int) -> k2.Fsa:
    """Returns an FsaVec of one graph, with aux_labels.

    All paths that have just ended the same word are in the same state.  Chains of states lead from
    this state through each of `num_next` words that can follow.  At a cost, a tree leads from this
    state through any word.

    Args:
      num_words: the labels of words are 1 to num_words.
      num_tokens: the labels of tokens are 1 to num_tokens; label 0 is CTC's blank.
      num_next: how many words the bigram has after each word.
    """
    random = np.random.default_rng(num_words)
    lengths = random.integers(2, 8, num_words)
    tokens = random.integers(1, num_tokens + 1, (num_words, lengths.max()))
    words = np.arange(num_words)
    scores = np.round(-np.log(words + 2.0), 3)
    arcs = _Arcs()
    # State 0 is the start.  State 1 + w is at the end of word w.
    num_states = 1 + num_words
    num_states = _add_tree(arcs, num_states, tokens, lengths, scores)
    src, dest, token, score, word = arcs.columns()
    root = src == 0
    after = np.repeat(1 + words, root.sum())
    tiled = [np.tile(column[root], num_words) for column in (dest, token, score, word)]
    arcs.add(after, tiled[0], tiled[1], tiled[2] + BACKOFF_SCORE, tiled[3])
    # A chain of states for each pair of a word and a word that follows it.
    following = random.integers(num_words, size=num_words * num_next)
    before = np.repeat(words, num_next)
    cost = -0.5 - 0.37 * random.integers(16, size=len(following))
    starts = num_states + np.cumsum(lengths[following] - 1) - (lengths[following] - 1)
    for i in range(lengths.max()):
        some = lengths[following] > i
        last = lengths[following][some] == i + 1
        source = 1 + before[some] if i == 0 else starts[some] + i - 1
        target = np.where(last, 1 + following[some], starts[some] + i)
        arcs.add(
            source,
            target,
            tokens[following[some], i],
            cost[some] if i == 0 else 0,
            np.where(last, 1 + following[some], 0),
        )
    num_states += int((lengths[following] - 1).sum())
    return _with_ctc(num_states, num_words, *arcs.columns())


def _add_tree(arcs, num_states, tokens, lengths, scores):
    """Adds a tree of all words, which begins in state 0; returns the number of states."""
    states = np.zeros(len(tokens), np.int64)  # the state that each word's path has reached
    for i in range(tokens.shape[1]):
        ends = lengths == i + 1
        arcs.add(states[ends], 1 + np.flatnonzero(ends), tokens[ends, i], scores[ends],
                 1 + np.flatnonzero(ends))  # fmt: skip
        some = lengths > i + 1
        prefixes = np.stack([states[some], tokens[some, i]])
        unique, prefix_of_word = np.unique(prefixes, axis=1, return_inverse=True)
        arcs.add(unique[0], num_states + np.arange(unique.shape[1]), unique[1], 0)
        states[some] = num_states + prefix_of_word.ravel()
        num_states += unique.shape[1]
    return num_states


def _with_ctc(num_states, num_words, src, dest, token, score, word):
    """Composes a graph with CTC's topology.

    State s becomes two states: 2 * s after a blank, and 2 * s + 1 after a token.
    """
    entered_by = np.zeros(num_states, np.int64)
    entered_by[dest] = token
    entered = np.flatnonzero(entered_by)
    states, final = np.arange(num_states), 2 * num_states
    ends = 1 + np.arange(num_words)
    other = entered_by[src] != token
    arcs = _Arcs()
    arcs.add(2 * states, 2 * states, 0, 0)
    arcs.add(2 * entered + 1, 2 * entered, 0, 0)
    arcs.add(2 * entered + 1, 2 * entered + 1, entered_by[entered], 0)
    arcs.add(2 * src, 2 * dest + 1, token, score, word)
    arcs.add((2 * src + 1)[other], (2 * dest + 1)[other], token[other], score[other], word[other])
    arcs.add(2 * ends, final, -1, FINAL_SCORE)
    arcs.add(2 * ends + 1, final, -1, FINAL_SCORE)
    src, dest, token, score, word = arcs.columns()
    columns = [src, dest, token, score.astype(np.float32).view(np.int32)]
    fsa = k2.Fsa(torch.from_numpy(np.stack(columns, 1).astype(np.int32)))
    fsa.aux_labels = torch.from_numpy(np.where(token == -1, -1, word).astype(np.int32))
    return k2.create_fsa_vec([fsa])
