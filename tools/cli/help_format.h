// Lines of `asof VERB --help`: no wider than the terminal, and placeholders as in the manual pages, not CLI11's types.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace asof {

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
};

}  // namespace asof
