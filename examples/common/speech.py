"""Speech-like features, made from the numbers in this file.

A phone is a short list of targets: the frequencies of its first three formants, the
degree of voicing, and the frequency of its friction noise.  A speaker has a rate, a
spectral tilt, and a length of the vocal tract, which scales all frequencies.  The words
give the order of the targets.  The targets are smoothed into trajectories.  A bank of
filters computes the energies of the trajectories, with added noise of a room.  The
features are easier than speech, but a network has to learn the same task: to ignore
speaker, rate, coarticulation and noise.

One torch.Generator on the CPU makes all random numbers, so that a seed gives the same
features on every device.
"""

from typing import NamedTuple

import torch

NUM_FILTERS = 40
FRAME_SECONDS = 0.010


class Target(NamedTuple):
    """A part of a phone.  Formants and durations are close to values in textbooks."""

    formants: tuple[float, float, float]  # formants 1 to 3 (Hz)
    voicing: float
    noise: float
    centre: float  # of the noise (Hz)
    seconds: float


_SILENCE = Target((0, 0, 0), 0.0, 0.0, 3000, 0.050)
# The formants of each vowel's targets.
_VOWELS = {
    "IY": [(280, 2250, 2950)],
    "IH": [(400, 1950, 2550)],
    "EH": [(550, 1800, 2500)],
    "AH": [(640, 1200, 2400)],
    "AO": [(570, 850, 2400)],
    "UW": [(310, 900, 2250)],
    "OW": [(520, 900, 2350), (350, 800, 2250)],
    "EY": [(500, 1850, 2550), (320, 2150, 2800)],
    "AY": [(730, 1150, 2450), (370, 2050, 2650)],
}
_OTHERS = {
    "R": [Target((350, 1100, 1500), 0.8, 0.0, 3000, 0.070)],
    "W": [Target((300, 650, 2200), 0.7, 0.0, 3000, 0.070)],
    "L": [Target((380, 1000, 2800), 0.7, 0.0, 3000, 0.070)],
    "N": [Target((260, 1450, 2300), 0.5, 0.0, 3000, 0.070)],
    "D": [
        Target((250, 1700, 2600), 0.2, 0.0, 3500, 0.040),
        Target((300, 1700, 2600), 0.5, 0.4, 4000, 0.030),
    ],
    "T": [
        Target((300, 1700, 2600), 0.0, 0.0, 4500, 0.050),
        Target((300, 1700, 2600), 0.0, 0.8, 4500, 0.040),
    ],
    "K": [
        Target((300, 1500, 2200), 0.0, 0.0, 2000, 0.050),
        Target((300, 1500, 2200), 0.0, 0.8, 2000, 0.040),
    ],
    "F": [Target((300, 1100, 2200), 0.0, 0.35, 7000, 0.100)],
    "V": [Target((300, 1100, 2200), 0.4, 0.25, 7000, 0.070)],
    "TH": [Target((300, 1400, 2500), 0.0, 0.3, 5800, 0.090)],
    "S": [Target((300, 1600, 2500), 0.0, 1.0, 6200, 0.110)],
    "Z": [Target((280, 1600, 2500), 0.4, 0.7, 6000, 0.080)],
}
_PHONES = {
    **{
        name: [Target(formants, 1.0, 0.0, 3000, 0.130 / len(targets)) for formants in targets]
        for name, targets in _VOWELS.items()
    },
    **_OTHERS,
}

# Symbol 0 is the blank of CTC and RNN-T, and epsilon in FSAs.
PHONES = ["<blk>", *_PHONES]
LEXICON: dict[str, list[str]] = {
    "zero": ["Z", "IY", "R", "OW"],
    "one": ["W", "AH", "N"],
    "two": ["T", "UW"],
    "three": ["TH", "R", "IY"],
    "four": ["F", "AO", "R"],
    "five": ["F", "AY", "V"],
    "six": ["S", "IH", "K", "S"],
    "seven": ["S", "EH", "V", "AH", "N"],
    "eight": ["EY", "T"],
    "nine": ["N", "AY", "N"],
    "call": ["K", "AO", "L"],
    "save": ["S", "EY", "V"],
    "find": ["F", "AY", "N", "D"],
}
WORDS = ["<eps>", *LEXICON]
VERBS = ["call", "save", "find"]
DIGITS = [word for word in LEXICON if word not in VERBS]
# An utterance like "call one two three" has two to four digits.
MIN_DIGITS, MAX_DIGITS = 2, 4


class Batch(NamedTuple):
    """Utterances, sorted by length, longest first."""

    features: torch.Tensor  # (N, T, NUM_FILTERS), torch.float32, zero after each utterance's end
    num_frames: torch.Tensor  # (N,), torch.int64, on the CPU
    # The transcripts, as indexes into WORDS and PHONES.
    words: list[list[int]]
    phones: list[list[int]]

    def to(self, device: torch.device) -> "Batch":
        return self._replace(features=self.features.to(device))


def make_batch(seed: int, size: int, held_out: bool = False) -> Batch:
    """Makes utterances, each by a different speaker.

    Args:
      seed: the same seed makes the same batch.
      size: the number of utterances.
      held_out: whether the utterances are for tests.  The speakers of tests have vocal tracts
        that are longer or shorter than all vocal tracts of training.
    """
    generator = torch.Generator()
    # Training uses even seeds; tests use odd seeds.
    generator.manual_seed(2 * seed + held_out)
    made = [_utterance(generator, held_out) for _ in range(size)]
    made.sort(key=lambda entry: len(entry[0]), reverse=True)
    features, words = zip(*made)
    return Batch(
        torch.nn.utils.rnn.pad_sequence(features, batch_first=True),
        torch.tensor([len(entry) for entry in features]),
        [[WORDS.index(word) for word in entry] for entry in words],
        [[PHONES.index(phone) for word in entry for phone in LEXICON[word]] for entry in words],
    )


def _uniform(generator: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * torch.rand((), generator=generator).item()


def _utterance(generator: torch.Generator, held_out: bool) -> tuple[torch.Tensor, list[str]]:
    """Returns features, (T, NUM_FILTERS), and words."""

    def choose(words):
        return words[int(_uniform(generator, 0, len(words)))]

    length = int(_uniform(generator, MIN_DIGITS, MAX_DIGITS + 1))
    words = [choose(VERBS), *(choose(DIGITS) for _ in range(length))]
    if held_out:
        tract = choose([0.84, 1.16]) + _uniform(generator, -0.02, 0.02)
    else:
        tract = _uniform(generator, 0.88, 1.12)
    rate = _uniform(generator, 0.8, 1.2)
    targets = [_SILENCE]
    for word in words:
        for phone in LEXICON[word]:
            stretch = rate * _uniform(generator, 0.85, 1.15)
            targets += [
                target._replace(seconds=target.seconds * stretch) for target in _PHONES[phone]
            ]
    targets.append(_SILENCE)
    features = _filter_bank(targets, tract, generator)
    tilt = _uniform(generator, -0.5, 0.5)
    features += tilt * torch.linspace(-1, 1, NUM_FILTERS)
    # Removes the mean, like cepstral mean normalisation.
    return features - features.mean(dim=0), words


def _mel(hertz: torch.Tensor) -> torch.Tensor:
    return 2595 * torch.log10(1 + hertz / 700)


def _smoothed(tracks: torch.Tensor) -> torch.Tensor:
    """Smooths tracks, (T, number of tracks): the articulators need about 50 ms to move."""
    window = torch.hann_window(7, periodic=False)[1:-1]
    padded = torch.nn.functional.pad(tracks.t().unsqueeze(1), (2, 2), "replicate")
    weights = (window / window.sum()).view(1, 1, -1)
    return torch.nn.functional.conv1d(padded, weights).squeeze(1).t()


def _bumps(hertz: torch.Tensor, width: float) -> torch.Tensor:
    """Returns the energy in each filter of a bump of the spectrum around each frequency.

    Args:
      hertz: the frequencies; the result has one more axis, for the filters.
      width: the width of a bump, in mel.
    """
    filters = torch.linspace(100, 2800, NUM_FILTERS)  # mel
    distance = filters - _mel(hertz).unsqueeze(-1)
    return torch.exp(-0.5 * (distance / width) ** 2)


def _filter_bank(targets: list[Target], tract: float, generator: torch.Generator) -> torch.Tensor:
    """Returns the log energies of targets, (T, NUM_FILTERS)."""
    seconds = torch.tensor([target.seconds for target in targets])
    frames = (seconds / FRAME_SECONDS).round().long().clamp(min=2)
    places = [(*each.formants, each.voicing, each.noise, each.centre) for each in targets]
    tracks = _smoothed(torch.tensor(places).repeat_interleave(frames, dim=0))
    formants, voicing, noise, centre = tracks.split([3, 1, 1, 1], dim=1)
    gains = torch.tensor([1.0, 0.5, 0.25]).unsqueeze(-1)
    voice = (_bumps(formants * tract, width=90) * gains).sum(dim=1)
    hiss = _bumps(centre * tract, width=300).squeeze(1)
    energy = voicing * voice + noise * hiss
    # A frame of a real spectrum is a random draw, not its expectation.
    energy *= torch.exp(0.4 * torch.randn(energy.shape, generator=generator))
    room = 10 ** _uniform(generator, -2.5, -1.2)
    energy += room * torch.exp(0.4 * torch.randn(energy.shape, generator=generator))
    return torch.log(energy)


def edit_distances(references: list[list[int]], hypotheses: list[list[int]]) -> list[int]:
    """Returns the number of edits (insertions, deletions, substitutions) of each pair.

    All symbols must be greater than 0.  k2 finds these numbers as scores of best paths through
    Levenshtein graphs.
    """
    import k2  # The functions that make speech need no k2.

    # Each kind of edit takes a penalty of 0.5 in each of the two graphs, so it costs 1.
    graphs = k2.levenshtein_graph(references, ins_del_score=-0.5)
    alignment = k2.levenshtein_alignment(
        graphs,
        k2.levenshtein_graph(hypotheses, ins_del_score=-0.5),
        hyp_to_ref_map=torch.arange(len(references), dtype=torch.int32),
        sorted_match_ref=True,
    )
    scores = alignment.get_tot_scores(use_double_scores=False, log_semiring=False)
    return [round(-score) for score in scores.tolist()]


def error_rate(references: list[list[int]], hypotheses: list[list[int]]) -> float:
    """Returns the sum of the edit distances, divided by the sum of the references' lengths."""
    total = sum(len(reference) for reference in references)
    return sum(edit_distances(references, hypotheses)) / total
