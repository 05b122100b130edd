// The MSL front end: the Python program in mps_emulator/msl, which compiles a
// source text to a shared object with clang.
#pragma once

#include <string>
#include <vector>

#include "msl/msl.h"

namespace mps_emulator::msl {

class FrontEnd {
 public:
  // Finds the front end, the Python interpreter and clang.  An environment
  // variable comes before the usual places:
  //   MPS_EMULATOR_MSL_DIR  the folder of the front end's __main__.py; else
  //                         the folder msl beside this library
  //   MPS_EMULATOR_PYTHON   the interpreter; else this process's, which the
  //                         Python package passes; else python3
  //   MPS_EMULATOR_CLANG    clang++; else clang++-19 and clang++ in PATH
  FrontEnd();

  // Empty, or the reason why the front end cannot compile, and the remedy.
  const std::string &error() const { return error_; }

  // A hash of all fields, and of all else that a compilation depends on: the
  // front end's files, the compiler, this processor. It is the same in every
  // process, and the borders between fields count.
  std::string Key(const std::vector<std::string> &fields) const;

  enum class Result { kBuilt, kRefused, kFailed };

  // Compiles the text in file `source` to the shared object `output`.  Sets
  // `*diagnostics` if Metal would refuse the text, or if the front end fails.
  // check_races: see race_checker.h.
  Result Build(const std::string &source, bool fast_math, bool check_races,
               const std::string &output, std::string *diagnostics) const;

 private:
  std::string directory_;
  std::string python_;
  std::string clang_;
  std::string cpu_;
  std::string identity_;
  std::string error_;
};

}  // namespace mps_emulator::msl
