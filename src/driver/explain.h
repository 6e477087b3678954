// A schedule for people: what each sTask is, which unit runs it when, how much of each unit it keeps busy; as text, as
// one HTML page, and as a trace for Perfetto.
#pragma once

#include <string>

#include "driver/compiler.h"
#include "simulate/timeline.h"

namespace pipethreader::driver {

// Table and Gantt chart of a steady iteration; `columns` is the width of the terminal.
[[nodiscard]] std::string explain_text(const Staged& staged, const device::Device& device,
                                       const simulate::Timeline& timeline, int columns = 120);

// How busy each unit is predicted to be, and how busy it was in a launch of `measured_us` microseconds: the work is
// known, the time is measured. An error where a dim of the kernel is dynamic.
[[nodiscard]] Result<std::string> explain_measured(const Staged& staged, const device::Device& device,
                                                   const simulate::Timeline& timeline, double measured_us);

// What was considered, the chosen one first: predicted times, how much each loses, and why it was not taken.
[[nodiscard]] std::string explain_candidates(const Plan& plan);

// The chart alone: one row for each lane and unit, from `start` to `end` cycles.
[[nodiscard]] std::string gantt(const task::Graph& graph, const simulate::Timeline& timeline, double start, double end,
                                int columns);

// A page that needs nothing else; `candidates` as explain_candidates() gives them.
[[nodiscard]] std::string explain_html(const Staged& staged, const device::Device& device,
                                       const simulate::Timeline& timeline, const std::string& candidates);

// Chrome's trace format, which Perfetto (ui.perfetto.dev) opens; times in microseconds at the burst clock.
[[nodiscard]] std::string explain_trace(const Staged& staged, const device::Device& device,
                                        const simulate::Timeline& timeline);

}  // namespace pipethreader::driver
