/**
 * Copyright      2026  The k2-mps authors
 *
 * See LICENSE for clarification regarding multiple authors
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#ifndef K2_CSRC_MPS_KERNELS_SWOOSH_H_
#define K2_CSRC_MPS_KERNELS_SWOOSH_H_

// Shared by the host and the kernels of swoosh.metal.

// The arguments of the kernels.  Each kernel has some of these arguments.
enum SwooshBuffer {
  kSwooshX,
  kSwooshY,
  kSwooshParams,
  kSwooshTable,
  kSwooshDeriv,
  kSwooshDerivTable,
  kSwooshG,
  kSwooshYGrad,
  kSwooshXGrad,
};

// All members have the same size and alignment in C++ and in Metal.
enum SwooshSizes {
  kSwooshCells = 32,   // cells of a table: one for each lane of a simdgroup
  kSwooshOfChunk = 4,  // elements that a thread loads at once
  kSwooshChunks = 4,   // chunks of a thread
  // Each element has 32 random bits.  The lower kSwooshDropoutBits bits are for
  // dropout, and the other bits are for rounding.
  kSwooshDropoutBits = 20,
};

// The values of swoosh and of its derivative at a node.  Each value is stored
// as two floats: the value rounded to a float, and the error of this rounding.
struct SwooshCell {
  float value, value_low;
  float slope, slope_low;
};

// The nodes of a table are base + i * step, for i = -before, -before + 1, ...
// Around each node is a cell of width `step`.
struct SwooshGrid {
  float base, step;
  float before;  // the number of cells before the cell of `base`
  // The index of the cell of x is x * cells_per_unit + first_cell, rounded.
  float cells_per_unit, first_cell;
};

struct SwooshTable {
  struct SwooshGrid grid;
  struct SwooshCell cells[kSwooshCells];
};

// Beyond one end of the table, swoosh(x) is the sum of (slope + slope_low) * x,
// intercept + intercept_low, and e - e^2 / 2, where e = exp(-|x - shift|).
struct SwooshTail {
  float slope, slope_low;
  float intercept, intercept_low;
};

struct SwooshParams {
  long size;               // the number of elements  // NOLINT
  int is_aligned;          // whether a thread may load a chunk as one vector
  float shift;             // 4 for swoosh_l, 1 for swoosh_r
  SwooshTail left, right;  // for x <= shift, and for x > shift
  // Only swoosh_forward uses the members below.
  unsigned int seed[2];  // of the random numbers
  // An element is dropped if its kSwooshDropoutBits random bits, as a number,
  // are less than this limit.
  unsigned int dropout_limit;
  float kept_scale;  // 1 / (1 - dropout_prob)
};

struct SwooshGradParams {
  long size;  // NOLINT
  int is_aligned;
  // The derivative is scale * g - offset, where g is the saved 8-bit number.
  float scale, offset;
};

#endif  // K2_CSRC_MPS_KERNELS_SWOOSH_H_
