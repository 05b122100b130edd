// What k2's CUDA code does for each frame or each batch of states: a kernel
// over arcs, cub's reduction of segments, a kernel over states.  For
// lattices.py; see there.

#include <torch/extension.h>

#include <ATen/cuda/CUDAContext.h>

#include <cub/cub.cuh>

#include <algorithm>
#include <limits>

namespace {

constexpr int kThreads = 256;

int Blocks(int n) { return (n + kThreads - 1) / kThreads; }

// As k2 has it in k2/csrc/fsa.h.
struct Arc {
  int src_state, dest_state, label;
  float score;
};

struct Max {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

struct LogAdd {
  __device__ float operator()(float a, float b) const {
    float larger = a < b ? b : a, diff = a < b ? a - b : b - a;
    return diff >= -15.942385f ? larger + log1pf(expf(diff)) : larger;
  }
};

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

const Arc *Arcs(const torch::Tensor &arcs) {
  return reinterpret_cast<const Arc *>(arcs.data_ptr<int>());
}

// Memory for cub's reductions.
class Reducer {
 public:
  template <typename Op>
  void Run(const float *in, float *out, const int *begins, int segments, Op op,
           float initial) {
    auto stream = at::cuda::getCurrentCUDAStream();
    size_t bytes = 0;
    cub::DeviceSegmentedReduce::Reduce(nullptr, bytes, in, out, segments,
                                       begins, begins + 1, op, initial, stream);
    if (!memory_.defined() || memory_.numel() < int64_t(bytes))
      memory_ = torch::empty({int64_t(std::max<size_t>(bytes, 1))},
                             torch::dtype(torch::kUInt8).device(torch::kCUDA));
    cub::DeviceSegmentedReduce::Reduce(memory_.data_ptr(), bytes, in, out,
                                       segments, begins, begins + 1, op,
                                       initial, stream);
  }

 private:
  torch::Tensor memory_;
};

constexpr float kNever = -std::numeric_limits<float>::infinity();

// An arc with all that a frame needs to know of it.
struct FrameArc {
  int src, dest;              // in the scores of a step
  int column, first_row, last_row;
  float score;
  int leaving_at, entering_at;  // in the scores of arcs
};

__global__ void FrameArcs(const FrameArc *arcs, int num_arcs,
                          const float *b_scores, int stride, int t,
                          const float *previous, float *arc_scores) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= num_arcs) return;
  const FrameArc arc = arcs[i];
  arc_scores[arc.entering_at] =
      previous[arc.src] + arc.score +
      b_scores[(arc.first_row + t - 1) * stride + arc.column];
  arc_scores[arc.leaving_at] =
      previous[arc.dest] + arc.score +
      b_scores[(arc.last_row - t + 1) * stride + arc.column];
}

// All frames of all FSAs, forward and backward at once.
class Intersection {
 public:
  Intersection(torch::Tensor arcs, torch::Tensor state_begins,
               torch::Tensor leaving_begins, torch::Tensor entering_begins,
               torch::Tensor entering, torch::Tensor b_scores,
               torch::Tensor b_begins, torch::Tensor alive)
      : b_scores_(b_scores) {
    auto host_arcs = arcs.cpu(), states = state_begins.cpu(),
         leaving = leaving_begins.cpu(), into = entering_begins.cpu(),
         order = entering.cpu(), rows = b_begins.cpu();
    const Arc *arc = Arcs(host_arcs);
    const int *s = states.data_ptr<int>(), *l = leaving.data_ptr<int>(),
              *e = into.data_ptr<int>(), *o = order.data_ptr<int>(),
              *r = rows.data_ptr<int>();
    const int num_fsas = states.numel() - 1, num_arcs = host_arcs.size(0);
    std::vector<int> position(num_arcs), begins{0};
    for (int i = 0; i != num_arcs; ++i) position[o[i]] = i;
    std::vector<FrameArc> frame_arcs;
    std::vector<int> arcs_of(num_fsas + 1);
    for (int f = 0; f != num_fsas; ++f) {
      const int first = l[s[f]], last = l[s[f + 1]], n = s[f + 1] - s[f];
      arcs_of[f + 1] = last;
      // For each FSA the arcs as they leave states, then as they enter them.
      for (int k = s[f]; k != s[f + 1]; ++k)
        begins.push_back(first + l[k + 1]);
      for (int k = s[f]; k != s[f + 1]; ++k)
        begins.push_back(last + e[k + 1]);
      for (int i = first; i != last; ++i) {
        frame_arcs.push_back({2 * s[f] + n + arc[i].src_state,
                              2 * s[f] + arc[i].dest_state, arc[i].label + 1,
                              r[f], r[f + 1] - 1, arc[i].score, first + i,
                              last + position[i]});
      }
      // A step begins with the start of the forward and of the backward pass.
      initial_.insert(initial_.end(), 2 * n, kNever);
      initial_[2 * s[f] + n] = initial_[2 * s[f] + n - 1] = 0;
    }
    auto cuda = torch::device(torch::kCUDA);
    arcs_ = torch::from_blob(frame_arcs.data(),
                             {int64_t(frame_arcs.size() * sizeof(FrameArc))},
                             torch::kUInt8)
                .to(torch::kCUDA);
    begins_ = torch::tensor(begins, cuda.dtype(torch::kInt));
    initial_tensor_ = torch::tensor(initial_, cuda.dtype(torch::kFloat));
    arc_scores_ = torch::empty({2 * int64_t(num_arcs)}, cuda);
    int64_t total = 0;
    auto count = alive.cpu();
    for (int64_t t = 0; t != count.numel(); ++t) {
      const int fsas = count.data_ptr<int>()[t];
      steps_.push_back({total, arcs_of[fsas], 2 * s[fsas]});
      total += 2 * s[fsas];
    }
    scores_ = torch::empty({total}, cuda);
  }

  void Run() {
    auto stream = at::cuda::getCurrentCUDAStream();
    float *scores = scores_.data_ptr<float>(),
          *arc_scores = arc_scores_.data_ptr<float>();
    cudaMemcpyAsync(scores, initial_tensor_.data_ptr<float>(),
                    initial_.size() * 4, cudaMemcpyDeviceToDevice, stream);
    for (size_t t = 1; t < steps_.size(); ++t) {
      const Step &step = steps_[t];
      FrameArcs<<<Blocks(step.arcs), kThreads, 0, stream>>>(
          static_cast<const FrameArc *>(arcs_.data_ptr()), step.arcs,
          b_scores_.data_ptr<float>(), b_scores_.size(1), t,
          scores + steps_[t - 1].begin, arc_scores);
      reducer_.Run(arc_scores, scores + step.begin, begins_.data_ptr<int>(),
                   step.segments, Max(), kNever);
    }
  }

  torch::Tensor Scores() const { return scores_; }

 private:
  struct Step {
    int64_t begin;
    int arcs, segments;
  };
  torch::Tensor b_scores_, arcs_, begins_, initial_tensor_, arc_scores_,
      scores_;
  std::vector<float> initial_;
  std::vector<Step> steps_;
  Reducer reducer_;
};

// The state at the other end of an arc.
__device__ int Other(const Arc &arc, int src, bool to_src) {
  return to_src ? src : src - arc.src_state + arc.dest_state;
}

__global__ void BatchArcs(const Arc *arcs, const int *src, const int *list,
                          int begin, int end, bool to_src, const float *scores,
                          float *arc_scores) {
  int i = begin + blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= end) return;
  const int index = list[i];
  const Arc arc = arcs[index];
  arc_scores[i] = scores[Other(arc, src[index], to_src)] + arc.score;
}

__global__ void BatchStates(const int *states, int begin, int end,
                            const float *batch_scores, const char *is_initial,
                            float *scores) {
  int i = begin + blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= end) return;
  const int state = states[i];
  const float score = batch_scores[i];
  if (score != kNever || !is_initial[state]) scores[state] = score;
}

__global__ void BatchArcGrads(const Arc *arcs, const int *src, const int *list,
                              int begin, int end, bool to_src,
                              const float *scores, const float *state_grad,
                              float *in_order, float *arc_grad) {
  int i = begin + blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= end) return;
  const int index = list[i];
  const Arc arc = arcs[index];
  const int other = Other(arc, src[index], to_src),
            mine = Other(arc, src[index], !to_src);
  float other_score = scores[other];
  if (other_score == kNever) other_score = -kNever;
  const float grad =
      expf(scores[mine] + arc.score - other_score) * state_grad[other];
  arc_grad[index] = grad;
  in_order[i] = grad;
}

__global__ void BatchStateGrads(const int *states, int begin, int end,
                                const float *sums, float *state_grad) {
  int i = begin + blockIdx.x * blockDim.x + threadIdx.x;
  if (i < end) state_grad[states[i]] += sums[i];
}

// Where the states and the arcs of each batch begin.
struct Batch {
  int states, states_end, arcs, arcs_end;
};

std::vector<Batch> Batches(const torch::Tensor &batch_begins,
                           const torch::Tensor &arc_begins, int num_fsas,
                           bool descending) {
  auto states = batch_begins.cpu(), arcs = arc_begins.cpu();
  const int *s = states.data_ptr<int>(), *a = arcs.data_ptr<int>();
  std::vector<Batch> ans;
  for (int64_t i = 0; i + num_fsas < states.numel(); i += num_fsas)
    ans.push_back({s[i], s[i + num_fsas], a[s[i]], a[s[i + num_fsas]]});
  if (descending) std::reverse(ans.begin(), ans.end());
  return ans;
}

class Scores {
 public:
  Scores(torch::Tensor arcs, torch::Tensor src, torch::Tensor state_begins,
         torch::Tensor batch_begins, torch::Tensor states,
         torch::Tensor arc_begins, torch::Tensor list, int num_fsas,
         bool forward, bool log)
      : arcs_(arcs), src_(src), states_(states), arc_begins_(arc_begins),
        list_(list), forward_(forward), log_(log),
        batches_(Batches(batch_begins, arc_begins, num_fsas, !forward)) {
    initial_scores_ = torch::full({states.numel()}, kNever,
                                  torch::device(torch::kCUDA));
    auto begins = state_begins.to(torch::kLong);
    auto initial = forward ? begins.slice(0, 0, num_fsas)
                           : begins.slice(0, 1) - 1;
    initial_scores_.index_fill_(0, initial, 0);
    is_initial_ = (initial_scores_ == 0).to(torch::kChar);
    scores_ = torch::empty_like(initial_scores_);
    batch_scores_ = torch::empty_like(initial_scores_);
    arc_scores_ =
        torch::empty({arcs.size(0)}, torch::device(torch::kCUDA));
  }

  void Run() {
    auto stream = at::cuda::getCurrentCUDAStream();
    float *scores = scores_.data_ptr<float>();
    cudaMemcpyAsync(scores, initial_scores_.data_ptr<float>(),
                    scores_.numel() * 4, cudaMemcpyDeviceToDevice, stream);
    for (const Batch &batch : batches_) {
      const int states = batch.states_end - batch.states,
                arcs = batch.arcs_end - batch.arcs;
      if (arcs > 0)
        BatchArcs<<<Blocks(arcs), kThreads, 0, stream>>>(
            Arcs(arcs_), src_.data_ptr<int>(), list_.data_ptr<int>(),
            batch.arcs, batch.arcs_end, forward_, scores,
            arc_scores_.data_ptr<float>());
      float *out = batch_scores_.data_ptr<float>() + batch.states;
      const int *begins = arc_begins_.data_ptr<int>() + batch.states;
      if (log_)
        reducer_.Run(arc_scores_.data_ptr<float>(), out, begins, states,
                     LogAdd(), kNever);
      else
        reducer_.Run(arc_scores_.data_ptr<float>(), out, begins, states, Max(),
                     kNever);
      BatchStates<<<Blocks(states), kThreads, 0, stream>>>(
          states_.data_ptr<int>(), batch.states, batch.states_end,
          batch_scores_.data_ptr<float>(),
          reinterpret_cast<const char *>(is_initial_.data_ptr<int8_t>()),
          scores);
    }
  }

  torch::Tensor Result() const { return scores_; }

 private:
  torch::Tensor arcs_, src_, states_, arc_begins_, list_, initial_scores_,
      is_initial_, scores_, batch_scores_, arc_scores_;
  bool forward_, log_;
  std::vector<Batch> batches_;
  Reducer reducer_;
};

class Backprop {
 public:
  Backprop(torch::Tensor arcs, torch::Tensor src, torch::Tensor batch_begins,
           torch::Tensor states, torch::Tensor arc_begins, torch::Tensor list,
           torch::Tensor scores, torch::Tensor start, int num_fsas,
           bool forward)
      : arcs_(arcs), src_(src), states_(states), arc_begins_(arc_begins),
        list_(list), scores_(scores), start_(start), forward_(forward),
        batches_(Batches(batch_begins, arc_begins, num_fsas, forward)) {
    state_grad_ = torch::empty_like(start);
    sums_ = torch::empty_like(start);
    arc_grad_ = torch::empty({arcs.size(0)}, torch::device(torch::kCUDA));
    in_order_ = torch::empty_like(arc_grad_);
  }

  void Run() {
    auto stream = at::cuda::getCurrentCUDAStream();
    float *state_grad = state_grad_.data_ptr<float>();
    cudaMemcpyAsync(state_grad, start_.data_ptr<float>(), start_.numel() * 4,
                    cudaMemcpyDeviceToDevice, stream);
    for (const Batch &batch : batches_) {
      const int states = batch.states_end - batch.states,
                arcs = batch.arcs_end - batch.arcs;
      if (arcs > 0)
        BatchArcGrads<<<Blocks(arcs), kThreads, 0, stream>>>(
            Arcs(arcs_), src_.data_ptr<int>(), list_.data_ptr<int>(),
            batch.arcs, batch.arcs_end, !forward_, scores_.data_ptr<float>(),
            state_grad, in_order_.data_ptr<float>(),
            arc_grad_.data_ptr<float>());
      reducer_.Run(in_order_.data_ptr<float>(),
                   sums_.data_ptr<float>() + batch.states,
                   arc_begins_.data_ptr<int>() + batch.states, states, Add(),
                   0.0f);
      BatchStateGrads<<<Blocks(states), kThreads, 0, stream>>>(
          states_.data_ptr<int>(), batch.states, batch.states_end,
          sums_.data_ptr<float>(), state_grad);
    }
  }

  torch::Tensor Result() const { return arc_grad_; }

 private:
  torch::Tensor arcs_, src_, states_, arc_begins_, list_, scores_, start_,
      state_grad_, sums_, arc_grad_, in_order_;
  bool forward_;
  std::vector<Batch> batches_;
  Reducer reducer_;
};

__global__ void MinusTotals(const int *state_begins, int num_fsas,
                            const float *forward, const float *backward,
                            float *minus_totals) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= num_fsas || state_begins[i] == state_begins[i + 1]) return;
  const float total =
      0.5f * (forward[state_begins[i + 1] - 1] + backward[state_begins[i]]);
  minus_totals[i] = total == kNever ? kNever : -total;
}

__global__ void ArcPosteriors(const Arc *arcs, const int *src, const int *fsas,
                              int num_arcs, const float *forward,
                              const float *backward, const float *minus_totals,
                              float *posteriors) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= num_arcs) return;
  const Arc arc = arcs[i];
  posteriors[i] = arc.score + forward[src[i]] +
                  backward[Other(arc, src[i], false)] +
                  minus_totals[fsas[src[i]]];
}

__global__ void Gather(const float *in, const int *list, int n, float *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[list[i]];
}

__global__ void GradsOfTotals(const int *state_begins, int num_fsas,
                              const float *sums, float *forward_grad,
                              float *backward_grad) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= num_fsas || state_begins[i] == state_begins[i + 1]) return;
  forward_grad[state_begins[i + 1] - 1] = -0.5f * sums[i];
  backward_grad[state_begins[i]] = -0.5f * sums[i];
}

// What needs no batches: posteriors of arcs, and their gradient.
class Posteriors {
 public:
  Posteriors(torch::Tensor arcs, torch::Tensor src, torch::Tensor fsas,
             torch::Tensor state_begins, torch::Tensor leaving_begins,
             torch::Tensor entering_begins, torch::Tensor entering,
             torch::Tensor forward, torch::Tensor backward, torch::Tensor grad)
      : arcs_(arcs), src_(src), fsas_(fsas), state_begins_(state_begins),
        leaving_begins_(leaving_begins), entering_begins_(entering_begins),
        entering_(entering), forward_(forward), backward_(backward),
        grad_(grad) {
    fsa_begins_ = leaving_begins.index_select(0, state_begins);
    totals_ = forward.new_empty({state_begins.numel() - 1});
    posteriors_ = torch::empty_like(grad);
    in_order_ = torch::empty_like(grad);
    forward_grad_ = torch::empty_like(forward);
    backward_grad_ = torch::empty_like(forward);
  }

  void Run() {
    auto stream = at::cuda::getCurrentCUDAStream();
    const int fsas = totals_.numel(), arcs = grad_.numel();
    MinusTotals<<<Blocks(fsas), kThreads, 0, stream>>>(
        state_begins_.data_ptr<int>(), fsas, forward_.data_ptr<float>(),
        backward_.data_ptr<float>(), totals_.data_ptr<float>());
    ArcPosteriors<<<Blocks(arcs), kThreads, 0, stream>>>(
        Arcs(arcs_), src_.data_ptr<int>(), fsas_.data_ptr<int>(), arcs,
        forward_.data_ptr<float>(), backward_.data_ptr<float>(),
        totals_.data_ptr<float>(), posteriors_.data_ptr<float>());
  }

  void RunBackprop() {
    auto stream = at::cuda::getCurrentCUDAStream();
    const int fsas = totals_.numel(), arcs = grad_.numel(),
              states = forward_.numel();
    const float *grad = grad_.data_ptr<float>();
    float *in_order = in_order_.data_ptr<float>(),
          *totals = totals_.data_ptr<float>();
    reducer_.Run(grad, forward_grad_.data_ptr<float>(),
                 leaving_begins_.data_ptr<int>(), states, Add(), 0.0f);
    Gather<<<Blocks(arcs), kThreads, 0, stream>>>(
        grad, entering_.data_ptr<int>(), arcs, in_order);
    reducer_.Run(in_order, backward_grad_.data_ptr<float>(),
                 entering_begins_.data_ptr<int>(), states, Add(), 0.0f);
    reducer_.Run(grad, totals, fsa_begins_.data_ptr<int>(), fsas, Add(), 0.0f);
    GradsOfTotals<<<Blocks(fsas), kThreads, 0, stream>>>(
        state_begins_.data_ptr<int>(), fsas, totals,
        forward_grad_.data_ptr<float>(), backward_grad_.data_ptr<float>());
  }

  torch::Tensor Result() const { return posteriors_; }
  torch::Tensor Grads() const {
    return torch::stack({forward_grad_, backward_grad_});
  }

 private:
  torch::Tensor arcs_, src_, fsas_, state_begins_, leaving_begins_,
      entering_begins_, entering_, forward_, backward_, grad_, fsa_begins_,
      totals_, posteriors_, in_order_, forward_grad_, backward_grad_;
  Reducer reducer_;
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using torch::Tensor;
  namespace py = pybind11;
  py::class_<Intersection>(m, "Intersection")
      .def(py::init<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                    Tensor>())
      .def("run", &Intersection::Run)
      .def("scores", &Intersection::Scores);
  py::class_<Scores>(m, "Scores")
      .def(py::init<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int,
                    bool, bool>())
      .def("run", &Scores::Run)
      .def("scores", &Scores::Result);
  py::class_<Backprop>(m, "Backprop")
      .def(py::init<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                    Tensor, int, bool>())
      .def("run", &Backprop::Run)
      .def("grad", &Backprop::Result);
  py::class_<Posteriors>(m, "Posteriors")
      .def(py::init<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                    Tensor, Tensor, Tensor>())
      .def("run", &Posteriors::Run)
      .def("run_backprop", &Posteriors::RunBackprop)
      .def("result", &Posteriors::Result)
      .def("grads", &Posteriors::Grads);
}
