"""Cases of ctc_best_scores, ctc_best_path and ctc_keep; see ctc.py."""

from k2_mps_tests.kernels.checks.ctc import ROWS_OF_BLOCK, SIZES, batches

# With one row more, scratch memory would be too small for a block of as many rows, so the kernels
# take two steps.
ROWS = (*ROWS_OF_BLOCK, SIZES["kCtcScratchRows"])


def cases():
    for name, batch in batches():
        # The kept arcs do not depend on penalties.
        if batch.penalty:
            continue
        for rows in ROWS:
            blocks = f"{name}, {rows} rows a block"
            yield batch.best_scores_case(blocks, rows)
            yield batch.best_path_case(blocks, rows)
            yield batch.keep_case(blocks, rows)
