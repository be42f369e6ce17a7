// Names of functions as in source. What they are was taken from c++filt and rustfilt; hostile names are made here.
#include "decoder/model/demangle.h"

#include <gtest/gtest.h>

#include <ctime>
#include <vector>

namespace asof::test {
namespace {

std::string full(std::string_view name) { return demangle(name, Parameters::kYes).value_or("-"); }
std::string plain(std::string_view name) { return demangle(name, Parameters::kNo).value_or("-"); }

TEST(Demangle, Cpp) {
  EXPECT_EQ(full("_ZN2ns1fEi"), "ns::f(int)");
  EXPECT_EQ(plain("_ZN2ns1fEi"), "ns::f");
  EXPECT_EQ(full("_ZNK2ns1A1mIlEEiT_i"), "int ns::A::m<long>(long, int) const");
  EXPECT_EQ(plain("_ZNK2ns1A1mIlEEiT_i"), "ns::A::m<long>");
  EXPECT_EQ(full("_ZN12_GLOBAL__N_11fEv"), "(anonymous namespace)::f()");
  EXPECT_EQ(full("_ZZ4mainENKUliE_clEi"), "main::{lambda(int)#1}::operator()(int) const");
  EXPECT_EQ(full("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back(int const&)");
  EXPECT_EQ(full("_ZN1AC1Ev"), "A::A()");
  EXPECT_EQ(full("_ZThn16_N1A1fEv"), "non-virtual thunk to A::f()");
  EXPECT_EQ(full("_Z1fIJidEEvDpT_"), "void f<int, double>(int, double)");
}

TEST(Demangle, WhatCompilersAndLinkersAddStays) {
  EXPECT_EQ(full("_ZN2ns1fEi.cold"), "ns::f(int) [clone .cold]");
  EXPECT_EQ(full("_Z1fi.isra.0.cold.12"), "f(int) [clone .isra.0] [clone .cold.12]");
  EXPECT_EQ(full("_Znwm@plt"), "operator new(unsigned long)@plt");
  EXPECT_EQ(
      full("_ZNSsD1Ev@@GLIBCXX_3.4"),
      "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::~basic_string()@@GLIBCXX_3.4");
}

// g++ before version 11 wrote them in another way, in which libiberty reads what it cannot read to its end.
TEST(Demangle, ExpressionsOfOlderCompilers) {
  EXPECT_EQ(
      plain(
          "_ZSt4swapIN4llvm7NodeSetEENSt9enable_ifIXsr6__and_ISt6__not_ISt15__is_tuple_likeIT_EESt21is_move_"
          "constructibleIS5_ESt18is_move_assignableIS5_EEE5valueEvE4typeERS5_SE_"),
      "std::swap<llvm::NodeSet>");
  EXPECT_TRUE(
      full("_ZSt4swapIN4llvm7NodeSetEENSt9enable_ifIXsr6__and_ISt6__not_ISt15__is_tuple_likeIT_EESt21is_move_"
           "constructibleIS5_ESt18is_move_assignableIS5_EEE5valueEvE4typeERS5_SE_")
          .ends_with("swap<llvm::NodeSet>(llvm::NodeSet&, llvm::NodeSet&)"));
}

TEST(Demangle, RustLegacy) {
  EXPECT_EQ(full("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
  EXPECT_EQ(full("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
                 "3bar17h930b740aa94f1d3aE"),
            "<Test + 'static as foo::Bar<Test>>::bar");
  EXPECT_EQ(full("_ZN3foo17h05af221e174051e9E.llvm.9D1C9369"), "foo");
  EXPECT_EQ(full("_ZN3foo17hxxxxxxxxxxxxxxxxE"), "foo::hxxxxxxxxxxxxxxxx");  // no hash: C++
}

TEST(Demangle, RustV0) {
  EXPECT_EQ(full("_RNvNtCs1234_5crate4hash5block"), "crate::hash::block");
  EXPECT_EQ(full("_RNvNtCs1234_5crate4hash5block.llvm.123"), "crate::hash::block");
  EXPECT_EQ(full("_RNCNvC1a4main0"), "a::main::{closure#0}");
  EXPECT_EQ(full("_RNCNvC1a4mains_0"), "a::main::{closure#1}");
  EXPECT_EQ(full("_RNvMs2_NtCsgVdDwkt78Uu_4jiff4spanNtB5_4Span3new"), "<jiff::span::Span>::new");
  EXPECT_EQ(full("_RINvC1a1fhRNtB2_1SKj10_E"), "a::f::<u8, &a::S, 16>");
  EXPECT_EQ(full("_RINvC1a1fDNtB2_1Tp1ImEL_E"), "a::f::<dyn a::T<I = u32>>");
  EXPECT_EQ(full("_RINvC1a1fFG_RL0_hEuE"), "a::f::<for<'a> fn(&'a u8)>");
  EXPECT_EQ(full("_RINvC1a1fFUKCTmEEAhj8_E"), "a::f::<unsafe extern \"C\" fn((u32,)) -> [u8; 8]>");
  EXPECT_EQ(full("_RINvC1a1fKb1_Kc41_Kan7f_E"), "a::f::<true, 'A', -127>");
  EXPECT_EQ(full("_RNvC1au9bcher_kva"),
            "a::b\xc3\xbc"
            "cher");
  EXPECT_EQ(full("_RINvC1a1fCs1_1bE1c"), "-");
  EXPECT_EQ(full("_RINvC1a1fuE"
                 "C1c"),
            "a::f::<()>");  // the crate that made it is not shown
}

TEST(Demangle, Go) {
  EXPECT_EQ(full("gopkg.in/yaml%2ev2.(*Decoder).Decode"), "gopkg.in/yaml.v2.(*Decoder).Decode");
  EXPECT_EQ(full("main.main"), "-");    // is as in source
  EXPECT_EQ(full("a.b%0ac"), "-");      // no escape of Go's
  EXPECT_EQ(full("100%25"), "-");       // no name of Go's
  EXPECT_EQ(full("a.%e2%80%ae"), "-");  // would turn the text's direction
}

TEST(Demangle, OtherNamesAreLeft) {
  for (const char* name :
       {"", "_", "_Z", "_R", "main", "_start", "_Zfoo", "_Raw_read", "_RNv", "_ZN1a", "__Z1fv", "_Z1fv\nx",
        "_ZN3a\x1b"
        "bE"})
    EXPECT_EQ(full(name), "-") << name;
}

// "S_", "S0_", ... "SZ_", "S10_"
std::string substitution(unsigned n) {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  if (n == 0) return "S_";
  std::string digits;
  for (unsigned rest = n - 1;; rest /= 36) {
    digits.insert(digits.begin(), kDigits[rest % 36]);
    if (rest < 36) break;
  }
  return "S" + digits + "_";
}

// A type of 2^n letters, behind `name`; `first` is the number of its first substitution.
std::string doubled(std::string name, unsigned first, unsigned n) {
  name += "1AIiiE";
  for (unsigned i = 0; i < n; ++i) {
    const std::string twice = substitution(first + 1 + i);
    name += substitution(first) + "I" + twice + twice + "E";
  }
  return name;
}

std::string repeat(const std::string& part, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += part;
  return out;
}

std::vector<std::string> hostile_names() {
  std::vector<std::string> names;
  for (const unsigned n : {14U, 24U, 40U, 60U}) {
    names.push_back(doubled("_Z1f", 0, n));
    // Looking for the pack goes through all of it and prints nothing.
    names.push_back(doubled("_Z1fIJiiEEv", 2, n) + "Dp" + substitution(3 + n));
  }
  for (const int n : {9, 30, 120})
    names.push_back("_ZN1A" + repeat("cvT_I", n) + "i" + repeat("E", n) + "Ev");
  names.push_back("_Z1f" + std::string(2040, 'P') + "i");
  names.push_back("_Z1f" + std::string(100'000, 'P') + "i");
  names.push_back("_Z1fIJ" + repeat("1A", 400) + "EEv" + repeat("DpT_", 250));
  names.push_back(
      "_RIC1a"
      "TB3_B3_EE");                          // refers to what it stands in
  names.push_back("_RMC1aFGzzzzzzzzz_EuE");  // 62^9 lifetimes, not printed
  names.push_back("_RIC1aFGzzzzzzzzz_EuE");  // and printed
  names.push_back("_RNvC1a" + std::string(2000, 'X'));
  names.push_back("_RNvC1au20zzzzzzzzzzzzzzzzzzzz");
  names.push_back("_RNvC1a" + std::string(300, '9'));
  std::string pairs = "_RIC1aTuuE";
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  for (size_t at = 4; pairs.size() < 62;) {
    const size_t next = pairs.size() - 2;
    const std::string back = std::string("B") + kDigits[at - 1] + "_";
    pairs += "T" + back + back + "E";
    at = next;
  }
  names.push_back(pairs + "E");
  return names;
}

// Printing the first kind whole would take years, the second hours.
TEST(Demangle, HostileNamesStayRawAndTakeNoTime) {
  const std::clock_t begin = std::clock();
  for (const std::string& name : hostile_names()) {
    const auto text = demangle(name, Parameters::kYes);
    if (text) {
      EXPECT_LE(text->size(), max_demangled(name.size())) << name;
    }
    if (name.size() > 500 || name.find("cv") != std::string::npos || name.find("zz") != std::string::npos) {
      EXPECT_FALSE(text) << name;
    }
  }
  EXPECT_FALSE(demangle(doubled("_Z1f", 0, 40), Parameters::kYes));
  EXPECT_TRUE(demangle(doubled("_Z1f", 0, 4), Parameters::kYes));  // the same on a small scale is a name
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5);
}

TEST(Demangle, OfAnyPartOfANameSomethingOrNothingComes) {
  for (const std::string name : {"_ZNSt6vectorIiSaIiEE9push_backERKi",
                                 "_ZSt4swapIiENSt9enable_ifIXsr6__and_ISt6__not_IT_EEE5valueEvE4typeERS3_",
                                 "_RINvMs2_NtCsgVdDwkt78Uu_4jiff4spanNtB6_4Span15try_days_rangedINtNtNtB8_"
                                 "4util8rangeint5ri128Kn80_Kn7f_EEB8_"}) {
    for (size_t from = 0; from < name.size(); ++from) {
      for (size_t size = 1; from + size <= name.size(); size += 3) {
        const std::string cut = name.substr(0, 2) + name.substr(from, size);
        EXPECT_LE(full(cut).size(), max_demangled(cut.size()));
      }
    }
  }
}

TEST(Demangle, MayBeCalledRulesOutOnlyOthers) {
  EXPECT_TRUE(may_be_called("_ZN2ns1fEi", "ns::f(int)"));
  EXPECT_TRUE(may_be_called("_ZN2ns1fEi", "ns::f"));
  EXPECT_FALSE(may_be_called("_ZN2ns1fEi", "other::g"));
  EXPECT_TRUE(may_be_called("_ZNSs6appendEPKc", "std::string::append"));  // abbreviated
  EXPECT_TRUE(may_be_called("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()"));
  EXPECT_TRUE(may_be_called("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f"));
}

}  // namespace
}  // namespace asof::test
