//! Options of commands, read from tables with the manners of Git's own commands.
//!
//! 1. Long names may be shortened as long as they stay unique; most have a `--no-` form; options
//!    and operands may be mixed; `--` ends the options.
//! 2. Options are told to the command one by one and in their order, so that the first mistake is
//!    the one that is reported.
//! 3. The tables know every word that the usage text shows: there is no second place for it.

mod completion;
mod describe;
mod usage;

use crate::failure::{Failure, Result};
pub(crate) use completion::{of_subcommands, question};
pub(crate) use describe::{Describe, OptionDescription};
pub(crate) use usage::Of;

/// What a command takes: its usage lines and its options.
pub(crate) struct Spec<Id: 'static> {
    /// The name with which the command is called, such as `refs list`.
    pub(crate) name: &'static str,
    /// What follows the name, one string for each form; line feeds break long forms.
    pub(crate) forms: &'static [&'static str],
    /// The options, in the order of the usage text.
    pub(crate) options: &'static [Opt<Id>],
}

/// One option.
#[derive(Clone, Copy)]
pub(crate) struct Opt<Id: 'static> {
    id: Id,
    short: Option<u8>,
    long: &'static str,
    takes: Takes,
    argument: &'static str,
    help: &'static str,
    negatable: bool,
    hidden: bool,
    group: bool,
    own: bool,
}

/// What an option takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Text,
    OptionalText,
    /// A text that stands in for a missing one when the option is the last argument.
    LastDefault,
    Number,
    OptionalNumber,
}

/// How an option was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Without an argument.
    Set,
    /// In its `--no-` form.
    Unset,
    /// With a text.
    Text(Vec<u8>),
    /// With a number.
    Number(i64),
}

impl Value {
    /// Returns whether the option was given in its positive form.
    pub(crate) fn is_set(&self) -> bool {
        *self != Value::Unset
    }

    /// Returns the text that came with the option.
    pub(crate) fn into_text(self) -> Option<Vec<u8>> {
        match self {
            Value::Text(text) => Some(text),
            Value::Set | Value::Unset | Value::Number(_) => None,
        }
    }

    /// Adds the text to a list; the `--no-` form empties the list.
    pub(crate) fn add_or_clear(self, list: &mut Vec<Vec<u8>>) {
        match self.into_text() {
            Some(text) => list.push(text),
            None => list.clear(),
        }
    }
}

impl<Id: Copy> Opt<Id> {
    const fn new(id: Id, takes: Takes, long: &'static str, help: &'static str) -> Self {
        Opt {
            id,
            short: None,
            long,
            takes,
            argument: "",
            help,
            negatable: true,
            hidden: false,
            group: false,
            own: false,
        }
    }

    /// An option without an argument. An empty `long` leaves it a short one.
    pub(crate) const fn flag(id: Id, long: &'static str, help: &'static str) -> Self {
        Opt::new(id, Takes::Nothing, long, help)
    }

    /// An option with a text.
    pub(crate) const fn text(
        id: Id,
        long: &'static str,
        argument: &'static str,
        help: &'static str,
    ) -> Self {
        Opt {
            argument,
            ..Opt::new(id, Takes::Text, long, help)
        }
    }

    /// An option with a number.
    pub(crate) const fn number(
        id: Id,
        long: &'static str,
        argument: &'static str,
        help: &'static str,
    ) -> Self {
        Opt {
            argument,
            ..Opt::new(id, Takes::Number, long, help)
        }
    }

    /// Makes the argument one that may be left out.
    pub(crate) const fn optional(self) -> Self {
        let takes = match self.takes {
            Takes::Number => Takes::OptionalNumber,
            _ => Takes::OptionalText,
        };
        Opt { takes, ..self }
    }

    /// Makes the argument one that may be left out where nothing follows.
    pub(crate) const fn last_default(self) -> Self {
        Opt {
            takes: Takes::LastDefault,
            ..self
        }
    }

    /// Gives the option a short name.
    pub(crate) const fn short(self, short: u8) -> Self {
        Opt {
            short: Some(short),
            ..self
        }
    }

    /// Takes the `--no-` form away.
    pub(crate) const fn positive(self) -> Self {
        Opt {
            negatable: false,
            ..self
        }
    }

    /// Leaves the option out of the usage text that `-h` prints.
    pub(crate) const fn hidden(self) -> Self {
        Opt {
            hidden: true,
            ..self
        }
    }

    /// Sets the option, and those after it, apart in the usage text.
    pub(crate) const fn group(self) -> Self {
        Opt {
            group: true,
            ..self
        }
    }

    /// Marks the option as one that Git does not have.
    pub(crate) const fn own(self) -> Self {
        Opt { own: true, ..self }
    }

    /// Returns whether help and manuals tell of it: what `-h` leaves out they do, if Git has it not.
    const fn is_for_people(&self) -> bool {
        !self.hidden || self.own
    }
}

/// An option as it was named: which one, and in which of its forms.
#[derive(Clone, Copy)]
struct Named<'a, Id: 'static> {
    option: &'a Opt<Id>,
    unset: bool,
    by_short: bool,
}

impl<Id> Named<'_, Id> {
    fn spelled(&self) -> String {
        self.apart().spelled()
    }

    fn apart(&self) -> Apart {
        Apart {
            short: self.option.short.filter(|_| self.by_short),
            long: self.option.long,
            takes: self.option.takes,
            unset: self.unset,
        }
    }
}

/// The same, whichever command's option it is: what is said of it is in the program once.
#[derive(Clone, Copy)]
struct Apart {
    short: Option<u8>,
    long: &'static str,
    takes: Takes,
    unset: bool,
}

impl Apart {
    /// Returns how messages speak of the option.
    fn describe(self) -> String {
        match self.short {
            Some(short) => format!("switch `{}'", char::from(short)),
            None => format!("option `{}'", self.spelled()),
        }
    }

    fn spelled(self) -> String {
        let no = if self.unset { "no-" } else { "" };
        format!("{no}{}", self.long)
    }
}

impl<Id: Copy> Spec<Id> {
    /// Reads `args`: calls `on` for each option and returns the operands.
    ///
    /// # Errors
    /// A usage failure for what is no option of the command, and whatever `on` fails with.
    pub(crate) fn parse(
        &self,
        args: &[Vec<u8>],
        mut on: impl FnMut(Id, Value) -> Result<()>,
    ) -> Result<Vec<Vec<u8>>> {
        self.parse_named(args, |option, value| on(option.id, value))
    }

    /// The same, with all that is known of each option.
    fn parse_named(
        &self,
        args: &[Vec<u8>],
        mut on: impl FnMut(&Opt<Id>, Value) -> Result<()>,
    ) -> Result<Vec<Vec<u8>>> {
        if matches!(args, [only] if only == b"-h") {
            return Err(self.help(Of::Git));
        }
        if let Some(all) = completion::question(args) {
            return Err(self.completion(all));
        }
        let mut operands = Vec::new();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_slice() {
                b"--" | b"--end-of-options" => {
                    operands.extend(rest.cloned());
                    break;
                }
                b"--help-all" => return Err(self.help(Of::Everything)),
                [b'-', b'-', long @ ..] => self.long(long, &mut rest, &mut on)?,
                [b'-', shorts @ ..] if !shorts.is_empty() => {
                    self.shorts(shorts, &mut rest, &mut on)?;
                }
                operand => operands.push(operand.to_vec()),
            }
        }
        Ok(operands)
    }

    /// Finds the option without an argument that `arg` spells out in full, and whether it is set.
    pub(crate) fn exact(&self, arg: &[u8]) -> Option<(Id, bool)> {
        let name = arg.strip_prefix(b"--")?;
        self.options.iter().find_map(|option| {
            let unset =
                option.negatable && name.strip_prefix(b"no-") == Some(option.long.as_bytes());
            (unset || name == option.long.as_bytes()).then_some((option.id, !unset))
        })
    }

    fn long(
        &self,
        arg: &[u8],
        rest: &mut std::slice::Iter<'_, Vec<u8>>,
        on: &mut impl FnMut(&Opt<Id>, Value) -> Result<()>,
    ) -> Result<()> {
        let (name, value) = match arg.iter().position(|&byte| byte == b'=') {
            Some(at) => (arg.get(..at).unwrap_or(arg), arg.get(at + 1..)),
            None => (arg, None),
        };
        let named = self.find(name, arg)?.ok_or_else(|| {
            let text = format!("unknown option `{}'", String::from_utf8_lossy(arg));
            self.mistake(&text, self.nearest(name))
        })?;
        let value = value_of(named.apart(), value, rest)?;
        on(named.option, value)
    }

    /// Finds the option with the long name `name`, which may be shortened, for an argument that
    /// may hold a value too.
    fn find(&self, name: &[u8], arg: &[u8]) -> Result<Option<Named<'_, Id>>> {
        // With a value behind it, `no` alone is not short for what begins with `no-`.
        let is_no = name.len() < arg.len() && b"no".starts_with(name);
        let begins = |form: &[u8]| form.starts_with(name) && !(is_no && form.starts_with(b"no-"));
        let mut found: Option<Named<'_, Id>> = None;
        let mut other: Option<Named<'_, Id>> = None;
        // What is short for an option of Git's stays so beside options that Git does not have.
        let (of_git, own): (Vec<&Opt<Id>>, Vec<&Opt<Id>>) =
            self.options.iter().partition(|it| !it.own);
        let mut asked_own = false;
        for option in of_git.into_iter().chain(own) {
            if option.long.is_empty() {
                continue;
            }
            asked_own |= option.own;
            let is_settled = asked_own && found.is_some_and(|found| !found.option.own);
            let positive = option.long.as_bytes();
            let mut negative: Vec<&[u8]> = Vec::new();
            let prefixed = [b"no-", positive].concat();
            if option.negatable {
                negative.extend(positive.strip_prefix(b"no-"));
                negative.push(&prefixed);
            }
            let named = |unset| Named {
                option,
                unset,
                by_short: false,
            };
            if positive == name {
                return Ok(Some(named(false)));
            }
            if negative.contains(&name) {
                return Ok(Some(named(true)));
            }
            let shortened = if is_settled {
                continue;
            } else if begins(positive) {
                named(false)
            } else if negative.iter().any(|form| begins(form)) {
                named(true)
            } else {
                continue;
            };
            other = found.replace(shortened).or(other);
        }
        match (found, other) {
            (Some(found), Some(other)) => Err(Failure::Usage {
                error: Some(format!(
                    "ambiguous option: {} (could be --{} or --{})",
                    String::from_utf8_lossy(arg),
                    // Nothing but the prefix of a negation makes Git name the last one twice.
                    if arg == b"no-" { &found } else { &other }.spelled(),
                    found.spelled()
                )),
                hint: None,
                text: self.usage(Of::Git),
                is_answer: false,
            }),
            (found, _) => Ok(found),
        }
    }

    fn shorts(
        &self,
        arg: &[u8],
        rest: &mut std::slice::Iter<'_, Vec<u8>>,
        on: &mut impl FnMut(&Opt<Id>, Value) -> Result<()>,
    ) -> Result<()> {
        let mut letters = arg;
        while let Some((&letter, after)) = letters.split_first() {
            let option = self
                .options
                .iter()
                .find(|option| option.short == Some(letter));
            let Some(option) = option else {
                if letters.len() == arg.len() || !after.is_empty() {
                    self.check_typo(arg)?;
                }
                if letter == b'h' {
                    return Err(self.help(Of::Git));
                }
                // What follows a dash among letters reads as if it had a dash more.
                let text = match (letter, letters.len() < arg.len()) {
                    (b'-', true) => format!("unknown option `{}'", String::from_utf8_lossy(after)),
                    _ => format!("unknown switch `{}'", String::from_utf8_lossy(&[letter])),
                };
                return Err(self.mistake(&text, None));
            };
            let named = Named {
                option,
                unset: false,
                by_short: true,
            };
            let stuck = (option.takes != Takes::Nothing && !after.is_empty()).then_some(after);
            let value = value_of(named.apart(), stuck, rest)?;
            on(option, value)?;
            if stuck.is_some() {
                return Ok(());
            }
            if letters.len() == arg.len() && !after.is_empty() {
                self.check_typo(arg)?;
            }
            letters = after;
        }
        Ok(())
    }

    /// Fails when `-word` looks like `--word`.
    fn check_typo(&self, arg: &[u8]) -> Result<()> {
        let known =
            |option: &Opt<Id>| !option.long.is_empty() && option.long.as_bytes().starts_with(arg);
        if arg.len() >= 3 && (arg.starts_with(b"no-") || self.options.iter().any(known)) {
            return Err(Failure::error(
                format!(
                    "did you mean `--{}` (with two dashes)?",
                    String::from_utf8_lossy(arg)
                ),
                129,
            ));
        }
        Ok(())
    }

    /// Returns the long name that `name` was probably meant to be.
    fn nearest(&self, name: &[u8]) -> Option<String> {
        let name = String::from_utf8_lossy(name);
        let forms = self.options.iter().filter(|option| !option.long.is_empty());
        let forms = forms.flat_map(|option| {
            let negative = option.negatable.then(|| format!("no-{}", option.long));
            [Some(option.long.to_owned()), negative]
                .into_iter()
                .flatten()
        });
        let nearest = crate::suggest::nearest(&name, forms)?;
        Some(format!("did you mean --{nearest}?"))
    }

    /// Returns the failure of a mistake in the options: the error, then how it is done.
    pub(crate) fn mistake(&self, error: &str, hint: Option<String>) -> Failure {
        Failure::Usage {
            error: Some(error.to_owned()),
            hint,
            text: self.usage(Of::Git),
            is_answer: false,
        }
    }

    /// Returns the failure of a wrong call that needs no other words than how it is done.
    pub(crate) fn misuse(&self) -> Failure {
        Failure::Usage {
            error: None,
            hint: None,
            text: self.usage(Of::Git),
            is_answer: false,
        }
    }

    /// Returns the answer to `-h`.
    pub(crate) fn help(&self, of: Of) -> Failure {
        Failure::Usage {
            error: None,
            hint: None,
            text: self.usage(of),
            is_answer: true,
        }
    }
}

/// Returns the value that comes with an option, from behind its `=` or from the next argument.
fn value_of(
    named: Apart,
    stuck: Option<&[u8]>,
    rest: &mut std::slice::Iter<'_, Vec<u8>>,
) -> Result<Value> {
    let refuse = |what: &str| Failure::error(format!("{} {what}", named.describe()), 129);
    if named.unset || named.takes == Takes::Nothing {
        return match stuck {
            Some(_) => Err(refuse("takes no value")),
            None if named.unset => Ok(Value::Unset),
            None => Ok(Value::Set),
        };
    }
    let text = match (named.takes, stuck) {
        (_, Some(text)) => text.to_vec(),
        (Takes::OptionalText | Takes::OptionalNumber, None) => return Ok(Value::Set),
        (takes, None) => match rest.next() {
            Some(next) => next.clone(),
            None if takes == Takes::LastDefault => return Ok(Value::Set),
            None => return Err(refuse("requires a value")),
        },
    };
    match named.takes {
        Takes::Number => number(&text, &named.describe()).map(Value::Number),
        Takes::OptionalNumber => std::str::from_utf8(text.trim_ascii_start())
            .ok()
            .and_then(|text| text.parse().ok())
            .map(Value::Number)
            .ok_or_else(|| {
                // This message always has the long name.
                let text = format!("option `{}' expects a numerical value", named.long);
                Failure::error(text, 129)
            }),
        _ => Ok(Value::Text(text)),
    }
}

/// Reads the number that a text begins with as C does, and returns it with what stands behind it:
/// white space and a sign may stand before it, `0x` makes it hexadecimal and `0` octal.
fn c_integer(text: &[u8]) -> (Option<i128>, &[u8]) {
    let trimmed = text.trim_ascii_start();
    let (negative, unsigned) = match trimmed.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, trimmed),
    };
    let is_hex = |rest: &[u8]| rest.first().is_some_and(u8::is_ascii_hexdigit);
    let (radix, digits) = match unsigned {
        [b'0', b'x' | b'X', rest @ ..] if is_hex(rest) => (16, rest),
        [b'0', ..] => (8, unsigned),
        _ => (10, unsigned),
    };
    let end = digits
        .iter()
        .position(|&byte| !char::from(byte).is_digit(radix))
        .unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    let text = std::str::from_utf8(digits).ok().filter(|it| !it.is_empty());
    // More digits than the largest type holds are too many for any.
    let value = text.map(|text| i128::from_str_radix(text, radix).unwrap_or(i128::MAX));
    (
        value.map(|value| if negative { -value } else { value }),
        rest,
    )
}

/// Reads a number with a unit, as Git's options take it.
fn number(text: &[u8], option: &str) -> Result<i64> {
    let refuse = |what: String| Failure::error(what, 129);
    if text.is_empty() {
        return Err(refuse(format!("{option} expects a numerical value")));
    }
    let wrong = || {
        refuse(format!(
            "{option} expects an integer value with an optional k/m/g suffix"
        ))
    };
    let (value, rest) = c_integer(text);
    let unit = match rest {
        b"" => 1,
        b"k" | b"K" => 1 << 10,
        b"m" | b"M" => 1 << 20,
        b"g" | b"G" => 1 << 30,
        _ => return Err(wrong()),
    };
    // A unit alone is no number.
    let value = value.ok_or_else(wrong)?;
    match i32::try_from(value.saturating_mul(unit)) {
        Ok(value) => Ok(i64::from(value)),
        Err(_) => Err(refuse(format!(
            "value {} for {option} not in range [{},{}]",
            String::from_utf8_lossy(text),
            i32::MIN,
            i32::MAX
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SPEC: Spec<u8> = Spec {
        name: "test",
        forms: &["[<options>] <name>"],
        options: &[
            Opt::text(1, "", "reason", "why").short(b'm'),
            Opt::flag(2, "no-deref", "not the one it points to"),
            Opt::flag(3, "stdin", "read"),
            Opt::flag(4, "create-reflog", "create"),
            Opt::number(5, "count", "n", "how many"),
            Opt::number(6, "abbrev", "n", "digits").optional(),
        ],
    };

    type Seen = Vec<(u8, Value)>;

    fn parse(args: &[&str]) -> (Seen, Result<Vec<Vec<u8>>>) {
        let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        let mut seen = Vec::new();
        let result = SPEC.parse(&args, |id, value| {
            seen.push((id, value));
            Ok(())
        });
        (seen, result)
    }

    fn message(args: &[&str]) -> String {
        match parse(args).1.unwrap_err() {
            Failure::Usage { error, .. } => error.unwrap(),
            Failure::Error { message, .. } => String::from_utf8(message.text).unwrap(),
            _ => panic!("another failure"),
        }
    }

    #[test]
    fn operands_and_options_mix_until_a_double_dash() {
        let (seen, operands) = parse(&["a", "-mx", "--std", "b", "--", "-z"]);
        assert_eq!(seen, [(1, Value::Text(b"x".to_vec())), (3, Value::Set)]);
        assert_eq!(operands.unwrap(), [&b"a"[..], b"b", b"-z"]);
    }

    #[test]
    fn negations_are_found_in_both_directions() {
        assert_eq!(parse(&["--deref"]).0, [(2, Value::Unset)]);
        assert_eq!(parse(&["--no-deref"]).0, [(2, Value::Set)]);
        assert_eq!(parse(&["--no-st"]).0, [(3, Value::Unset)]);
    }

    #[test]
    fn what_is_short_for_an_option_of_git_stays_so() {
        static BOTH: Spec<u8> = Spec {
            name: "test",
            forms: &[""],
            options: &[
                Opt::flag(1, "progress", "own").own(),
                Opt::flag(2, "prune", "Git's"),
                Opt::flag(3, "pretty", "own as well").own(),
            ],
        };
        let id = |arg: &[u8]| {
            let mut seen = Vec::new();
            let parsed = BOTH.parse(&[arg.to_vec()], |id, _| {
                seen.push(id);
                Ok(())
            });
            parsed.ok().and(seen.pop())
        };
        assert_eq!(id(b"--pr"), Some(2));
        assert_eq!(id(b"--no-pr"), Some(2));
        assert_eq!(id(b"--pro"), Some(1));
        assert_eq!(id(b"--pre"), Some(3));
        assert_eq!(id(b"--progress"), Some(1));
    }

    #[test]
    fn an_ambiguous_name_tells_the_last_two_it_could_be() {
        assert_eq!(
            message(&["--no"]),
            "ambiguous option: no (could be --no-count or --no-abbrev)"
        );
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(parse(&["--count=1k"]).0, [(5, Value::Number(1024))]);
        assert_eq!(parse(&["--count= -0x1f"]).0, [(5, Value::Number(-31))]);
        assert_eq!(parse(&["--count=010"]).0, [(5, Value::Number(8))]);
        assert_eq!(parse(&["--abbrev= 7"]).0, [(6, Value::Number(7))]);
        assert_eq!(
            message(&["--count=1x"]),
            "option `count' expects an integer value with an optional k/m/g suffix"
        );
        assert_eq!(
            message(&["--abbrev="]),
            "option `abbrev' expects a numerical value"
        );
        assert_eq!(parse(&["--abbrev", "7"]).0, [(6, Value::Set)]);
        assert_eq!(message(&["-m"]), "switch `m' requires a value");
    }
}
