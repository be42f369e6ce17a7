// Source lines and inlined functions in every verb that shows them, for a real program: compared with addr2line.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "tests/support/debuginfod_servers.h"
#include "tests/tools/stepped_test.h"
#include "tests/tools/timeline/html_unpack.h"

namespace asof::test {
namespace {

constexpr const char* kSource = R"(static inline __attribute__((always_inline)) int twice(int x) {
  volatile int v = x; return v + v;
}
static inline __attribute__((always_inline)) int four(int x) {
  return twice(x) ^ twice(x + 1);
}
__attribute__((noinline)) int work(int x) {
  volatile int s = 0;
  for (int i = 0; i < x; ++i)
    s += four(i);
  return s;
}
void _start(void) {
  volatile int sum = 0;
  for (int i = 0; i < 50; ++i) sum += work(i % 7);
  __asm__ volatile("syscall" ::"a"(60), "D"(0));
  for (;;) {}
}
)";

class Sources : public SteppedTest {
 protected:
  void SetUp() override {
    if (!runs("addr2line --version")) GTEST_SKIP() << "addr2line is not installed";
    record(kSource, "-O2");
  }
  Ran asof(const std::string& arguments) const { return run_asof(arguments + " " + path("perf.data")); }
  // "twice program.c:2 (inlined by) four program.c:5 ..."; addr2line -f -i prints a name and a place for each.
  std::map<Addr, std::string> chains() const {
    std::string list;
    for (const auto& [at, count] : ran_.counts) list += fmt::format("{:#x}\n", at);
    std::ofstream(path("addresses")) << list;
    std::map<Addr, std::string> out;
    Addr at = 0;
    std::string name;
    for (const std::string& line : lines_of(
             output_of(fmt::format("addr2line -a -f -i -e {} <{}", path("program"), path("addresses"))))) {
      if (line.starts_with("0x")) {
        at = std::stoull(line, nullptr, 16);
      } else if (name.empty()) {
        name = line;
      } else {
        std::string place = line.substr(line.rfind('/') + 1);
        place = place.substr(0, place.find(" (discriminator"));
        std::string& chain = out[at];
        chain += (chain.empty() ? "" : " (inlined by) ") + name + " " + place;
        name.clear();
      }
    }
    return out;
  }
};

TEST_F(Sources, DecodeShowsThemAsAddr2line) {
  const auto want = chains();
  size_t inlined = 0, plain = 0;
  for (const std::string& line : lines_of(asof("decode -q -F ip --source --inline").out)) {
    const size_t space = line.find(' ', line.find_first_not_of(' '));
    ASSERT_NE(space, std::string::npos) << line;
    const Addr at = std::stoull(line, nullptr, 16);
    const std::string& chain = want.at(at);
    const bool is_inlined = chain.find("(inlined by)") != std::string::npos;
    // Without inlining only the line is shown.
    EXPECT_EQ(line.substr(space + 1), is_inlined ? chain : chain.substr(chain.find(' ') + 1));
    ++(is_inlined ? inlined : plain);
  }
  EXPECT_GT(inlined, 100U);
  EXPECT_GT(plain, 100U);
  EXPECT_EQ(inlined + plain, ran_.instructions);
}

TEST_F(Sources, JsonHasTheSame) {
  const auto want = chains();
  size_t inlined = 0;
  for (const std::string& line : lines_of(asof("decode -q -F ip,srcline,inline --format jsonl").out)) {
    const auto j = nlohmann::json::parse(line);
    const Addr at = std::stoull(j["ip"].get<std::string>(), nullptr, 16);
    std::string chain;
    const auto base = [](const std::string& place) { return place.substr(place.rfind('/') + 1); };
    if (j.contains("inline")) {
      ++inlined;
      for (const auto& f : j["inline"])
        chain += (chain.empty() ? "" : " (inlined by) ") + f["function"].get<std::string>() + " " +
                 base(f["srcline"].get<std::string>());
      EXPECT_EQ(chain, want.at(at));
    }
    EXPECT_EQ(
        base(j["srcline"].get<std::string>()),
        want.at(at).substr(want.at(at).find(' ') + 1, want.at(at).find(" (") - want.at(at).find(' ') - 1));
  }
  EXPECT_GT(inlined, 100U);
}

// Instructions by line, and by inlined function.
TEST_F(Sources, ReportCountsThem) {
  std::map<std::string, uint64_t> by_line, by_function;
  for (const auto& [at, chain] : chains()) {
    const std::string first = chain.substr(0, chain.find(" (inlined by)"));
    by_line[first.substr(first.find(' ') + 1)] += ran_.counts.at(at);
    by_function[first.substr(0, first.find(' '))] += ran_.counts.at(at);
  }
  std::map<std::string, uint64_t> lines, functions;
  for (const std::string& line : lines_of(asof("report -q --format jsonl --sort srcline --top 0").out)) {
    const auto j = nlohmann::json::parse(line);
    const std::string name = j.contains("name") ? j["name"].get<std::string>() : "";
    if (j["type"] == "hot") lines[name.substr(name.rfind('/') + 1)] = j["instructions"];
  }
  EXPECT_EQ(lines, by_line);
  for (const std::string& line : lines_of(asof("report -q --format jsonl --inline --top 0").out)) {
    const auto j = nlohmann::json::parse(line);
    if (j["type"] != "hot") continue;
    const std::string name = j["name"];
    functions[name.substr(0, name.find_first_of(", "))] += j["instructions"].get<uint64_t>();
  }
  EXPECT_EQ(functions, by_function);
  EXPECT_GT(functions.at("twice"), 0U);
}

// Own instructions of a function are divided among what was inlined; the sum stays.
TEST_F(Sources, StacksHaveInlinedFrames) {
  std::map<std::string, uint64_t> by_function;
  for (const auto& [at, chain] : chains())
    by_function[chain.substr(0, chain.find(' '))] += ran_.counts.at(at);
  std::map<std::string, uint64_t> got;
  uint64_t sum = 0;
  for (const std::string& line : lines_of(asof("stacks -q --weight instructions --inline").out)) {
    const size_t space = line.rfind(' '), last = line.rfind(';', space);
    got[line.substr(last + 1, space - last - 1)] += std::stoull(line.substr(space + 1));
    sum += std::stoull(line.substr(space + 1));
  }
  EXPECT_EQ(sum, ran_.instructions);
  EXPECT_EQ(got.at("twice"), by_function.at("twice"));
  const Ran lines = asof("stacks -q --weight instructions --inline --source");
  EXPECT_NE(lines.out.find("_start;work;four;twice;program.c:2 "), std::string::npos) << lines.out;
}

TEST_F(Sources, TimelinesHaveThem) {
  const auto made = [&](const std::string& file, const std::string& options) {
    const Ran r = asof("timeline -q " + options + " -o " + path(file));
    EXPECT_EQ(r.status, 0) << r.err;
    return read_file(path(file));
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::string first = chains().at(functions_.at("work")), line = first.substr(first.find(' ') + 1);
  ASSERT_TRUE(line.starts_with("program.c:")) << line;
  EXPECT_TRUE(has(made("t.json", "--source"), "\"source line\":\"" + line + "\""));
  EXPECT_TRUE(has(made("t.pftrace", "--source"), line));
  EXPECT_FALSE(has(made("u.pftrace", ""), "program.c")) << "only on request";
  EXPECT_TRUE(has(made("t.csv", "--source"), "," + line + ","));
  EXPECT_FALSE(has(made("u.csv", ""), "program.c:"));
  EXPECT_TRUE(has(made("t.jsonl", "--source"), "\"line\":\"" + line + "\""));
  const std::string page = page_meta(made("t.html", "--source --inline"));
  EXPECT_TRUE(has(page, "\"line\":\"" + line + "\""));
  const std::string chain = "twice program.c:2 (inlined by) four program.c:5 (inlined by) work program.c:";
  EXPECT_TRUE(has(page, chain));
  EXPECT_TRUE(has(made("i.pftrace", "--detail insn --time 0%-100% --inline"), chain));
}

// The form is that of perf script's chains.
TEST_F(Sources, ScriptChainsHaveInlinedCallers) {
  const Ran r = asof("script -q --itrace=i1ig --inline -F ip,sym");
  EXPECT_NE(r.out.find(" twice (inlined)\n"), std::string::npos) << r.out.substr(0, 800);
  EXPECT_EQ(asof("script -q --itrace=i1ig -F ip,sym").out.find("(inlined)"), std::string::npos);
}

// A web server that has nothing, and counts who asked.
class Server {
 public:
  Server() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  int asked() const { return asked_; }
  int port() const { return port_; }

 private:
  void serve() {
    for (;;) {
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      ++asked_;
      char request[4096];
      [[maybe_unused]] const auto n = ::read(client, request, sizeof request);
      const std::string answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      EXPECT_EQ(::write(client, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
      ::close(client);
    }
  }
  int listener_, port_ = 0;
  std::atomic<int> asked_ = 0;
  std::thread thread_;
};

TEST_F(Sources, ServersAreAskedOnRequestOnly) {
  ASOF_SKIP_WITHOUT_DEBUGINFOD();
  ASSERT_TRUE(runs("strip -g " + path("program")));
  Server server;
  std::optional<DebuginfodServers> servers;
  servers.emplace(fmt::format("http://127.0.0.1:{}/", server.port()), path("cache"));
  const Ran plain = asof("decode -v --source --inline -o /dev/null");
  EXPECT_EQ(server.asked(), 0);
  EXPECT_NE(plain.err.find("I-TEXT-207"), std::string::npos) << plain.err;
  const Ran asked = asof("decode -v --source --debuginfod -o /dev/null");
  EXPECT_GE(server.asked(), 1) << asked.err;
  EXPECT_EQ(asked.status, 0) << asked.err;
  servers.reset();
  const Ran nowhere = asof("decode --source --debuginfod -o /dev/null");
  EXPECT_NE(nowhere.err.find("E-TEXT-212"), std::string::npos) << nowhere.err;
}

// The demo's program, its kernel and its modules have no debug information.
TEST(SourceLess, SaysOnceThatThereAreNoLines) {
  constexpr const char* kNoLine = "I-TEXT-207 no source line is known of any code that ran\n";
  for (const char* verb :
       {"decode --source -o /dev/null", "decode --inline -o /dev/null", "report --sort srcline",
        "script --itrace=b -F +srcline -o /dev/null", "stacks --weight instructions --source"}) {
    const std::string told = run_asof(std::string(verb) + " " + kDemo).err;
    const size_t first = told.find(kNoLine);
    ASSERT_NE(first, std::string::npos) << verb << told;
    EXPECT_EQ(told.find(kNoLine, first + 1), std::string::npos) << verb << told;
    EXPECT_NE(told.find("--debuginfod", first), std::string::npos) << told;
  }
  EXPECT_EQ(run_asof("decode -o /dev/null " + kDemo).err.find("source line"), std::string::npos);
}

TEST_F(Sources, ASourceLineIsEnough) {
  EXPECT_EQ(asof("decode --source -o /dev/null").err.find("no source line"), std::string::npos);
}

TEST_F(Sources, ThreadsMakeNoDifference) {
  for (const char* verb : {"decode --source --inline", "report --inline --sort srcline --top 0",
                           "stacks --weight instructions --inline --source"}) {
    EXPECT_EQ(asof(std::string(verb) + " -j1").out, asof(std::string(verb) + " -j4").out) << verb;
  }
}

}  // namespace
}  // namespace asof::test
