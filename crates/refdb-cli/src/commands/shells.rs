//! What completions say beyond commands and options: the refs of a repository.
//!
//! 1. Refs are asked for when they are needed, and no more than a person looks through.
//! 2. A word that begins with `-` is an option, any other one a ref, in a command that takes some.
//! 3. A name is quoted: somebody else may have made it, and `$(exit)` may stand in it. zsh and fish do so themselves.

use clap::{Arg, ValueHint};
use clap_complete::Shell;

/// What stands in the forms of commands that take refs.
const WORDS: [&str; 4] = [" <name>", "<old-ref>", "<pattern>", "<ref"];

/// Returns whether a command that is called so takes refs.
pub(super) fn takes_refs(forms: &[&str]) -> bool {
    let takes = |form: &&str| WORDS.iter().any(|word| form.contains(word));
    forms.iter().any(takes)
}

/// Returns what the generator for zsh takes for refs: it has a function for names of hosts, which is replaced.
pub(super) fn argument() -> Arg {
    Arg::new("ref")
        .num_args(0..)
        .value_hint(ValueHint::Hostname)
}

/// Returns what a shell is to read: what was generated, with refs for the commands of those names.
pub(super) fn completed(shell: Shell, generated: &str, with_refs: &[String]) -> String {
    let mut text = String::new();
    match shell {
        Shell::Bash => {
            text = generated.replacen(PREVIOUS, &[PREVIOUS, BEFORE_EQUALS].concat(), 1);
            text.push_str(BASH);
            for name in with_refs {
                for part in ["            \"", name, " \"*) found=$at && break ;;\n"] {
                    text.push_str(part);
                }
            }
            text.push_str(BASH_REST);
        }
        Shell::Zsh => {
            // The first line says what this is.
            let (first, rest) = generated.split_once('\n').unwrap_or_default();
            text.push_str(first);
            text.push_str(ZSH);
            for (at, part) in rest.split(HOSTS).enumerate() {
                text.push_str(if at == 0 { "" } else { REFS });
                text.push_str(part);
            }
        }
        _ => {
            text.push_str(generated);
            text.push_str(FISH);
            for name in with_refs {
                let (command, sub) = name.split_once(' ').unwrap_or((name, ""));
                let and = if sub.is_empty() { "" } else { FISH_AND };
                for part in [FISH_IF, command, and, sub, FISH_THEN] {
                    text.push_str(part);
                }
            }
        }
    }
    text
}

/// What the generator for zsh says for names of hosts, and what stands for refs.
const HOSTS: &str = ":_hosts'";
const REFS: &str = ":_refdb_refs'";

/// Where the function for bash takes the word before the one that is completed; in `--ref-format=r` that is the `=`.
const PREVIOUS: &str = "    prev=\"$3\"\n";
const BEFORE_EQUALS: &str = "    [ \"$prev\" != = ] || prev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n";

/// For bash: refs, what completes `git-refdb`, and what Git's own completion calls for `git refdb`.
const BASH: &str = r#"
complete -F _refdb_or_refs -o bashdefault -o default refdb git-refdb

_refdb_or_refs() {
    _refdb "$@"
    local at found= word others=()
    [[ "$2" != -* ]] || return 0
    for ((at = 1; at < COMP_CWORD; at++)); do
        case "${COMP_WORDS[at]} ${COMP_WORDS[at + 1]} " in
"#;
const BASH_REST: &str = r#"        esac
    done
    [ -n "$found" ] || return 0
    for word in "${COMPREPLY[@]}"; do
        [[ "$word" == -* ]] || others+=("$word")
    done
    COMPREPLY=("${others[@]}")
    [ ${#COMPREPLY[@]} = 0 ] || return 0
    # A name may say something to the shell.
    while IFS= read -r word; do
        printf -v word %q "$word"
        COMPREPLY+=("$word")
    done < <(refdb "${COMP_WORDS[@]:1:found-1}" for-each-ref --include-root-refs --count=1000 \
        --format='%(refname)' "$2*" "$2*/**" 2>/dev/null)
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

const FISH_IF: &str = "complete -c refdb -n \"__fish_refdb_using_subcommand ";
const FISH_AND: &str = "; and __fish_seen_subcommand_from ";
const FISH_THEN: &str = "\" -f -a \"(__fish_refdb_refs)\"\n";
