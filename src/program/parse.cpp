// Tokens, names and declarations of the text form.
#include <array>
#include <limits>

#include "program/parser.h"
#include "program/text.h"

namespace pipethreader::program {

Parser::Parser(Tokens tokens, const std::string& file) : tokens_(std::move(tokens)), file_(file) {}

bool Parser::sees(std::string_view text) const {
  return (peek().kind == Token::Kind::word || peek().kind == Token::Kind::symbol) && peek().text == text;
}

bool Parser::take(std::string_view text) {
  if (!sees(text)) return false;
  ++at_;
  return true;
}

void Parser::expect(std::string_view text) {
  if (!take(text)) fail_here(fmt::format("expected '{}'", text));
}

std::string Parser::word(std::string_view what) {
  if (peek().kind != Token::Kind::word || is_reserved(peek().text)) {
    fail_here(fmt::format("expected {}", what));
    return {};
  }
  return tokens_.list[at_++].text;
}

std::int64_t Parser::integer(std::string_view what) {
  const bool negative = take("-");
  std::int64_t value = 0;
  const std::string& text = peek().text;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (peek().kind != Token::Kind::number || code != std::errc{} || end != text.data() + text.size()) {
    fail_here(fmt::format("expected {}, a whole number", what));
    return 0;
  }
  ++at_;
  return negative ? -value : value;
}

int Parser::small(std::string_view what) {
  const Token token = peek();
  const std::int64_t value = integer(what);
  if (value > std::numeric_limits<int>::max() || value < std::numeric_limits<int>::min()) {
    fail_at_token(token, fmt::format("{} is too large", what));
    return 0;
  }
  return static_cast<int>(value);
}

void Parser::fail_here(std::string message, std::string hint) {
  const Token& token = peek();
  const std::string found = token.kind == Token::Kind::end ? "the end of the text" : fmt::format("'{}'", token.text);
  fail_at_token(token, fmt::format("{}, found {}", message, found), std::move(hint));
}

void Parser::fail_at_token(const Token& token, std::string message, std::string hint) {
  if (error_) return;
  error_ = Error(Diagnostic{file_, token.span, std::move(message), std::move(hint)});
  at_ = tokens_.list.size() - 1;
}

Result<Program> Parser::run() {
  expect("program");
  program_.name = word("the program's name");
  while (!at_end()) declaration();
  resolve_roles();
  if (error_) return tl::unexpected(*error_);
  return std::move(program_);
}

void Parser::declaration() {
  if (take("cluster")) {
    program_.cluster = small("the blocks of a cluster");
  } else if (take("blocks_per_unit")) {
    program_.blocks_per_unit = small("the blocks an EU holds");
  } else if (take("shared_bytes")) {
    program_.shared_bytes = integer("bytes of shared memory");
  } else if (take("generic")) {
    if (peek().kind != Token::Kind::string) return fail_here("expected the reason in quotes");
    program_.generic_reason = tokens_.list[at_++].text;
  } else if (take("dim")) {
    read_param(true);
  } else if (take("param")) {
    read_param(false);
  } else if (take("tensor")) {
    read_tensor(false);
  } else if (take("output")) {
    read_tensor(true);
  } else if (take("require")) {
    program_.requirements.push_back(expression());
  } else if (take("tensor_map")) {
    read_map();
  } else if (take("ring")) {
    read_ring();
  } else if (take("buffer")) {
    read_buffer();
  } else if (take("barrier")) {
    read_barrier();
  } else if (take("var")) {
    read_vars();
  } else if (take("layout")) {
    read_layout();
  } else if (take("fragment")) {
    read_fragment();
  } else if (take("role")) {
    read_role();
  } else {
    fail_here("expected a declaration",
              "one of cluster, blocks_per_unit, shared_bytes, generic, dim, param, tensor, "
              "output, require, tensor_map, ring, buffer, barrier, var, layout, fragment, role");
  }
}

ScalarType Parser::type() {
  const auto found = peek().kind == Token::Kind::word ? scalar_type(peek().text) : std::nullopt;
  if (!found) {
    fail_here("expected an element type");
    return ScalarType::f32;
  }
  ++at_;
  return *found;
}

// Params, vars and fragments stand in expressions and share one space.
void Parser::claim_value_name(const std::string& name, const Token& token) {
  if (params_.ids.contains(name) + vars_.ids.contains(name) + fragments_.ids.contains(name) > 1)
    fail_at_token(token, fmt::format("there is already a param, var or fragment '{}'", name));
}

void Parser::read_param(bool dim) {
  const Token token = peek();
  Param param;
  param.dim = dim;
  param.name = declare(params_, ParamId(program_.params.size()));
  claim_value_name(param.name, token);
  expect(":");
  param.type = type();
  program_.params.push_back(std::move(param));
}

void Parser::read_tensor(bool output) {
  Tensor tensor;
  tensor.output = output;
  tensor.name = declare(tensors_, TensorId(program_.tensors.size()));
  expect(":");
  tensor.type = type();
  expect("[");
  tensor.shape = arguments("]");
  program_.tensors.push_back(std::move(tensor));
}

Swizzle Parser::swizzle() {
  expect("swizzle");
  const Token token = peek();
  switch (integer("the bytes of a swizzle")) {
    case 0:
      return Swizzle::none;
    case 32:
      return Swizzle::bytes32;
    case 64:
      return Swizzle::bytes64;
    case 128:
      return Swizzle::bytes128;
    default:
      fail_at_token(token, "a swizzle is 0, 32, 64 or 128 bytes wide");
      return Swizzle::none;
  }
}

void Parser::read_map() {
  TensorMap map;
  map.name = declare(maps_, MapId(program_.maps.size()));
  expect(":");
  map.tensor = use(tensors_);
  map.swizzle = swizzle();
  expect("{");
  while (!take("}") && !at_end()) {
    TensorMap::MapDim dim;
    expect("extent");
    dim.extent = expression();
    expect("stride");
    dim.stride = expression();
    expect("box");
    dim.box = small("the elements of the box");
    if (take("step")) dim.step = small("the step between neighbours of the box");
    map.dims.push_back(dim);
  }
  program_.maps.push_back(std::move(map));
}

layout::Stairs Parser::stairs() {
  layout::Stairs stairs;
  stairs.rows = small("the rows of a stair");
  expect("from");
  stairs.begin = small("the first column of the first stair");
  expect("by");
  stairs.begin_step = small("the step to the next stair's first column");
  expect("to");
  stairs.end = small("the end of the first stair's columns");
  expect("by");
  stairs.end_step = small("the step to the end of the next stair's columns");
  return stairs;
}

void Parser::read_ring() {
  Ring ring;
  ring.name = declare(rings_, RingId(program_.rings.size()));
  expect(":");
  expect("depth");
  ring.depth = small("the slots of the ring");
  expect("full");
  ring.full_arrivals = small("the arrivals on full");
  expect("empty");
  ring.empty_arrivals = small("the arrivals on empty");
  if (take("bytes")) ring.bytes = integer("the bytes of a fill");
  ring.multicast = take("multicast");
  program_.rings.push_back(std::move(ring));
}

void Parser::read_buffer() {
  Buffer buffer;
  buffer.name = declare(buffers_, BufferId(program_.buffers.size()));
  expect(":");
  buffer.type = type();
  expect("[");
  buffer.rows = small("the rows of the buffer");
  expect(",");
  buffer.cols = small("the columns of the buffer");
  expect("]");
  if (take("slots")) buffer.slots = small("the slots of the buffer");
  if (sees("swizzle")) buffer.swizzle = swizzle();
  if (take("stairs")) buffer.stairs = stairs();
  if (take("ring")) buffer.ring = use(rings_);
  if (take("offset")) buffer.offset = integer("the byte offset of the buffer");
  program_.buffers.push_back(std::move(buffer));
}

void Parser::read_barrier() {
  Barrier barrier;
  barrier.name = declare(barriers_, BarrierId(program_.barriers.size()));
  expect(":");
  expect("participants");
  barrier.participants = small("the participants of the barrier");
  if (take("count")) barrier.count = small("the number of barriers");
  program_.barriers.push_back(std::move(barrier));
}

void Parser::read_vars() {
  do {
    const Token token = peek();
    const std::string name = declare(vars_, VarId(program_.vars.size()));
    claim_value_name(name, token);
    program_.vars.push_back({name});
  } while (take(","));
}

void Parser::read_layout() {
  const Token token = peek();
  static_cast<void>(declare(layout_names_, Id<LayoutTag>(layouts_.size())));
  expect("=");
  layout::Layout layout = layout_value();
  if (error_) return;
  if (const auto valid = layout::validate(layout); !valid)
    return fail_at_token(token, valid.error().diagnostics.front().message);
  layouts_.push_back(std::move(layout));
}

std::vector<int> Parser::integers() {
  std::vector<int> result;
  expect("[");
  while (!take("]") && !at_end()) {
    if (!result.empty()) expect(",");
    result.push_back(small("an element of the list"));
  }
  return result;
}

// The digits themselves, or for people: accumulator [rows, cols], blocked [shape] vector, everywhere [shape],
// slice NAME [kept dims].
layout::Layout Parser::layout_value() {
  const Token start = peek();
  if (take("accumulator")) {
    const std::vector<int> shape = integers();
    if (shape.size() == 2 && shape[0] > 0 && shape[0] % 64 == 0 && shape[1] > 0 && shape[1] % 8 == 0)
      return layout::mma_accumulator(shape[0], shape[1]);
    fail_at_token(start, "an accumulator has a multiple of 64 rows and a multiple of 8 columns");
    return {};
  }
  if (sees("blocked") || sees("everywhere")) {
    const bool blocked = take("blocked") || !take("everywhere");
    const std::vector<int> shape = integers();
    for (const int extent : shape)
      if (extent < 1) fail_at_token(start, "a tile's extents are at least 1");
    const int vector = blocked ? small("the length of the vectors") : 1;
    if (vector < 1) fail_at_token(start, "the length of the vectors is at least 1");
    if (error_) return {};
    return blocked ? layout::blocked(shape, vector) : layout::replicated_over_threads(shape);
  }
  if (take("slice")) {
    const layout::Layout of = domain();
    const std::vector<int> kept = integers();
    for (const int dim : kept)
      if (dim < 0 || dim >= static_cast<int>(of.shape.size())) fail_at_token(start, "the layout has no such dimension");
    return error_ ? layout::Layout{} : layout::slice(of, kept);
  }
  // The layout's own text: up to the parenthesis that closes its warps.
  std::string text;
  bool warps = false;
  while (!at_end()) {
    const std::string piece = tokens_.list[at_++].text;
    text += piece + " ";
    warps = warps || piece == "warp";
    if (warps && piece == ")") break;
  }
  auto parsed = layout::parse(text);
  if (!parsed) {
    const Diagnostic& d = parsed.error().diagnostics.front();
    fail_at_token(start, d.message, d.hint);
    return {};
  }
  return *std::move(parsed);
}

void Parser::read_fragment() {
  const Token token = peek();
  Fragment fragment;
  fragment.name = declare(fragments_, FragmentId(program_.fragments.size()));
  claim_value_name(fragment.name, token);
  expect(":");
  fragment.type = type();
  expect("on");
  fragment.layout = domain();
  expect("of");
  fragment_roles_.push_back(peek());
  static_cast<void>(word("the role of the fragment"));
  program_.fragments.push_back(std::move(fragment));
}

void Parser::resolve_roles() {
  for (std::size_t i = 0; i < fragment_roles_.size() && !error_; ++i) {
    const auto at = roles_.ids.find(fragment_roles_[i].text);
    if (at == roles_.ids.end()) {
      fail_at_token(fragment_roles_[i], fmt::format("there is no role '{}'", fragment_roles_[i].text));
    } else {
      program_.fragments[i].role = at->second;
    }
  }
}

void Parser::read_role() {
  Role role;
  role.name = declare(roles_, RoleId(program_.roles.size()));
  expect(":");
  if (take("copier")) {
    role.kind = RoleKind::copier;
  } else if (!take("computer")) {
    return fail_here("expected 'copier' or 'computer'");
  }
  if (take("instances")) role.instances = small("the instances of the role");
  if (take("registers")) role.registers = small("the registers of a thread");
  role.body = block();
  program_.roles.push_back(std::move(role));
}

Result<Program> parse(const std::string& text, const std::string& file) {
  auto tokens = tokenize(text, file);
  if (!tokens) return tl::unexpected(tokens.error());
  return Parser(*std::move(tokens), file).run();
}

}  // namespace pipethreader::program
