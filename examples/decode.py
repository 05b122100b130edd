"""Decodes held-out speakers to words, with a graph and a model that examples/ctc.py trained.

The option --graph chooses one of two graphs:

    --graph hlg   H is ctc_topo, L the lexicon with a loop over words, G a small grammar
    --graph hl    H and L without a grammar: words in any order

k2.intersect_dense_pruned makes a lattice of the graph's paths.  From the lattice, the
program prints two results: the best path, and the path with the best total score in an
n-best list.

    python examples/decode.py build/ctc --device mps --graph hlg
"""

import argparse
from pathlib import Path

import ctc
import k2
import torch
from common import speech, training


def grammar() -> k2.Fsa:
    """Returns an acceptor of word sequences: a verb, then two to four digits."""
    arcs = [f"0 1 {speech.WORDS.index(word)} 0" for word in speech.VERBS]
    final = speech.MAX_DIGITS + 2
    for state in range(1, speech.MAX_DIGITS + 1):
        arcs += [f"{state} {state + 1} {speech.WORDS.index(word)} 0" for word in speech.DIGITS]
        if state >= speech.MIN_DIGITS:
            arcs.append(f"{state + 1} {final} -1 0")
    return k2.arc_sort(k2.Fsa.from_str("\n".join([*arcs, str(final)])))


def lexicon() -> k2.Fsa:
    """Returns a transducer from phones to words, with a loop over all words.

    No word is a prefix of another, so determinization needs no disambiguation symbols.  For a
    lexicon with homophones, disambiguation symbols are necessary.
    """
    arcs, next_state = [], 1
    final = 1 + sum(len(phones) - 1 for phones in speech.LEXICON.values())
    for word, phones in speech.LEXICON.items():
        state, output = 0, speech.WORDS.index(word)
        for phone in phones[:-1]:
            arcs.append((state, next_state, speech.PHONES.index(phone), output))
            state, output, next_state = next_state, 0, next_state + 1
        arcs.append((state, 0, speech.PHONES.index(phones[-1]), output))
    arcs.append((0, final, -1, -1))
    lines = [f"{src} {dest} {phone} {word} 0" for src, dest, phone, word in sorted(arcs)]
    return k2.arc_sort(k2.Fsa.from_str("\n".join([*lines, str(final)]), acceptor=False))


def decoding_graph(name: str) -> k2.Fsa:
    """Returns HLG or HL, on the CPU.  The labels are phones or blank, the aux_labels words."""
    words = lexicon()
    if name == "hlg":
        words = k2.connect(k2.determinize(k2.connect(k2.compose(words, grammar()))))
    h = k2.ctc_topo(len(speech.PHONES) - 1)
    return k2.connect(k2.compose(k2.arc_sort(h), k2.arc_sort(words)))


def n_best(lattice: k2.Fsa, num_paths: int) -> tuple[k2.Fsa, k2.Nbest]:
    """Returns the best entry of a sampled n-best list for each utterance, and the list.

    An entry of the list is a word sequence.  The score of an entry is the total score of all paths
    of the lattice with these words.  In contrast, the score of the best path is the score of one
    path.
    """
    nbest = k2.Nbest.from_lattice(lattice, num_paths, nbest_scale=0.5)
    words = k2.linear_fsa(k2.get_aux_labels(nbest.fsa), device=lattice.device)
    by_words = k2.intersect_device(
        k2.arc_sort(k2.invert(lattice)),
        k2.add_epsilon_self_loops(words),
        b_to_a_map=nbest.shape.row_ids(1),
        sorted_match_a=True,
    )
    scores = by_words.get_tot_scores(use_double_scores=True, log_semiring=True)
    scores = k2.RaggedTensor(nbest.shape, scores.float())
    return k2.index_fsa(nbest.fsa, scores.argmax()), nbest


def oracle(nbest: k2.Nbest, references: list[list[int]]) -> float:
    """Returns the error rate of the entries that are nearest to the references."""
    lists = nbest.shape.row_splits(1).tolist()
    words = k2.get_aux_labels(nbest.fsa)
    wrong = 0
    for reference, begin, end in zip(references, lists, lists[1:]):
        distances = speech.edit_distances([reference] * (end - begin), words[begin:end])
        wrong += min(distances)
    return wrong / sum(map(len, references))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where ctc.py has trained")
    training.add_device(parser)
    parser.add_argument("--graph", choices=["hlg", "hl"], default="hlg", help="hl: no grammar")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the data")
    parser.add_argument("--utterances", type=int, default=64)
    parser.add_argument("--num-paths", type=int, default=50, help="how many paths to sample")
    options = parser.parse_args()

    model = ctc.Model()
    training.load_model(model, options.folder)
    model.to(options.device)
    batch = speech.make_batch(options.seed, options.utterances, held_out=True)
    log_probs, num_frames = model(batch.to(options.device))

    graph = decoding_graph(options.graph).to(options.device)
    print(f"{options.graph.upper()}: {graph.shape[0]} states, {graph.num_arcs} arcs")
    lattice = k2.get_lattice(log_probs, num_frames, graph)
    best = k2.get_aux_labels(k2.one_best_decoding(lattice))
    print(f"word error rate, best path: {speech.error_rate(batch.words, best):.1%}")
    path, nbest = n_best(lattice, options.num_paths)
    print(f"word error rate, n-best: {speech.error_rate(batch.words, k2.get_aux_labels(path)):.1%}")
    print(
        f"word error rate, n-best, if the best entry were known: {oracle(nbest, batch.words):.1%}"
    )
    for reference, words in list(zip(batch.words, best))[:3]:
        print(f"  said:  {' '.join(speech.WORDS[w] for w in reference)}")
        print(f"  heard: {' '.join(speech.WORDS[w] for w in words)}")
    if options.device.type == "mps":
        # explain() has a line for each operation.  intersect_dense_pruned made the lattice.
        print("\n".join(line for line in k2.mps.explain().split("\n") if "pruned" in line))


if __name__ == "__main__":
    main()
