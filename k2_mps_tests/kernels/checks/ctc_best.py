"""Cases of ctc_best_scores, ctc_best_path and ctc_keep; see ctc.py."""

from k2_mps_tests.kernels.checks.ctc import ROWS_OF_BLOCK, graphs


def cases():
    for name, graph in graphs():
        # The kept arcs do not depend on penalties.
        if graph.penalty:
            continue
        for rows in ROWS_OF_BLOCK:
            blocks = f"{name}, {rows} rows a block"
            yield graph.best_scores_case(blocks, rows)
            yield graph.best_path_case(blocks, rows)
            yield graph.keep_case(blocks, rows)
