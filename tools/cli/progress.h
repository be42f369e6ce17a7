// A progress bar on standard error, for people only: it is drawn when that is a terminal, five times a second
// at most.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "decoder/pipeline/pipeline.h"
#include "tools/cli/options.h"

namespace asof {

class ProgressBar {
 public:
  ProgressBar(ProgressMode mode, std::string what);
  ~ProgressBar();  // wipes the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(const PipelineProgress& progress);
  // To hand to run_pipeline(); empty when nothing is to be drawn.
  std::function<void(const PipelineProgress&)> callback();

 private:
  bool enabled_;
  bool drawn_ = false;
  std::string what_;
  std::chrono::steady_clock::time_point started_, last_;
};

}  // namespace asof
