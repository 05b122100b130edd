"""Tests the synthetic speech of the examples, without k2."""

import torch

from examples.common import speech


def test_a_seed_makes_the_same_speech():
    one, same = speech.make_batch(3, 4), speech.make_batch(3, 4)
    assert torch.equal(one.features, same.features)
    assert one.words == same.words
    for other in (speech.make_batch(4, 4), speech.make_batch(3, 4, held_out=True)):
        assert other.words != one.words


def test_the_longest_utterance_comes_first():
    batch = speech.make_batch(0, 6)
    assert batch.num_frames.tolist() == sorted(batch.num_frames.tolist(), reverse=True)
    assert batch.features.shape == (6, batch.num_frames[0], speech.NUM_FILTERS)


def test_utterances_are_padded_with_zeros():
    batch = speech.make_batch(0, 6)
    for features, frames in zip(batch.features, batch.num_frames):
        assert not features[frames:].any()
        assert features[:frames].isfinite().all() and features[frames - 1].any()


def test_phones_are_those_of_the_words():
    for words, phones in zip(*speech.make_batch(1, 5)[2:]):
        said = [phone for word in words for phone in speech.LEXICON[speech.WORDS[word]]]
        assert [speech.PHONES[phone] for phone in phones] == said
