// What the copy engine demands of a tensor map is checked before any driver sees it.
#include "runtime/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipethreader::runtime {
namespace {

using ::testing::HasSubstr;

TensorMapDescription legal() {
  TensorMapDescription d;
  d.type = ScalarType::f16;
  d.base = 4096;
  d.sizes = {128, 1000, 3};
  d.byte_strides = {256, 256000};
  d.box = {64, 128, 1};
  d.swizzle = TensorSwizzle::bytes_128;
  return d;
}

std::string error_of(const TensorMapDescription& d) {
  const auto ok = validate(d);
  return ok ? "accepted" : ok.error().format();
}

TEST(TensorMap, AcceptsALegalDescription) { EXPECT_EQ(error_of(legal()), "accepted"); }

TEST(TensorMap, NamesTheAxisAndTheNumberOfEachFault) {
  struct Case {
    const char* expected;
    void (*spoil)(TensorMapDescription&);
  };
  const Case cases[] = {
      {"1 to 5 axes, not 0", [](auto& d) { d.sizes.clear(); }},
      {"1 to 5 axes, not 6", [](auto& d) { d.sizes = {1, 1, 1, 1, 1, 1}; }},
      {"2 byte strides, not 1", [](auto& d) { d.byte_strides.pop_back(); }},
      {"a box of as many, not 2", [](auto& d) { d.box.pop_back(); }},
      {"element strides or none, not 1", [](auto& d) { d.element_strides = {1}; }},
      {"0x1008 is no multiple of 16", [](auto& d) { d.base += 8; }},
      {"axis 1 of a tensor map has a stride of 250 bytes", [](auto& d) { d.byte_strides[0] = 250; }},
      {"axis 2 of a tensor map has a stride", [](auto& d) { d.byte_strides[1] = std::uint64_t{1} << 40; }},
      {"axis 1 of a tensor map has size 0", [](auto& d) { d.sizes[1] = 0; }},
      {"axis 1 of a tensor map has a box of 257", [](auto& d) { d.box[1] = 257; }},
      {"axis 0 of a tensor map has element stride 9",
       [](auto& d) {
         d.element_strides = {9, 1, 1};
       }},
      {"has 24 bytes, no multiple of 16", [](auto& d) { d.box[0] = 12; }},
      {"has 256 bytes, more than its swizzle span of 128", [](auto& d) { d.box[0] = 128; }},
      {"elements of type i4", [](auto& d) { d.type = ScalarType::i4; }},
  };
  for (const Case& c : cases) {
    TensorMapDescription d = legal();
    c.spoil(d);
    EXPECT_THAT(error_of(d), HasSubstr(c.expected));
  }
}

}  // namespace
}  // namespace pipethreader::runtime
