// validate --format jsonl: the same as json, one object a line.
#include <nlohmann/json.hpp>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

using Json = nlohmann::json;

TEST(ValidateLines, HaveWhatJsonHas) {
  const std::string verb = "validate -q --truth " ASOF_TEST_DATA "/demo/truth " + kDemo + " --format ";
  const Json whole = Json::parse(run_asof(verb + "json").out);
  const Ran ran = run_asof(verb + "jsonl");
  EXPECT_EQ(ran.status, 0) << ran.err;
  Json checks = Json::array(), cpus = Json::object(), events = Json::object(), last;
  for (const std::string& line : lines_of(ran.out)) {
    last = Json::parse(line);
    Json rest = last;
    const std::string type = rest["type"];
    rest.erase("type");
    if (type == "check") checks.push_back(rest);
    if (type == "truth") {
      const std::string cpu = std::to_string(rest["cpu"].get<int>());
      rest.erase("cpu");
      cpus[cpu] = rest;
    }
    if (type == "by_event") {
      const std::string event = rest["event"];
      rest.erase("event");
      events[event] = rest;
    }
  }
  EXPECT_EQ(checks, whole["checks"]);
  EXPECT_EQ(cpus, whole["cpus"]);
  EXPECT_EQ(cpus.size(), 2U);
  EXPECT_EQ(events, whole["by_event"]);
  EXPECT_EQ(last["type"], "verdict");
  EXPECT_EQ(last["pass"], whole["pass"]);
  EXPECT_EQ(last["reasons"], whole["reasons"]);
}

}  // namespace
}  // namespace asof::test
