// Every error of the kernel language: one case each, with its place. In a case's text `@` marks the place where the
// error must point and is taken out before parsing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "kernel/builder.h"
#include "kernel/kernel.h"
#include "kernel/messages.h"

namespace pipethreader::kernel {
namespace {

struct Case {
  std::string id;        // the message, as in messages.def
  std::string text;      // the file
  std::string expected;  // the message as the user sees it
  std::vector<Binding> dims = {};
  std::vector<Binding> options = {};
};

// A kernel with inputs A[M,N] and B[N], an output C[M,N], the parallel axes m and n, and this body.
std::string with_body(const std::string& body) {
  return "kernel f(A: f16[M,N], B: f16[N], t: f32) -> (C: f32[M,N]) {\n  parallel m: M, n: N;\n" + body + "\n}\n";
}

// The same, with only m parallel.
std::string rows(const std::string& body) {
  return "kernel f(A: f16[M,N], B: f16[N], t: f32) -> (C: f32[M,N]) {\n  parallel m: M;\n" + body + "\n}\n";
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

const std::string store = "  C[m,n] = A[m,n];";

std::vector<Case> text_cases() {
  return {
      {"file_too_large", "@" + std::string((1 << 20) + 1, ' '),
       "the file has 1048577 bytes, a kernel file may have at most 1048576"},
      {"unexpected_byte", "kernel f@#", "unexpected character '#'"},
      {"unexpected_byte", "kernel f(A: @\x01", "unexpected byte 0x01"},
      {"unexpected_byte", "@\xc3\xa9", "unexpected byte 0xc3"},
      {"unexpected_byte", std::string("// \xc3\xa9\n@") + '\0', "unexpected byte 0x00"},
      {"bad_number", with_body("  C[m,n] = @12x;"), "'12x' is not a number of this language"},
      {"bad_number", with_body("  C[m,n] = @9007199254740993;"), "'9007199254740993' is not a number of this language"},
      {"bad_number", with_body("  C[m,n] = @1e999;"), "'1e999' is not a number of this language"},
      {"bad_number", with_body("  C[m,n] = @1.2.3;"), "'1.2.3' is not a number of this language"},
      {"expected", with_body("  C[m,n] = A[m,n]@"), "expected ';', found '}'"},
      {"expected", "kernel f(A: f16[M]) @{", "expected '->', found '{'"},
      {"expected", "kernel f(A: f16[M]) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = A[m] + @",
       "expected an expression, found the end of the file"},
      {"expected", with_body("  C[m,n] = A[m,n] * @* 2;"), "expected an expression, found '*'"},
      {"expected", "@matmul", "expected 'kernel', found 'matmul'"},
      {"expected", "kernel f(A: f16[M@)", "expected ']', found ')'"},
      {"no_kernel", "// nothing but this\n@", "the file holds no kernel"},
      {"duplicate_kernel", with_body(store) + "@" + with_body(store), "kernel 'f' is defined twice in this file"},
      {"too_deep", with_body("  C[m,n] = " + repeated("(", 200) + "@(1" + repeated(")", 201) + ";"),
       "nested deeper than 200 levels"},
      {"too_deep", with_body("  C[m,n] = " + repeated("-", 200) + "@-t;"), "nested deeper than 200 levels"},
      {"too_deep", with_body("  C[m,n] = @t" + repeated(" + t", 2300) + ";"), "nested deeper than 2250 levels"},
      {"too_deep", with_body("  C[m,n] = " + repeated("exp(", 200) + "@t" + repeated(")", 200) + ";"),
       "nested deeper than 200 levels"},
      {"chained_comparison", with_body("  C[m,n] = select(0 < t @< 1, 0, 1);"), "comparisons do not chain"},
      {"late_declaration", with_body(store + "\n  @require M > 0;"), "`require` must stand before the first statement"},
      {"unknown_type", "kernel f(A: @half[M]) -> (C: f16[M]) { parallel m: M; C[m] = A[m]; }", "'half' is not a type"},
      {"output_without_shape", "kernel f(A: f16[M]) -> (@C: f16) { }", "output 'C' has no shape"},
      {"wrong_argument_count", with_body("  C[m,n] = @exp(t, t);"), "'exp' takes 1 arguments, found 2"},
      {"wrong_argument_count", with_body("  C[m,n] = @f16();"), "'f16' takes 1 arguments, found 0"},
      {"unknown_function", with_body("  C[m,n] = @softplus(t);"), "'softplus' is not a function"},
      {"bad_option_value", "kernel f() -> (C: f16[M]) { option a: bool = @3; }",
       "option 'a' is bool, but its value is '3'"},
      {"bad_option_value", "kernel f() -> (C: f16[M]) { option a: i32 = @1.5; }",
       "option 'a' is i32, but its value is '1.5'"},
  };
}

std::vector<Case> name_cases() {
  return {
      {"name_taken", "kernel f(A: f16[M], @M: f16[K]) -> (C: f16[M]) { }", "'M' already names a dim"},
      {"name_taken", with_body("  for @m: M { }"), "'m' already names an axis"},
      {"name_taken", with_body("  C[m,n] = sum[@A: M] 1.0;"), "'A' already names a tensor"},
      {"reserved_name", "kernel f(@sum: f16[M]) -> (C: f16[M]) { }",
       "'sum' is a word of the language and cannot be a name"},
      {"reserved_name", with_body("  @exp = 1;\n" + store), "'exp' is a word of the language and cannot be a name"},
      {"unknown_name", with_body("  C[m,n] = A[m,@q];"), "'q' is not defined"},
      {"unknown_name", with_body("  C[m,n] = @exp;"), "'exp' is not defined"},
      {"unknown_name", with_body("  C[m,n] = sum[@q] t;"), "'q' is not defined"},
      {"used_before_assigned", with_body("  C[m,n] = @x;\n  x = 1;"), "'x' is used before it is assigned"},
      {"out_of_scope", with_body("  for k: N { x = sum[k] A[m,k]; }\n  C[m,n] = @x;"),
       "'x' belongs to a loop or reduction that has ended"},
      {"wrong_kind", with_body("  C[m,n] = sum[@N] t;"), "'N' is a dim, expected an axis"},
      {"wrong_kind", with_body("  @t = 1;"), "'t' is a scalar, expected a value or an output"},
      {"takes_no_indices", with_body("  C[m,n] = @t[m];"), "'t' is a scalar and takes no indices"},
      {"needs_indices", with_body("  C[m,n] = @A;"), "'A' is a tensor and needs 2 indices"},
      {"input_assigned", with_body("  @A[m,n] = t;"), "'A' is an input and cannot be assigned"},
      {"not_a_plain_axis", with_body("  x[@m + 1] = t;"), "the left side needs plain axis names, as in `x[i,j]`"},
      {"repeated_axis", with_body("  x[m,@m] = t;"), "axis 'm' stands twice in 'x[...]'"},
      {"repeated_axis", rows("  C[m,n] = A[m,n] + @sum[n, n] A[m,n];"), "axis 'n' stands twice in 'sum[...]'"},
      {"range_not_inferable", with_body("  x[@q] = t;"), "the range of axis 'q' cannot be inferred"},
      {"range_ambiguous", with_body("  x[@q] = A[q,n] + B[q];"), "axis 'q' could range over M or N"},
      {"type_declared_late", with_body("  x = t;\n  @x: f16 = t;"), "'x' already has a type"},
      {"carry_redeclared", with_body("  x = t;\n  carry @x = t;"),
       "'x' is already assigned and cannot be declared by `carry`"},
      {"accumulate_undefined", with_body("  @x += t;"), "'x' is accumulated with `+=` before it has a value"},
      {"accumulate_output", with_body("  @C[m,n] += t;"), "output 'C' is accumulated with `+=`"},
      {"combine_count",
       with_body("  carry x = 0, y = 0;\n  for k: N { x += sum[k] A[m,k]; y += x; } @combine (x2) { }"),
       "the loop carries 2 values (x, y), but `combine` names 1"},
  };
}

std::vector<Case> scope_cases() {
  return {
      {"rank_mismatch", with_body("  C[m,n] = @A[m];"), "'A' has 2 dims but is used with 1 index"},
      {"rank_mismatch", with_body("  x[m] = t;\n  C[m,n] = @x;"), "'x' has 1 axis but is used with 0 indices"},
      {"rank_mismatch", with_body("  @C[m] = t;"), "'C' has 2 dims but is used with 1 index"},
      {"axes_mismatch", with_body("  p[m,n] = t;\n  C[m,n] = @p[n,m];"), "'p' has axes [m,n] but is used as [n,m]"},
      {"axes_mismatch", with_body("  p[m,n] = t;\n  @p[n,m] = t;"), "'p' has axes [m,n] but is used as [n,m]"},
      {"axes_mismatch", with_body("  p[m,n] = t;\n  C[m,n] = @p[m,n + 1];"),
       "'p' has axes [m,n] but is used as [m,n + 1]"},
      {"axis_not_in_scope", with_body("  y = sum[k: N] A[m,k];\n  C[m,n] = A[m,@k];"),
       "axis 'k' is used outside its loop or reduction"},
      {"axis_not_in_scope", with_body("  carry x = 0;\n  for k: N { x += sum[k] A[m,k]; }\n  C[m,n] = sum[@k] B[k];"),
       "axis 'k' is used outside its loop or reduction"},
      {"free_axis", with_body("  carry x = 0;\n  for k: N {\n    x = @A[m,k];\n  }\n  C[m,n] = x;"),
       "axis 'k' stands on the right side but not in 'x'"},
      {"free_axis", rows("  x[m,d] = A[m,d];\n  C[m,n] = @x[m,d] * B[n];"),
       "axis 'd' stands on the right side but not in 'C'"},
      {"reduce_parallel", with_body("  C[m,n] = @sum[n] A[m,n];"), "'n' is a parallel axis and cannot be reduced"},
      {"size_not_constant", "kernel f(A: f16[M], t: i32) -> (C: f16[M]) {\n  parallel m: @t;\n  C[m] = A[m];\n}",
       "the size of axis 'm' may only use dims, options and integers"},
      {"size_not_constant",
       "kernel f(A: f16[M], t: i32) -> (C: f16[M]) {\n  require @t > 0;\n  parallel m: M;\n  C[m] = A[m];\n}",
       "`require` may only use dims, options and integers"},
      {"where_uses_value", with_body("  x = t;\n  for k: N where k < @x { }\n" + store),
       "the `where` of a loop cannot use the value 'x'"},
      {"where_uses_inner_axis", rows("  inner d: N;\n  for k: N where @k < d { }\n  C[m,d] = A[m,d];"),
       "the `where` of a loop cannot use the inner axis 'd'"},
      {"guarded_definition", with_body("  @x = t when m > 0;\n" + store),
       "'x' has no old value to keep where `when` is false"},
      {"assigned_not_carried", with_body("  x = t;\n  for k: N { @x = sum[k] A[m,k]; }\n" + store),
       "'x' was assigned outside this loop and is not carried"},
      {"statement_in_combine",
       with_body("  carry x = 0;\n  for k: N { x += sum[k] A[m,k]; } combine (y) {\n    @C[m,n] = x;\n  }"),
       "a store cannot stand in `combine`"},
      {"output_read", with_body("  C[m,n] = @C[m,n];"), "output 'C' is read"},
      {"output_never_written", "kernel f(A: f16[M]) -> (C: f16[M], @D: f16[M]) {\n  parallel m: M;\n  C[m] = A[m];\n}",
       "output 'D' is never written"},
      {"output_written_twice", with_body(store + "\n  @C[m,n] = t;"), "output 'C' is written twice"},
      {"output_misses_axis", with_body("  inner d: N;\n  x[n] = B[n];\n  @C[m,d] = t;"),
       "output 'C' is written without the parallel axis 'n'"},
      {"output_misses_axis", with_body("  for k: N {\n    @C[m,n] = sum[k] A[m,k];\n  }"),
       "output 'C' is written without the streamed axis 'k'"},
      {"unused_parallel_axis", "kernel f(A: f16[M]) -> (C: f16[M]) {\n  parallel m: M, @q: M;\n  C[m] = A[m];\n}",
       "parallel axis 'q' is never used"},
      {"no_output", "kernel f(A: f16[M]) -> () { }", "kernel 'f' has no output"},
  };
}

std::vector<Case> type_cases() {
  return {
      {"narrowing", "kernel f(A: f32[M]) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = @A[m];\n}",
       "'C' is f16 but the expression is f32"},
      {"narrowing", with_body("  x: f16 = @t * 2;\n" + store), "'x' is f16 but the expression is f32"},
      {"narrowing", with_body("  x = A[m,n];\n  x = @t;\n" + store), "'x' is f16 but the expression is f32"},
      {"narrowing", "kernel f(A: f16[M]) -> (C: i32[M]) {\n  parallel m: M;\n  C[m] = @A[m];\n}",
       "'C' is i32 but the expression is f16"},
      {"narrowing", "kernel f(A: bf16[M], B: f16[M]) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = @A[m] + B[m];\n}",
       "'C' is f16 but the expression is f32"},
      {"not_a_condition", with_body("  C[m,n] = select(@t, 1, 0);"), "'select' needs a condition, found f32"},
      {"not_a_condition", with_body("  C[m,n] = select(t > 0 && @t, 1, 0);"), "'&&' needs a condition, found f32"},
      {"not_a_condition", with_body("  x = t;\n  x = t when @m;\n" + store), "`when` needs a condition, found i32"},
      {"not_a_number", with_body("  C[m,n] = t + (@t > 0);"), "'+' needs numbers, found a condition"},
      {"not_a_number", with_body("  C[m,n] = @t > 0;"), "'C' needs numbers, found a condition"},
      {"integers_only", with_body("  C[m,n] = @t % 2;"), "'%' needs integers, found f32"},
      {"integers_only", "kernel f(A: f16[M]) -> (C: f16[M]) {\n  parallel m: @1.5;\n  C[m] = A[m];\n}",
       "the size of axis 'm' needs integers, found f32"},
      {"type_not_supported", "kernel f(@A: f64[M]) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = 1;\n}",
       "type f64 cannot be used for tensor 'A'"},
      {"type_not_supported", with_body("  C[m,n] = @bool(t);"), "type bool cannot be used for a conversion"},
      {"type_not_supported", "kernel f() -> (C: f16[M]) {\n  option @a: f16 = 1;\n  parallel m: M;\n  C[m] = 1;\n}",
       "type f16 cannot be used for an option"},
      {"index_not_integer", "kernel f(A: f16[M], t: f32) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = A[@t];\n}",
       "an index of 'A' is f32, expected an integer"},
      {"index_not_affine", with_body("  C[m,n] = A[@m*n,n];"), "an index of 'A' is not affine in the axes"},
      {"index_not_affine", with_body("  C[m,n] = A[@M / (n + 1),n];"), "an index of 'A' is not affine in the axes"},
      {"gather_not_supported",
       "kernel f(A: f16[M], I: i32[M]) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = A[@I[m]];\n}",
       "an index of 'A' is read from 'I', which is not supported yet"},
  };
}

std::vector<Case> bounds_cases() {
  return {
      {"index_below", with_body("  C[m,n] = A[@m - 1,n];"), "index 1 of 'A', `m - 1`, may be below 0"},
      {"index_below", with_body("  C[m,n] = select(m > 1, A[m,n], A[@m - 1,n]);"),
       "index 1 of 'A', `m - 1`, may be below 0"},
      {"index_above", with_body("  C[m,n] = A[m,@n + 1];"), "index 2 of 'A', `n + 1`, may reach beyond its size N"},
      {"index_above", with_body("  C[m,n] = A[@n,n];"), "index 1 of 'A', `n`, may reach beyond its size M"},
      {"index_above", with_body("  C[m,n] = sum[k: N where k <= n] A[m,@k + 1];"),
       "index 2 of 'A', `k + 1`, may reach beyond its size N"},
      {"index_above", "kernel f(A: f16[4,4]) -> (C: f16[4,2]) {\n  parallel m: 4, n: 2;\n  C[m,n] = A[m,@n*2 + 2];\n}",
       "index 2 of 'A', `n*2 + 2`, may reach beyond its size 4"},
      {"index_above",
       "kernel f(K: f16[G,D]) -> (C: f16[H,D]) {\n  parallel h: H, d: D;\n  require G > 0 && H >= G;\n  C[h,d] = "
       "K[@h/(H/G),d];\n}",
       ""},  // H / G without H % G == 0: 5 heads over 3 groups reach group 4
      {"output_overlaps", "kernel f(A: f16[M]) -> (C: f16[M]) {\n  parallel m: M;\n  C[@m/2] = A[m];\n}",
       "several points may write the same element of 'C'"},
      {"divisor_not_positive", with_body("  C[m,n] = A[m/(@M - N),n];"), "the divisor `M - N` may be zero or negative"},
      {"size_negative", "kernel f(A: f16[M]) -> (C: f16[@M - 2]) {\n  parallel m: M - 2;\n  C[m] = A[m];\n}",
       "'C' may have the negative size `M - 2`"},
  };
}

std::vector<Case> specialise_cases() {
  const std::string grouped =
      "kernel f(A: f16[H]) -> (C: f16[H]) {\n  option wide: bool = false;\n  option step: i32 = 1;\n"
      "  require @H % 4 == 0;\n  parallel h: H;\n  C[h] = A[h];\n}";
  const std::string unmarked = std::regex_replace(grouped, std::regex("@"), "");
  return {
      {"unknown_dim", unmarked, "kernel 'f' has no dim 'K'", {{"K", 4}}},
      {"unknown_option", unmarked, "kernel 'f' has no option 'deep'", {}, {{"deep", 1}}},
      {"bad_dim",
       "kernel f(A: f16[@H]) -> (C: f16[H]) { parallel h: H; C[h] = A[h]; }",
       "dim 'H' = -4 is not a size",
       {{"H", -4}}},
      {"bad_dim",
       "kernel f(A: f16[@H]) -> (C: f16[H]) { parallel h: H; C[h] = A[h]; }",
       "dim 'H' = 1.5 is not a size",
       {{"H", 1.5}}},
      {"bad_option_value",
       std::regex_replace(unmarked, std::regex("wide"), "@wide"),
       "option 'wide' is bool, but its value is 2",
       {},
       {{"wide", 2}}},
      {"bound_twice", unmarked, "'H' is given twice", {{"H", 4}, {"H", 8}}},
      {"requirement_violated", grouped, "`require H % 4 == 0` does not hold with H=6", {{"H", 6}}},
      {"division_by_zero",
       "kernel f(A: f16[H,G]) -> (C: f16[H,G]) {\n  require @H % G == 0;\n  parallel h: H, g: G;\n  C[h,g] = "
       "A[h,g];\n}",
       "`H % G == 0` divides by zero with H=4, G=0",
       {{"H", 4}, {"G", 0}}},
      {"tensor_too_large",
       "kernel f(@A: f16[H,H,H]) -> (C: f16[H]) {\n  parallel h: H;\n  C[h] = A[h,0,0];\n}",
       "tensor 'A' would have more than 2^48 elements",
       {{"H", 1e6}}},
  };
}

Result<Kernel> compile(const Case& c, const std::string& text) {
  auto kernels = parse(text, "k.stask");
  if (!kernels) return tl::unexpected(kernels.error());
  auto checked = check(kernels->front());
  if (!checked) return tl::unexpected(checked.error());
  return specialise(*checked, c.dims, c.options);
}

// The message's text with anything in place of its arguments.
std::regex pattern(const std::string& id) {
  for (const MessageInfo& m : all_messages()) {
    if (m.id != id) continue;
    std::string text;
    for (std::size_t i = 0; i < m.text.size(); ++i) {
      const char c = m.text[i];
      if (c == '{' && i + 2 < m.text.size() && m.text[i + 2] == '}') {
        text += "[^]*";
        i += 2;
      } else {
        if (std::string_view("^$.*+?()[]{}|\\").find(c) != std::string_view::npos) text += '\\';
        text += c;
      }
    }
    return std::regex(text);
  }
  ADD_FAILURE() << "no message '" << id << "'";
  return std::regex("");
}

void expect_error(const Case& c) {
  SCOPED_TRACE(c.id + ": " + c.text.substr(0, 400));
  const std::size_t at = c.text.find('@');
  std::string text = c.text;
  std::string place;
  if (at != std::string::npos) {
    text.erase(at, 1);
    const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    const std::size_t start = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    place = fmt::format("{}:{}:", line, start == std::string::npos ? at + 1 : at - start);
  }
  const auto result = compile(c, text);
  ASSERT_FALSE(result) << "accepted";
  ASSERT_FALSE(result.error().diagnostics.empty());
  const Diagnostic& first = result.error().diagnostics.front();
  EXPECT_TRUE(std::regex_match(first.message, pattern(c.id))) << "found: " << result.error().format();
  EXPECT_THAT(first.message, testing::StartsWith(c.expected));
  EXPECT_THAT(first.format(), testing::StartsWith("k.stask:" + place)) << result.error().format();
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto&& some : {text_cases(), name_cases(), scope_cases(), type_cases(), bounds_cases(), specialise_cases()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

TEST(KernelErrors, Text) { std::ranges::for_each(text_cases(), expect_error); }
TEST(KernelErrors, Names) { std::ranges::for_each(name_cases(), expect_error); }
TEST(KernelErrors, Scopes) { std::ranges::for_each(scope_cases(), expect_error); }
TEST(KernelErrors, Types) { std::ranges::for_each(type_cases(), expect_error); }
TEST(KernelErrors, Bounds) { std::ranges::for_each(bounds_cases(), expect_error); }
TEST(KernelErrors, Specialisation) { std::ranges::for_each(specialise_cases(), expect_error); }

// No text reaches these: parse() or check() finds such a fault earlier. They are shown on kernels that were built or
// edited.
std::map<std::string, std::string> cases_without_text() {
  std::map<std::string, std::string> shown;
  const auto show = [&](const std::string& id, const auto& result) {
    shown[id] = result ? "" : result.error().diagnostics.front().message;
  };
  const auto parsed = [](const std::string& text) {
    auto kernels = parse(text, "k.stask");
    EXPECT_TRUE(kernels) << text;
    return kernels->front();
  };
  build::Builder builder("f");
  builder.dim("two words");
  show("not_a_name", builder.finish());
  const Kernel good =
      parsed("kernel f(A: f16[M,N]) -> (C: f32[M]) {\n  parallel m: M;\n  x[m] = sum[k: N] A[m,k];\n  C[m] = x[m];\n}");
  Kernel swapped = good;
  std::swap(swapped.body[0], swapped.body[1]);
  show("undefined_value", check(swapped));
  Kernel unbound = good;
  for (Expr& e : unbound.exprs)
    if (e.kind == Expr::Kind::reduce) e.axes.clear();
  show("axis_not_in_scope", check(unbound));
  Kernel negative = parsed("kernel f(A: f16[M - 2]) -> (C: f16[M]) {\n  parallel m: M;\n  C[m] = 1;\n}");
  for (Expr& e : negative.exprs) e.type = ScalarType::i32;
  show("negative_size", specialise(negative, {{"M", 1}}, {}));
  return shown;
}

TEST(KernelErrors, WithoutText) {
  for (const auto& [id, message] : cases_without_text())
    EXPECT_TRUE(std::regex_match(message, pattern(id))) << id << " found: " << message;
}

TEST(KernelErrors, EveryMessageHasACase) {
  std::set<std::string> shown;
  for (const auto& [id, message] : cases_without_text()) shown.insert(id);
  for (const Case& c : all_cases()) shown.insert(c.id);
  for (const MessageInfo& m : all_messages()) EXPECT_TRUE(shown.contains(std::string(m.id))) << m.id;
}

// A row of the document's tables; `{{` of the format stands for one brace.
std::string row_of(const MessageInfo& m) {
  const auto plain = [](std::string_view text) {
    return std::regex_replace(std::regex_replace(std::string(text), std::regex("\\{\\{"), "{"), std::regex("\\}\\}"),
                              "}");
  };
  return fmt::format("| `{}` | {} | {} |", m.id, plain(m.text), plain(m.hint));
}

// The tables of docs/language.md and messages.def hold the same: message and hint, to the letter, and no row more.
TEST(KernelErrors, EveryMessageIsDocumented) {
  std::ifstream in(std::string(PIPETHREADER_SOURCE_DIR) + "/docs/language.md");
  ASSERT_TRUE(in);
  std::vector<std::string> documented, messages;
  bool errors = false;
  for (std::string line; std::getline(in, line);) {
    errors = (errors || line == "## Errors") && line != "<!-- end of errors -->";
    if (errors && line.starts_with("| `")) documented.push_back(line);
  }
  for (const MessageInfo& m : all_messages()) messages.push_back(row_of(m));
  EXPECT_EQ(documented, messages);
}

TEST(KernelErrors, SeveralAreReportedInTheOrderOfTheirPlaces) {
  const auto result = parse(with_body("  x = q;\n  C[m,n] = A[r,s];"), "k.stask");
  ASSERT_FALSE(result);
  const auto& all = result.error().diagnostics;
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].message, "'q' is not defined");
  EXPECT_EQ(all[1].message, "'r' is not defined");
  EXPECT_EQ(all[2].message, "'s' is not defined");
}

// Three uses of a name are one mistake; the next statement's is another.
TEST(KernelErrors, AnUnknownNameIsToldOnceAStatement) {
  const auto result = parse(with_body("  x = sum[k] A[m,k] * B[k];\n  C[m,n] = x * A[m,k];"), "k.stask");
  ASSERT_FALSE(result);
  const auto& all = result.error().diagnostics;
  ASSERT_EQ(all.size(), 2u) << result.error().format();
  EXPECT_EQ(all[0].format().substr(0, all[0].format().find('\n')), "k.stask:3:11: error: 'k' is not defined");
  EXPECT_EQ(all[1].format().substr(0, all[1].format().find('\n')), "k.stask:4:20: error: 'k' is not defined");
}

TEST(KernelErrors, HintsSayWhatToWrite) {
  const auto hint = [](const std::string& text) {
    auto kernels = parse(text, "k.stask");
    auto error = kernels ? check(kernels->front()).error() : kernels.error();
    return error.diagnostics.at(0).hint;
  };
  EXPECT_EQ(hint("kernel f(A: f32[M]) -> (C: f16[M]) { parallel m: M; C[m] = A[m]; }"),
            "narrowing is always written: `f16(...)`");
  EXPECT_EQ(hint(with_body("  C[m,n] = A[m,n + 1];")),
            "check the order of the indices; or exclude such points at the loop or reduction: `where n + 1 < N`");
  EXPECT_EQ(hint(with_body("  x[q] = t;")), "declare it: `inner q: SIZE;`");
  EXPECT_EQ(hint(with_body("  x = t;\n  for k: N { x = sum[k] A[m,k]; }\n" + store)),
            "declare it before the loop: `carry x[...] = ...;`");
  EXPECT_EQ(hint(with_body("  y = sum[k: N] A[m,k];\n  C[m,n] = A[m,k];")),
            "in scope here: m, n; a reduction may bind it anew, `sum[k: SIZE] ...`");
  EXPECT_EQ(hint("kernel f(A: f16[N]) -> (C: f16[N]) {\n  x = sum[k: N] A[k];\n  y = A[k];\n}"),
            "in scope here: no axis; a reduction may bind it anew, `sum[k: SIZE] ...`");
}

// Any prefix of a good file is an error with a place; a file with one byte replaced is one too, or a good one.
TEST(KernelErrors, DamagedFiles) {
  std::ifstream in(std::string(PIPETHREADER_SOURCE_DIR) + "/kernels/flash_attention.stask");
  std::stringstream stream;
  stream << in.rdbuf();
  const std::string text = stream.str();
  const std::size_t end = text.rfind('}');
  for (std::size_t n = 0; n < end; ++n) {
    const auto result = parse(text.substr(0, n), "k.stask");
    ASSERT_FALSE(result) << n;
    for (const Diagnostic& d : result.error().diagnostics) EXPECT_TRUE(d.span.known()) << d.format();
  }
  constexpr std::string_view bytes("\0\xff(}=q9", 7);
  for (std::size_t n = 0; n < end; ++n) {
    std::string damaged = text;
    damaged[n] = bytes[n % bytes.size()];
    const auto result = parse(damaged, "k.stask");
    if (result)
      for (const Kernel& k : *result) (void)check(k);
    else
      for (const Diagnostic& d : result.error().diagnostics) EXPECT_TRUE(d.span.known()) << d.format();
  }
}

}  // namespace
}  // namespace pipethreader::kernel
