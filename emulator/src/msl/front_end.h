// The MSL front end: the Python program in mps_emulator/msl, which compiles a
// source text to a shared object with clang.
#pragma once

#include <string>
#include <vector>

#include "msl/msl.h"

namespace mps_emulator::msl {

class FrontEnd {
 public:
  // Finds three things.  For each, uses the first of the following candidates
  // that is set or exists:
  //   front end:    the folder MPS_EMULATOR_MSL_DIR; the folder msl beside this
  //                 library
  //   interpreter:  the program MPS_EMULATOR_PYTHON; the interpreter that the
  //                 Python package passes, which runs this process; python3
  //   clang:        the program MPS_EMULATOR_CLANG; clang++-19 in PATH; clang++
  //                 in PATH
  FrontEnd();

  // Returns "", or the reason why the front end cannot compile, with a remedy.
  const std::string &error() const { return error_; }

  // Returns a hash of `fields` and of all else that a compilation depends on:
  // the front end's files, the compiler and this processor.  The hash is the
  // same in every process.  Two lists of fields have different hashes even if
  // they differ only in where a field ends.
  std::string Key(const std::vector<std::string> &fields) const;

  enum class Result { kBuilt, kRefused, kFailed };

  // Compiles the text in file `source` to the shared object `output`.  Sets
  // `*diagnostics` if Metal would refuse the text, or if the front end fails.
  // report_accesses: see ReportsAccesses() in validator.h.
  Result Build(const std::string &source, bool fast_math, bool report_accesses,
               const std::string &output, std::string *diagnostics) const;

  // Compiles kernels of the .metallib at `path`.  Returns kRefused if the
  // .metallib has no kernel of one of these names.
  // cache: a folder for compiled parts that all kernels share.
  Result BuildMetallib(const std::string &path,
                       const std::vector<std::string> &kernels,
                       bool report_accesses, const std::string &output,
                       const std::string &cache,
                       std::string *diagnostics) const;

 private:
  // Runs the front end; `command` begins with the front end's own command.
  Result Run(std::vector<std::string> command, bool report_accesses,
             std::string *diagnostics) const;

  std::string directory_;
  std::string python_;
  std::string clang_;
  std::string cpu_;
  std::string identity_;
  std::string error_;
};

}  // namespace mps_emulator::msl
