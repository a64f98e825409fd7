//! What a command takes, in words: for completions and manual pages.
//!
//! It is made from the table that the options are read with, so that nothing is written down twice.

use super::{Of, Opt, Spec, Takes};

/// What can say what a command takes: its [`Spec`], whatever its options are called inside.
pub(crate) trait Describe {
    /// Returns what follows the name of the command, for each form of a call.
    fn forms(&self) -> &'static [&'static str];
    /// Returns the options that the command takes.
    fn options(&self) -> Vec<OptionDescription>;
    /// Returns the usage text, with its options.
    fn usage_text(&self) -> String;
    /// Returns whether these arguments make no mistake, ask for no help, and have no option that Git's
    /// command does not have.
    fn is_gits(&self, args: &[Vec<u8>]) -> bool;
}

/// An option of a command.
#[derive(Clone, Debug)]
pub(crate) struct OptionDescription {
    /// The name of one letter.
    pub(crate) short: Option<char>,
    /// The long name, and the opposite one if there is one.
    pub(crate) long: Option<(String, Option<String>)>,
    /// What the argument is called.
    pub(crate) argument: Option<&'static str>,
    /// Whether the argument may be left out.
    pub(crate) optional: bool,
    pub(crate) help: &'static str,
    /// Whether help does not tell of it.
    pub(crate) hidden: bool,
}

impl<Id: Copy> Describe for Spec<Id> {
    fn forms(&self) -> &'static [&'static str] {
        self.forms
    }

    fn options(&self) -> Vec<OptionDescription> {
        self.options.iter().map(describe).collect()
    }

    fn usage_text(&self) -> String {
        self.usage(Of::People)
    }

    fn is_gits(&self, args: &[Vec<u8>]) -> bool {
        let mut is_gits = true;
        let parsed = self.parse_named(args, |option, _| {
            is_gits &= !option.own;
            Ok(())
        });
        is_gits && parsed.is_ok()
    }
}

fn describe<Id: Copy>(option: &Opt<Id>) -> OptionDescription {
    let opposite = match option.long.strip_prefix("no-") {
        _ if !option.negatable => None,
        Some(positive) => Some(positive.to_owned()),
        None => Some(format!("no-{}", option.long)),
    };
    OptionDescription {
        short: option.short.map(char::from),
        long: (!option.long.is_empty()).then(|| (option.long.to_owned(), opposite)),
        argument: (option.takes != Takes::Nothing).then_some(option.argument),
        optional: matches!(
            option.takes,
            Takes::OptionalText | Takes::OptionalNumber | Takes::LastDefault
        ),
        help: option.help,
        hidden: !option.is_for_people(),
    }
}
