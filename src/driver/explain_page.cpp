// The timeline as an HTML page and as a trace for Perfetto.
#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "driver/explain.h"

namespace pipethreader::driver {

using json = nlohmann::json;
using simulate::Span;
using simulate::Timeline;

namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

constexpr const char* unit_names[] = {"copy engine", "tensor core", "CUDA cores"};

std::string row_name(const Timeline& timeline, int lane, task::UnitKind unit) {
  return fmt::format("{} / {}", timeline.lanes[static_cast<std::size_t>(lane)], unit_names[static_cast<int>(unit)]);
}

// A hue for each sTask, far apart for neighbours.
int hue(std::size_t task) { return static_cast<int>(task * 137 % 360); }

constexpr const char* page_head = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{0}</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 1.5rem; background: Canvas; color: CanvasText; color-scheme: light dark; }}
pre {{ font: 12px ui-monospace, monospace; overflow-x: auto; }}
.chart {{ overflow-x: auto; border: 1px solid #8886; }}
svg text {{ font: 11px system-ui, sans-serif; fill: currentColor; pointer-events: none; }}
svg rect.task {{ stroke: #0006; stroke-width: .5; }}
svg rect.wait {{ fill: #8883; }}
</style></head><body>
<h1>{0}</h1>
<p>{1}</p>
)";

}  // namespace

std::string explain_html(const Staged& staged, const device::Device& device, const Timeline& timeline,
                         const std::string& candidates) {
  const task::Graph& graph = staged.lowered.graph;
  std::string page = fmt::format(
      fmt::runtime(page_head), escaped(staged.kernel.name),
      escaped(fmt::format(
          "{}; {}. One work item; cycles from left to right, loops cut after a few iterations. Point at a bar "
          "for its sTask, iteration and time; grey bars are lanes that wait.",
          device.description, specialisation(staged.lowered.program))));
  const double label = 190, height = 26, scale = std::clamp(6000 / std::max(1.0, timeline.cycles), 0.05, 1.0);
  std::map<std::pair<int, int>, int> rows;  // lane and unit; in order of lanes
  for (const Span& span : timeline.spans) rows[{span.lane, static_cast<int>(span.unit)}] = 0;
  int count = 0;
  for (auto& [key, row] : rows) row = count++;
  page += fmt::format("<div class=\"chart\"><svg width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\">\n",
                      label + timeline.cycles * scale + 20, (count + 1) * height);
  for (const auto& [key, row] : rows) {
    page += fmt::format("<text x=\"4\" y=\"{:.0f}\">{}</text>\n", row * height + 17,
                        escaped(row_name(timeline, key.first, static_cast<task::UnitKind>(key.second))));
  }
  for (const Span& span : timeline.spans) {
    const int row = rows.at({span.lane, static_cast<int>(span.unit)});
    const double x = label + span.start * scale, width = std::max(1.0, (span.end - span.start) * scale);
    const bool work = span.kind == Span::Kind::work;
    const std::string name = span.task.valid() ? simulate::task_name(graph, span.task) : "a ring";
    const std::string iteration = span.iteration >= 0 ? fmt::format(" ({})", span.iteration) : "";
    const std::string title = fmt::format("{}{}{}: {:.0f} to {:.0f}, {:.0f} cycles", work ? "" : "waits for ", name,
                                          iteration, span.start, span.end, span.end - span.start);
    const std::string paint =
        work ? fmt::format(" class=\"task\" fill=\"hsl({} 65% 62%)\"", hue(static_cast<std::size_t>(span.task.index)))
             : std::string(" class=\"wait\"");
    page +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\"{}><title>{}</title></rect>\n",
                    x, row * height + 3, width, height - 6, paint, escaped(title));
    if (work && width > 7.0 * static_cast<double>(name.size() + iteration.size())) {
      page += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" style=\"fill:#000\">{}</text>\n", x + 3, row * height + 17,
                          escaped(name + iteration));
    }
  }
  for (double tick = 0; tick <= timeline.cycles; tick += 1000) {
    page +=
        fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\">{:.0f}</text>\n", label + tick * scale, count * height + 17, tick);
  }
  page += "</svg></div>\n<h2>Schedule</h2>\n<pre>" + escaped(explain_text(staged, device, timeline, 140)) + "</pre>\n";
  page += "<h2>Candidates</h2>\n<pre>" + escaped(candidates) + "</pre>\n";
  page += "<h2>Kernel</h2>\n<pre>" + escaped(kernel::print(staged.kernel)) + "</pre>\n";
  page += "<h2>sProgram</h2>\n<pre>" + escaped(schedule::print(graph, staged.lowered.schedule)) + "</pre>\n";
  page += "<h2>Proof</h2>\n<pre>" + escaped(staged.printed.verified.proof()) + "</pre>\n</body></html>\n";
  return page;
}

std::string explain_trace(const Staged& staged, const device::Device& device, const Timeline& timeline) {
  const double per_us = device.clock.burst_ghz * 1000;
  json events = json::array();
  events.push_back({{"ph", "M"},
                    {"pid", 1},
                    {"name", "process_name"},
                    {"args", {{"name", staged.kernel.name + ": one work item"}}}});
  std::map<std::pair<int, int>, int> rows;
  for (const Span& span : timeline.spans) rows[{span.lane, static_cast<int>(span.unit)}] = 0;
  int count = 0;
  for (auto& [key, row] : rows) {
    row = ++count;
    events.push_back({{"ph", "M"},
                      {"pid", 1},
                      {"tid", row},
                      {"name", "thread_name"},
                      {"args", {{"name", row_name(timeline, key.first, static_cast<task::UnitKind>(key.second))}}}});
  }
  for (const Span& span : timeline.spans) {
    const bool work = span.kind == Span::Kind::work;
    const std::string name = span.task.valid() ? simulate::task_name(staged.lowered.graph, span.task) : "a ring";
    events.push_back(
        {{"ph", "X"},
         {"pid", 1},
         {"tid", rows.at({span.lane, static_cast<int>(span.unit)})},
         {"name", work ? name : "wait: " + name},
         {"cat", work ? "work" : "wait"},
         {"ts", span.start / per_us},
         {"dur", (span.end - span.start) / per_us},
         {"args", {{"iteration", span.iteration}, {"start_cycle", span.start}, {"cycles", span.end - span.start}}}});
  }
  return json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace pipethreader::driver
