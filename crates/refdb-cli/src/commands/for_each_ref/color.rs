//! Colours as configuration and formats name them, and the sequences with which a terminal is told
//! of them.

use bstr::ByteSlice;

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::options::Value;
use crate::pager::may_color;

/// What ends all colours and attributes.
pub(super) const RESET: &[u8] = b"\x1b[m";

/// The colours that have names, in the order of their numbers.
const NAMES: [&str; 8] = [
    "black", "red", "green", "yellow", "blue", "magenta", "cyan", "white",
];

/// The attributes, with the number that sets each and the one that takes it back.
const ATTRIBUTES: [(&str, u8, u8); 7] = [
    ("bold", 1, 22),
    ("dim", 2, 22),
    ("italic", 3, 23),
    ("ul", 4, 24),
    ("blink", 5, 25),
    ("reverse", 7, 27),
    ("strike", 9, 29),
];

/// A colour of letters or of what is behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Color {
    /// As it is anyway.
    Normal,
    /// The number that sets it for letters.
    Basic(u8),
    /// One of 256.
    Indexed(u8),
    /// Red, green and blue.
    Rgb([u8; 3]),
}

/// When colours are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Never,
    /// On a terminal that has any.
    #[default]
    Auto,
}

impl When {
    /// Reads the value of the option.
    ///
    /// # Errors
    /// For a word that is none of the known ones.
    pub(super) fn parse(value: Value) -> Result<When> {
        if !value.is_set() {
            return Ok(When::Never);
        }
        match value.into_text().as_deref() {
            None | Some(b"always") => Ok(When::Always),
            Some(b"auto") => Ok(When::Auto),
            Some(b"never") => Ok(When::Never),
            Some(_) => {
                let text = "option `color' expects \"always\", \"auto\", or \"never\"";
                Err(Failure::error(text, 129))
            }
        }
    }

    /// Returns whether colours are wanted.
    ///
    /// # Errors
    /// As for [`Context::repository`].
    pub(super) fn is_wanted(self, context: &Context) -> Result<bool> {
        Ok(match self {
            When::Always => true,
            When::Never => false,
            When::Auto => may_color(context)?,
        })
    }
}

/// Returns the sequence for the argument of `%(color:...)`; `None` if it is no colour.
pub(in crate::commands) fn sequence(text: &str) -> Option<Vec<u8>> {
    let mut colors: Vec<Color> = Vec::new();
    // As bits, so that each is set once and in the order of the numbers.
    let mut attributes = 0_u64;
    let mut resets = false;
    for word in text.as_bytes().fields_with(is_space) {
        if word.eq_ignore_ascii_case(b"reset") {
            resets = true;
        } else if let Some(color) = color(word).filter(|_| colors.len() < 2) {
            colors.push(color);
        } else if color(word).is_some() {
            return None;
        } else {
            attributes |= 1 << attribute(word)?;
        }
    }
    let mut numbers: Vec<String> = Vec::new();
    if resets {
        numbers.push(String::new());
    }
    numbers.extend(
        (0..u64::BITS)
            .filter(|bit| attributes >> bit & 1 == 1)
            .map(|bit| bit.to_string()),
    );
    let [letters, ground] = [0, 1].map(|index| colors.get(index).copied());
    numbers.extend(letters.and_then(|color| color.numbers(0)));
    numbers.extend(ground.and_then(|color| color.numbers(10)));
    if numbers.is_empty() {
        return Some(Vec::new());
    }
    Some(format!("\x1b[{}m", numbers.join(";")).into_bytes())
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

impl Color {
    /// Returns the numbers that set it; `offset` is what the ground adds to those of letters.
    fn numbers(self, offset: u16) -> Option<String> {
        match self {
            Color::Normal => None,
            Color::Basic(number) => Some((u16::from(number) + offset).to_string()),
            Color::Indexed(number) => Some(format!("{};5;{number}", 38 + offset)),
            Color::Rgb([r, g, b]) => Some(format!("{};2;{r};{g};{b}", 38 + offset)),
        }
    }
}

fn color(word: &[u8]) -> Option<Color> {
    if word.eq_ignore_ascii_case(b"normal") {
        return Some(Color::Normal);
    }
    if let Some(digits) = word.strip_prefix(b"#") {
        return rgb(digits).map(Color::Rgb);
    }
    if word.eq_ignore_ascii_case(b"default") {
        return Some(Color::Basic(39));
    }
    let bright = word
        .split_at_checked(6)
        .filter(|(start, _)| start.eq_ignore_ascii_case(b"bright"));
    let (name, first) = match bright {
        Some((_, name)) => (name, 90),
        None => (word, 30),
    };
    let named = (first..).zip(NAMES);
    for (number, known) in named {
        if name.eq_ignore_ascii_case(known.as_bytes()) {
            return Some(Color::Basic(number));
        }
    }
    match word.to_str().ok()?.parse::<i64>().ok()? {
        -1 => Some(Color::Normal),
        number @ 0..8 => Some(Color::Basic(30 + u8::try_from(number).ok()?)),
        number @ 8..16 => Some(Color::Basic(82 + u8::try_from(number).ok()?)),
        number => u8::try_from(number).ok().map(Color::Indexed),
    }
}

/// Reads three pairs of hexadecimal digits, or three digits that stand for two alike each.
fn rgb(digits: &[u8]) -> Option<[u8; 3]> {
    let digit = |index: usize| {
        let digit = char::from(*digits.get(index)?).to_digit(16)?;
        u8::try_from(digit).ok()
    };
    let part = |index: usize| match digits.len() {
        6 => Some(digit(index * 2)? * 16 + digit(index * 2 + 1)?),
        3 => Some(digit(index)? * 17),
        _ => None,
    };
    Some([part(0)?, part(1)?, part(2)?])
}

/// Returns the number of an attribute, or the one that takes it back after `no` or `no-`.
fn attribute(word: &[u8]) -> Option<u8> {
    let (name, negated) = match word.strip_prefix(b"no") {
        Some(rest) => (rest.strip_prefix(b"-").unwrap_or(rest), true),
        None => (word, false),
    };
    ATTRIBUTES
        .into_iter()
        .find(|(known, ..)| known.as_bytes() == name)
        .map(|(_, set, unset)| if negated { unset } else { set })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_numbers() {
        for (text, expected) in [
            ("red", "31"),
            ("RED bold", "1;31"),
            ("no-bold", "22"),
            ("noul red blue", "24;31;44"),
            ("brightred default", "91;49"),
            ("normal 8", "100"),
            ("reset 200", ";38;5;200"),
            ("#f0a #102030", "38;2;255;0;170;48;2;16;32;48"),
            ("reset", ""),
            ("+5", "35"),
        ] {
            let numbers = sequence(text).unwrap();
            assert_eq!(numbers.as_bstr(), format!("\x1b[{expected}m"), "{text}");
        }
        assert_eq!(sequence("normal -1"), Some(Vec::new()));
        assert_eq!(sequence(" "), Some(Vec::new()));
    }

    #[test]
    fn what_is_no_color() {
        for text in [
            "x",
            "Bold",
            "no-",
            "bright",
            "256",
            "-2",
            "#ff00",
            "red green blue",
            "red,blue",
            "res",
        ] {
            assert_eq!(sequence(text), None, "{text}");
        }
    }
}
