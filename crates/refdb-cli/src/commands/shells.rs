//! What completions say beyond commands and options: the refs of a repository.
//!
//! 1. Refs are asked for when they are needed, and no more than a person looks through.
//! 2. A word that begins with `-` is an option, any other one a ref, in a command that takes some.

use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;

/// The words for refs in the forms of commands.
const WORDS: [&str; 7] = [
    "<name>",
    "<old-ref>",
    "<pattern>",
    "<ref>",
    "<ref>@{<specifier>}",
    "<refname>",
    "<refs>",
];

/// Returns whether a command that is called so takes refs.
pub(super) fn takes_refs(forms: &[&str]) -> bool {
    let mut words = forms.iter().flat_map(|form| form.split_whitespace());
    words.any(|word| WORDS.contains(&word.trim_matches(['[', ']', '(', ')', '.'])))
}

/// Returns the command line as the generator for a shell takes it, in which the commands of those names take refs.
pub(super) fn prepared(shell: Shell, command: Command, with_refs: &[String]) -> Command {
    if shell != Shell::Zsh {
        return command;
    }
    with_refs.iter().fold(command, |command, name| {
        let arg = Arg::new("ref")
            .num_args(0..)
            .value_hint(ValueHint::Hostname);
        match name.split_once(' ') {
            Some((name, sub)) => command.mut_subcommand(name, |command| {
                command.mut_subcommand(sub, |command| command.arg(arg))
            }),
            None => command.mut_subcommand(name, |command| command.arg(arg)),
        }
    })
}

/// Returns what a shell is to read: what was generated, with refs for the commands of those names.
pub(super) fn completed(shell: Shell, generated: &str, with_refs: &[String]) -> String {
    match shell {
        Shell::Bash => {
            let known = with_refs.iter().map(|name| format!("\"{name} \"*"));
            let known: Vec<String> = known.collect();
            let bash = BASH.replace("WITH_REFS", &known.join(" | "));
            // What was generated is called by what is added.
            let called = generated.replace("complete -F _refdb ", "complete -F _refdb_or_refs ");
            called.replacen(PREVIOUS, &[PREVIOUS, BEFORE_EQUALS].concat(), 1) + &bash
        }
        Shell::Zsh => generated.replace(":_hosts'", ":_refdb_refs'").replacen(
            "\n_refdb() {\n",
            &[ZSH, "\n_refdb() {\n"].concat(),
            1,
        ),
        _ => {
            let condition = |name: &str| match name.split_once(' ') {
                Some((name, sub)) => {
                    format!("{name}; and __fish_seen_subcommand_from {sub}")
                }
                None => name.to_owned(),
            };
            let of = |name: &String| {
                let condition = condition(name);
                format!(
                    "complete -c refdb -n \"__fish_refdb_using_subcommand {condition}\" -f -a \"(__fish_refdb_refs)\"\n"
                )
            };
            let lines: String = with_refs.iter().map(of).collect();
            [generated, FISH, &lines].concat()
        }
    }
}

/// Where the function for bash takes the word before the one that is completed; in `--ref-format=r` that is the `=`.
const PREVIOUS: &str = "    prev=\"$3\"\n";
const BEFORE_EQUALS: &str = "    [ \"$prev\" != = ] || prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n";

/// For bash: refs, what completes `git-refdb`, and what Git's own completion calls for `git refdb`.
const BASH: &str = r#"
complete -F _refdb_or_refs -o bashdefault -o default git-refdb

_refdb_or_refs() {
    _refdb "$@"
    local at found= word others=()
    [[ "$2" != -* ]] || return 0
    for ((at = 1; at < COMP_CWORD; at++)); do
        case "${COMP_WORDS[at]} ${COMP_WORDS[at + 1]} " in
            WITH_REFS) found=$at && break ;;
        esac
    done
    [ -n "$found" ] || return 0
    for word in "${COMPREPLY[@]}"; do
        [[ "$word" == -* ]] || others+=("$word")
    done
    COMPREPLY=("${others[@]}")
    [ ${#COMPREPLY[@]} = 0 ] || return 0
    local IFS=$'\n'
    COMPREPLY=($(refdb "${COMP_WORDS[@]:1:found-1}" for-each-ref --include-root-refs --count=1000 \
        --format='%(refname)' "$2*" "$2*/**" 2>/dev/null))
}

_git_refdb() {
    local at="${__git_cmd_idx:-1}"
    local behind=("${COMP_WORDS[@]:at+1}") place=$((COMP_CWORD - at))
    local COMP_WORDS=(refdb "${behind[@]}") COMP_CWORD=$place
    local word="${COMP_WORDS[place]}"
    [ "$word" != = ] || word=
    _refdb_or_refs refdb "$word" "${COMP_WORDS[place-1]}"
}
"#;

const ZSH: &str = r#"
_refdb_refs() {
    local -a refs
    refs=(${(f)"$(refdb for-each-ref --include-root-refs --count=1000 --format='%(refname)' \
        "$PREFIX*" "$PREFIX*/**" 2>/dev/null)"})
    compadd -a refs
}
"#;

const FISH: &str = r#"
function __fish_refdb_refs
    set -l word (commandline -ct)
    refdb for-each-ref --include-root-refs --count=1000 --format='%(refname)' "$word*" "$word*/**" 2>/dev/null
end
"#;
