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

// The arguments of the kernels.  A kernel takes some of them.
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
  kSwooshCells = 32,   // of a table, one for each lane of a simdgroup
  kSwooshOfChunk = 4,  // elements that a thread loads at once
  kSwooshChunks = 4,   // of a thread
  // The lower bits for dropout, of an element's 32 random bits.  The others are
  // for rounding.
  kSwooshDropoutBits = 20,
};

// swoosh and its derivative at a node.  Each is the sum of a float and of the
// float's rounding error.
struct SwooshCell {
  float value, value_low;
  float slope, slope_low;
};

// Cells of equal size around the nodes base + i step, for i from -before on.
struct SwooshGrid {
  float base, step;
  float before;  // the number of cells before the one of base
  // x is in the cell nearest to x cells_per_unit + first_cell.
  float cells_per_unit, first_cell;
};

struct SwooshTable {
  struct SwooshGrid grid;
  struct SwooshCell cells[kSwooshCells];
};

// Beyond one end of the table, swoosh is (slope + slope_low) x + intercept +
// intercept_low, and terms of exp(-|x - shift|).
struct SwooshTail {
  float slope, slope_low;
  float intercept, intercept_low;
};

struct SwooshParams {
  long size;               // the number of elements  // NOLINT
  int is_aligned;          // whether a thread may load its inputs at once
  float shift;             // 4 for swoosh_l, 1 for swoosh_r
  SwooshTail left, right;  // for x - shift <= 0, and for greater ones
  // The other members are for swoosh_forward alone.
  unsigned int seed[2];  // of the random numbers
  // An element is dropped if its kSwooshDropoutBits random bits are less than
  // this number.
  unsigned int dropout_limit;
  float kept_scale;  // 1 / (1 - dropout_prob)
};

struct SwooshGradParams {
  long size;  // NOLINT
  int is_aligned;
  // The derivative is scale g - offset, for g in 8 bits.
  float scale, offset;
};

#endif  // K2_CSRC_MPS_KERNELS_SWOOSH_H_
