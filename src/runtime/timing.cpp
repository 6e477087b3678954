// Streams, timers, captured graphs, and the measurement that is built of them.
#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/driver_context.h"

namespace pipethreader::runtime {

struct Stream::State {
  std::shared_ptr<const DriverContext> context;
  void* handle = nullptr;

  ~State() {
    if (handle == nullptr) return;
    context->bind();
    context->driver->stream_destroy(handle);
  }
};

struct Timer::State {
  std::shared_ptr<const DriverContext> context;
  void* begin = nullptr;
  void* end = nullptr;

  ~State() {
    context->bind();
    if (begin != nullptr) context->driver->event_destroy(begin);
    if (end != nullptr) context->driver->event_destroy(end);
  }
};

struct Graph::State {
  std::shared_ptr<const DriverContext> context;
  void* executable = nullptr;

  ~State() {
    if (executable == nullptr) return;
    context->bind();
    context->driver->graph_executable_destroy(executable);
  }
};

void* Stream::handle() const { return state_ ? state_->handle : nullptr; }

Result<void> Stream::synchronize() const {
  if (!state_) return {};
  return state_->context->run("finish the work of a stream",
                              [&](const Driver& d) { return d.stream_synchronize(state_->handle); });
}

Result<Stream> Gpu::create_stream() const {
  auto state = std::make_shared<Stream::State>();
  state->context = context_;
  // Ordered with the default stream, so that uploads and fills come before later launches.
  constexpr unsigned ordered_with_default = 0;
  auto ok = context_->run("make a stream",
                          [&](const Driver& d) { return d.stream_create(&state->handle, ordered_with_default); });
  if (!ok) return tl::unexpected(ok.error());
  Stream stream;
  stream.state_ = std::move(state);
  return stream;
}

Result<Timer> Gpu::create_timer() const {
  auto state = std::make_shared<Timer::State>();
  state->context = context_;
  auto ok = context_->run("make a pair of events", [&](const Driver& d) {
    const int code = d.event_create(&state->begin, 0);
    return code != 0 ? code : d.event_create(&state->end, 0);
  });
  if (!ok) return tl::unexpected(ok.error());
  Timer timer;
  timer.state_ = std::move(state);
  return timer;
}

Result<void> Timer::start(const Stream& stream) {
  return state_->context->run("record an event",
                              [&](const Driver& d) { return d.event_record(state_->begin, stream.handle()); });
}

Result<void> Timer::stop(const Stream& stream) {
  return state_->context->run("record an event",
                              [&](const Driver& d) { return d.event_record(state_->end, stream.handle()); });
}

Result<double> Timer::milliseconds() {
  float elapsed = 0;
  auto ok = state_->context->run("finish the timed work", [&](const Driver& d) {
    const int code = d.event_synchronize(state_->end);
    return code != 0 ? code : d.event_elapsed(&elapsed, state_->begin, state_->end);
  });
  if (!ok) return tl::unexpected(ok.error());
  return static_cast<double>(elapsed);
}

Result<void> Graph::launch(const Stream& stream) const {
  if (!state_) return fail("an empty graph was launched");
  return state_->context->run("launch a graph",
                              [&](const Driver& d) { return d.graph_launch(state_->executable, stream.handle()); });
}

Result<Graph> Gpu::capture(const std::function<Result<void>(const Stream&)>& record) const {
  auto stream = create_stream();
  if (!stream) return tl::unexpected(stream.error());
  constexpr int this_thread_only = 1;
  auto ok = context_->run("begin a capture",
                          [&](const Driver& d) { return d.capture_begin(stream->handle(), this_thread_only); });
  if (!ok) return tl::unexpected(ok.error());

  const auto recorded = record(*stream);
  void* graph = nullptr;
  ok = context_->run("end a capture", [&](const Driver& d) { return d.capture_end(stream->handle(), &graph); });
  auto state = std::make_shared<Graph::State>();
  state->context = context_;
  if (recorded && ok) {
    ok = context_->run("build a graph",
                       [&](const Driver& d) { return d.graph_instantiate(&state->executable, graph, 0); });
  }
  if (graph != nullptr) context_->driver->graph_destroy(graph);
  if (!recorded) return tl::unexpected(recorded.error());
  if (!ok) return tl::unexpected(ok.error());
  Graph result;
  result.state_ = std::move(state);
  return result;
}

Result<Measurement> Gpu::measure(const MeasureOptions& options,
                                 const std::function<Result<void>(const Stream&)>& work) const {
  if (options.repeats < 1 || options.launches < 1 || options.warmups < 0)
    return fail("a measurement needs at least one repeat of one launch, not {} of {}", options.repeats,
                options.launches);
  auto stream = create_stream();
  if (!stream) return tl::unexpected(stream.error());
  std::vector<Timer> timers;
  for (int i = 0; i < options.repeats; ++i) {
    auto timer = create_timer();
    if (!timer) return tl::unexpected(timer.error());
    timers.push_back(std::move(*timer));
  }

  if (auto ok = synchronize(); !ok) return tl::unexpected(ok.error());
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.idle_ms));
  for (int i = 0; i < options.warmups; ++i)
    if (auto ok = work(*stream); !ok) return tl::unexpected(ok.error());
  for (Timer& timer : timers) {
    if (auto ok = timer.start(*stream); !ok) return tl::unexpected(ok.error());
    for (int i = 0; i < options.launches; ++i)
      if (auto ok = work(*stream); !ok) return tl::unexpected(ok.error());
    if (auto ok = timer.stop(*stream); !ok) return tl::unexpected(ok.error());
  }

  Measurement result;
  for (Timer& timer : timers) {
    auto elapsed = timer.milliseconds();
    if (!elapsed) return tl::unexpected(elapsed.error());
    result.samples_ms.push_back(*elapsed / options.launches);
  }
  std::vector<double> sorted = result.samples_ms;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  result.median_ms = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  result.minimum_ms = sorted.front();
  return result;
}

}  // namespace pipethreader::runtime
