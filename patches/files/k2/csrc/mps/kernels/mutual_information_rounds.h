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

#ifndef K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_ROUNDS_H_
#define K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_ROUNDS_H_

#include "k2/csrc/mps/kernels/mutual_information_schedule.h"

// For kernels only: the rounds of a threadgroup, for both directions.
//
// A chunk passes through four rounds.  Movers load its inputs (Fetch).  Two
// rounds later the same movers place the inputs into tiles (Fetch).  One round
// later the chain computes the chunk (Chain).  One round later movers store the
// outputs (Drain).
//
// The movers of a strip take turns: one half fetches while the other half
// drains. A mover does not wait for device memory, since two rounds pass
// between its loads and their use.
//
// A direction, Forward or Backward, has
//
//   Entry          what a row hands to the row below, by ToBelow(state) and
//                  FromLaneAbove(state).  Nothing() is the entry before the
//                  first column, Origin() the entry above the first cell.
//   State          what a lane of a chain keeps; Start() is the state before
//                  the first column
//   Load, Place    load the inputs of a chunk, and move them into tiles
//   Step           computes a cell from the entry above it and one element of
//                  each tile; from both if kTwoInputs
//   EndChunk       gets the state after each chunk
//   Drain          stores the outputs of a chunk
//
// In their arguments, `step` is the first step of the chunk.

enum {
  kVectors = kMiColumns / 4,  // float4s in a row of a tile
  // float4s from one column of a tile to the next.  Four float4s are padding:
  // with them, lanes that read a column of float4s touch different banks of
  // memory, and so do lanes that read four rows of floats.
  kVectorsApart = kMiRows + 4,
  kTile = kVectors * kVectorsApart,  // float4s in a tile
  kTiles = 3,                        // one fetched, one computed, one drained
  kStripTiles = kTiles * 2 * kTile,  // float4s
  kRing = 32,                        // columns in a ring
  kRowsOfAccess = kMiRows / kMiColumns,  // rows of a tile that a mover touches
  kRowsApart = kRowsOfAccess * kMiMovers / 2,
  kMoves = kMiRows / kRowsApart,  // elements of a tile that a lane moves
};

static_assert(kMiColumns == 8, "an access is four rows of two float4s");
static_assert(kMiMovers % 2 == 0 && kMoves * kRowsApart == kMiRows,
              "movers take turns and share a tile equally");
static_assert(kRing == kMiRows, "each lane saves an entry");
static_assert(3 * kMiColumns <= kRing && (kRing & (kRing - 1)) == 0,
              "a ring holds what is written and not yet read");
static_assert(kMiMaxThreads <= 1024, "Metal's limit");
static_assert(kMiMaxStrips * (kStripTiles * 16 + kRing * 8) + kRing * 8 + 16 <=
                  32768,
              "Metal's limit of threadgroup memory");

// The float of a tile's row and column.
inline int TileElement(int row, int column) {
  return (column / 4 * kVectorsApart + row) * 4 + column % 4;
}

// The elements of a tile that a lane of a mover moves: kMoves of them,
// kRowsApart rows apart.
struct Elements {
  int at;       // the index of the first element in the tile
  int row;      // the row of the first element in the sequence
  int t;        // its column in the sequence, for chunk 0
  bool is_top;  // whether `row` is the first row of the strip
};

inline Elements GetElements(Schedule schedule, Thread me) {
  const int row = me.lane / kMiColumns +
                  kRowsOfAccess * (metal::max(me.mover, 0) / 2),  // NOLINT
      column = me.lane % kMiColumns;
  return Elements{TileElement(row, column),
                  schedule.first_row + me.strip * kMiRows + row,
                  column - row * schedule.skew - schedule.pad, row == 0};
}

// The threadgroup memory of a strip.
template <typename Entry>
struct StripMemory {
  threadgroup float4 *tiles;  // [kTiles][2][kTile]
  threadgroup Entry *rings;   // [2][kRing], of the rows above and below

  threadgroup float4 *Tiles(int chunk) const {
    return tiles + chunk % kTiles * 2 * kTile;
  }
  // Both return the entry of a column; columns count the padding.
  threadgroup Entry &Above(int column) const {
    return rings[column & (kRing - 1)];
  }
  threadgroup Entry &Below(int column) const {
    return rings[kRing + (column & (kRing - 1))];
  }
};

// The device memory of a band.
template <typename Entry, typename State>
struct BandMemory {
  // What a lane of a chain saves for the next dispatch.
  struct Saved {
    State state;
    Entry entry;  // of the ring that the chain reads
  };
  static_assert(sizeof(Saved) * kMiRows <= kMiSavedSize * sizeof(float),
                "what a strip saves");

  device Entry *row;    // the last row of the band above, then of this band
  int columns;          // of `row`, with the padding
  device Saved *saved;  // [kMiRows], of the strip
};

// A strip as one thread sees it in one dispatch.
template <typename Direction>
struct Strip {
  using Entry = typename Direction::Entry;
  using State = typename Direction::State;

  Thread me;
  Schedule schedule;
  Chunks chunks;
  Elements elements;
  StripMemory<Entry> memory;
  BandMemory<Entry, State> band;
};

// tiles    [kMiMaxStrips][kStripTiles]
// rings    [kMiMaxStrips + 1][kRing]
// scratch  the part of the sequence
template <typename Direction>
inline Strip<Direction> GetStrip(constant MutualInformationParams &params,
                                 Thread me, Schedule schedule,
                                 threadgroup float4 *tiles,
                                 threadgroup typename Direction::Entry *rings,
                                 device float *scratch) {
  using Band = decltype(Strip<Direction>::band);
  const int strip = me.band * me.strips + me.strip;
  return Strip<Direction>{
      me,
      schedule,
      GetChunks(schedule, me.strip),
      GetElements(schedule, me),
      {tiles + me.strip * kStripTiles, rings + me.strip * kRing},
      {reinterpret_cast<device typename Direction::Entry *>(scratch),
       params.scratch_columns,
       reinterpret_cast<device typename Band::Saved *>(
           scratch + 2 * params.scratch_columns + strip * kMiSavedSize)}};
}

// A mover's turn: places into the tiles of `chunk` what the mover loaded two
// rounds ago, and loads the chunk that it places next.
template <typename Direction>
inline void Fetch(thread const Strip<Direction> &strip, int chunk,
                  thread Direction &direction) {
  const Schedule schedule = strip.schedule;
  const Elements elements = strip.elements;
  const bool fills_ring = strip.me.strip == 0 && elements.is_top,
             is_first_band = schedule.first_row == 0;
  const int step = chunk * kMiColumns, next_step = step + 2 * kMiColumns,
            column = strip.me.lane + schedule.t_offset;
  if (strip.chunks.Have(chunk)) {
    direction.Place(schedule, elements, step,
                    (threadgroup float *)strip.memory.Tiles(chunk));
    if (fills_ring) {
      // Above the first row there is a cell from which all paths begin.
      if (is_first_band)
        direction.above = step + strip.me.lane == schedule.pad
                              ? direction.Origin()
                              : Direction::Nothing();
      strip.memory.Above(step + column) = direction.above;
    }
  }

  // No branch depends on what is loaded, so no lane waits before it is needed.
  direction.Load(next_step);
  if (fills_ring && !is_first_band && strip.chunks.Have(chunk + 2)) {
    const int at = next_step + column;
    direction.above = Direction::Nothing();
    if (at >= 0 && at < strip.band.columns)
      direction.above = strip.band.row[at];
  }
}

// A chain's turn: computes a chunk.
template <typename Direction>
inline void Chain(thread const Strip<Direction> &strip, int chunk,
                  thread typename Direction::State &state) {
  using Entry = typename Direction::Entry;
  const int step = chunk * kMiColumns, lane = strip.me.lane;
  threadgroup float4 *tiles = strip.memory.Tiles(chunk) + lane;
  // The chain loads the chunk's inputs first, so that no step waits for a load.
  float4 first[kVectors], second[kVectors];
  Entry ring[kMiColumns];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    first[i] = tiles[i * kVectorsApart];
    second[i] =
        Direction::kTwoInputs ? tiles[kTile + i * kVectorsApart] : float4(0.0f);
  }
#pragma unroll
  for (int i = 0; i < kMiColumns; ++i)
    ring[i] = strip.memory.Above(step + strip.schedule.t_offset + i);

#pragma unroll
  for (int i = 0; i < kMiColumns; ++i) {
    const Entry above = Direction::FromLaneAbove(state);
    float a = first[i / 4][i % 4], b = second[i / 4][i % 4];
    Direction::Step(lane == 0 ? ring[i] : above, a, b, state);
    first[i / 4][i % 4] = a;
    second[i / 4][i % 4] = b;
    if (lane == kMiRows - 1)
      strip.memory.Below(step - strip.schedule.height + i) =
          Direction::ToBelow(state);
  }

#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (Direction::kTwoInputs) tiles[i * kVectorsApart] = first[i];
    tiles[kTile + i * kVectorsApart] = second[i];
  }
}

// A mover's turn: stores what the chain computed for a chunk.
template <typename Direction>
inline void Drain(thread const Strip<Direction> &strip, int chunk,
                  thread Direction &direction) {
  const Schedule schedule = strip.schedule;
  const int step = chunk * kMiColumns,
            column = step - schedule.height + strip.me.lane;
  // One chunk later, the ring still has the entries of the band's last row.
  if (schedule.has_next && strip.me.strip + 1 == schedule.strips &&
      strip.elements.is_top && column >= 0 && column < strip.band.columns)
    strip.band.row[column] = strip.memory.Below(column);
  direction.Drain(schedule, strip.elements, step,
                  (threadgroup const float *)strip.memory.Tiles(chunk));
}

// Does all rounds of a dispatch.  All threads of the threadgroup reach each
// barrier.
template <bool kBands, typename Direction>
METAL_FUNC void DoRounds(Strip<Direction> strip, thread Direction &direction) {
  const Schedule schedule = strip.schedule;
  const Thread me = strip.me;
  const bool is_chain = me.mover < 0 && me.strip < schedule.strips;
  typename Direction::State state = Direction::Start();
  if (is_chain) {
    strip.memory.Above(me.lane) = Direction::Nothing();
    if (kBands && schedule.begin > 0) {
      state = strip.band.saved[me.lane].state;
      strip.memory.Above(me.lane) = strip.band.saved[me.lane].entry;
    }
  }

  // Four more rounds than chunks: two to load the first chunk before movers
  // place it, two to compute and drain the last one.  The order of turns
  // differs between strips.  A core deals its simdgroups out to schedulers one
  // after another; with two orders, each scheduler has some that fetch and some
  // that drain.
  const int num_rounds = schedule.end - schedule.begin + 4;
  int chunk = schedule.begin - me.strip * schedule.lag - 2;
  for (int round = 0; round < num_rounds; ++round, ++chunk) {
    if (me.mover < 0) {
      if (strip.chunks.Have(chunk - 1)) {
        Chain(strip, chunk - 1, state);
        direction.EndChunk(schedule, strip.me, chunk - 1, state);
      }
    } else if ((round + me.mover + me.strip / 2) % 2 == 0) {
      Fetch(strip, chunk, direction);
    } else if (strip.chunks.Have(chunk - 2)) {
      Drain(strip, chunk - 2, direction);
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup |
                               metal::mem_flags::mem_device);
  }

  if (kBands && is_chain && schedule.continues) {
    strip.band.saved[me.lane].state = state;
    strip.band.saved[me.lane].entry = strip.memory.Above(me.lane);
  }
}

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_ROUNDS_H_
