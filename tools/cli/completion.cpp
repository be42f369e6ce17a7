// asof completion: scripts that let a shell complete verbs, options, their values and file names. Written
// from the option tree; formats: bash(1) "Programmable Completion", zshcompsys(1) `_arguments`, fish
// complete(1).
#include <fmt/format.h>

#include <memory>

#include "tools/cli/option_tree.h"
#include "tools/cli/verb_table.h"
#include "tools/output/output.h"

namespace asof {
namespace {

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  return fmt::format("{}", fmt::join(parts, between));
}

// Within single quotes of a shell.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash_values(const VerbInfo& verb) {
  std::string out;
  for (const OptionInfo& o : verb.options) {
    if (o.kind == ValueKind::kNone) continue;
    std::vector<std::string> patterns;
    patterns.reserve(o.names.size());
    for (const std::string& n : o.names) patterns.push_back(fmt::format("'{} {}'", verb.name, n));
    const std::string action =
        o.kind == ValueKind::kWords
            ? fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", joined(o.words, " "))
        : o.kind == ValueKind::kList ? fmt::format("_asof_list '{}'", joined(o.words, " "))
        : o.kind == ValueKind::kFile ? "COMPREPLY=($(compgen -f -- \"$cur\"))"
                                     : "COMPREPLY=()";
    out += fmt::format("    {}) {}; return ;;\n", joined(patterns, "|"), action);
  }
  return out;
}

std::string bash_script(const std::vector<VerbInfo>& tree) {
  std::string names, values, options, positionals;
  for (const VerbInfo& v : tree) {
    names += (names.empty() ? "" : " ") + v.name;
    values += bash_values(v);
    std::vector<std::string> all;
    for (const OptionInfo& o : v.options) all.insert(all.end(), o.names.begin(), o.names.end());
    options += fmt::format("    {}) options='{}' ;;\n", v.name, joined(all, " "));
    for (const OptionInfo& p : v.positionals) {
      if (p.kind == ValueKind::kWords || p.kind == ValueKind::kList) {
        positionals += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n", v.name,
                                   joined(p.words, " "));
      }
    }
  }
  return fmt::format(R"(# bash completion for asof
# Completes the last of several values with commas between.
_asof_list() {{
  local before=
  [[ $cur == *,* ]] && before=${{cur%,*}},
  COMPREPLY=($(compgen -P "$before" -W "$1" -- "${{cur##*,}}"))
}}
_asof() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb=decode options=
  local verbs='{}'
  # --option=value comes as three words.
  if [[ $cur == = ]]; then cur=
  elif [[ $prev == = && $COMP_CWORD -ge 2 ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  [[ " $verbs " == *" ${{COMP_WORDS[1]}} "* && $COMP_CWORD -gt 1 ]] && verb=${{COMP_WORDS[1]}}
  if [[ $COMP_CWORD == 2 && $prev == help ]]; then
    COMPREPLY=($(compgen -W "$verbs" -- "$cur")); return
  fi
  case "$verb $prev" in
{}  esac
  case $verb in
{}  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur")); return
  fi
  if [[ $COMP_CWORD == 1 ]]; then
    COMPREPLY=($(compgen -W "$verbs help" -- "$cur") $(compgen -f -- "$cur")); return
  fi
  case $verb in
{}  esac
  COMPREPLY=($(compgen -f -- "$cur"))
}}
complete -o filenames -F _asof asof
)",
                     names, values, options, positionals);
}

// Brackets and colons end parts of an _arguments specification.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionInfo& o) {
  if (o.kind == ValueKind::kWords) return "(" + joined(o.words, " ") + ")";
  if (o.kind == ValueKind::kList) return "_values -s , value " + joined(o.words, " ");
  return o.kind == ValueKind::kFile ? "_files" : " ";
}

std::string zsh_script(const std::vector<VerbInfo>& tree) {
  std::string names, cases;
  for (const VerbInfo& v : tree) {
    names += fmt::format("    {}\n", in_quotes(v.name + ":" + zsh_text(v.description)));
    cases += fmt::format("  {})\n    _arguments -S", v.name);
    for (const OptionInfo& o : v.options) {
      const std::string value =
          o.kind == ValueKind::kNone ? "" : fmt::format(":{}:{}", zsh_text(o.value), zsh_action(o));
      for (const std::string& n : o.names) {
        cases += " \\\n      " + in_quotes(fmt::format("({}){}[{}]{}", joined(o.names, " "), n,
                                                       zsh_text(o.description), value));
      }
    }
    for (const OptionInfo& p : v.positionals) {
      cases += " \\\n      " + in_quotes(fmt::format(":{}:{}", zsh_text(p.names[0]), zsh_action(p)));
    }
    cases += "\n    ;;\n";
  }
  return fmt::format(R"(#compdef asof
_asof() {{
  local -a verbs=(
{})
  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
    _describe verb verbs
    _files
    return
  fi
  local verb=$words[2]
  if [[ -n ${{verbs[(r)$verb:*]}} ]]; then
    shift words
    (( CURRENT-- ))
  else
    verb=decode
  fi
  case $verb in
{}  esac
}}
_asof "$@"
)",
                     names, cases);
}

std::string fish_script(const std::vector<VerbInfo>& tree) {
  std::vector<std::string> names;
  names.reserve(tree.size());
  for (const VerbInfo& v : tree) names.push_back(v.name);
  const std::string all = joined(names, " ");
  std::string out = "# fish completion for asof\n";
  for (const VerbInfo& v : tree) {
    out += fmt::format("complete -c asof -n 'not __fish_seen_subcommand_from {}' -a {} -d {}\n", all, v.name,
                       in_quotes(v.description));
    const std::string condition =
        v.name == "decode"
            ? fmt::format("'__fish_seen_subcommand_from decode; or not __fish_seen_subcommand_from {}'", all)
            : fmt::format("'__fish_seen_subcommand_from {}'", v.name);
    for (const OptionInfo& o : v.options) {
      out += fmt::format("complete -c asof -n {}", condition);
      for (const std::string& n : o.names) {
        out += n.starts_with("--") ? " -l " + n.substr(2) : " -s " + n.substr(1);
      }
      if (o.kind == ValueKind::kWords || o.kind == ValueKind::kList)
        out += " -x -a " + in_quotes(joined(o.words, " "));
      if (o.kind == ValueKind::kFile) out += " -r -F";
      if (o.kind == ValueKind::kOther) out += " -x";
      out += " -d " + in_quotes(o.description) + "\n";
    }
    for (const OptionInfo& p : v.positionals) {
      if (p.kind == ValueKind::kWords || p.kind == ValueKind::kList) {
        out += fmt::format("complete -c asof -n {} -f -a {}\n", condition, in_quotes(joined(p.words, " ")));
      }
    }
  }
  return out;
}

ExitCode run_completion(const CLI::App& app, const std::string& shell) {
  const std::vector<VerbInfo> tree = option_tree(app);
  auto out = Output::open("-");
  if (!out) return kExitInput;
  out->write(shell == "bash" ? bash_script(tree) : shell == "zsh" ? zsh_script(tree) : fish_script(tree));
  return kExitOk;
}

}  // namespace

RunVerb add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_subcommand("completion", "script that lets a shell complete asof's options")
      ->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return [shell, &app] { return run_completion(app, *shell); };
}

}  // namespace asof
