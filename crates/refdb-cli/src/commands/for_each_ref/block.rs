//! Blocks of a format: `align` and `if`.

use unicode_width::UnicodeWidthChar;

use super::argument::unsigned;
use crate::failure::{Failure, Result};

/// How wide a block is, and where its text stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    width: usize,
    position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Left,
    Middle,
    Right,
}

impl Position {
    fn parse(text: &str) -> Option<Position> {
        match text {
            "left" => Some(Position::Left),
            "middle" => Some(Position::Middle),
            "right" => Some(Position::Right),
            _ => None,
        }
    }
}

impl Alignment {
    /// Reads the argument of `align`: a width and a position, in any order.
    ///
    /// # Errors
    /// Fatal, for anything else.
    pub(super) fn parse(argument: &str) -> Result<Alignment> {
        if argument.is_empty() {
            let text = "expected format: %(align:<width>,<position>)";
            return Err(Failure::fatal(text));
        }
        let refuse =
            |what: &str, text: &str| Err(Failure::fatal(format!("unrecognized {what}{text}")));
        let mut width: Option<u32> = None;
        let mut position = Position::Left;
        for part in argument.split(',') {
            if let Some(text) = part.strip_prefix("position=") {
                match Position::parse(text) {
                    Some(given) => position = given,
                    None => return refuse("position:", text),
                }
            } else if let Some(text) = part.strip_prefix("width=") {
                match unsigned(text) {
                    Some(given) => width = Some(given),
                    None => return refuse("width:", text),
                }
            } else if let Some(given) = unsigned(part) {
                width = Some(given);
            } else if let Some(given) = Position::parse(part) {
                position = given;
            } else {
                return refuse("%(align) argument: ", part);
            }
        }
        // The greatest number stands for none at all.
        let width = width.filter(|width| *width != u32::MAX);
        match width.and_then(|width| usize::try_from(width).ok()) {
            Some(width) => Ok(Alignment { width, position }),
            None => {
                let text = "positive width expected with the %(align) atom";
                Err(Failure::fatal(text))
            }
        }
    }

    /// Appends `text`, which ends at a zero byte, with the blanks that it takes.
    pub(super) fn push(self, text: &[u8], out: &mut Vec<u8>) {
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let columns = match std::str::from_utf8(text) {
            // Line feeds and the like take no column.
            Ok(text) => text.chars().filter_map(UnicodeWidthChar::width).sum(),
            Err(_) => text.len(),
        };
        let blanks = self.width.saturating_sub(columns);
        let left = match self.position {
            Position::Left => 0,
            Position::Middle => blanks / 2,
            Position::Right => blanks,
        };
        out.resize(out.len() + left, b' ');
        out.extend_from_slice(text);
        out.resize(out.len() + (blanks - left), b' ');
    }
}

/// When the `then` part of a block is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// What is tested is more than blanks.
    NotBlank,
    /// What is tested is exactly this.
    Equals(Vec<u8>),
    /// What is tested is anything but this.
    NotEquals(Vec<u8>),
}

impl Condition {
    /// Reads the argument of `if`.
    ///
    /// # Errors
    /// Fatal, for one that is not known.
    pub(super) fn parse(argument: &str) -> Result<Condition> {
        let bytes = |text: &str| text.as_bytes().to_vec();
        if argument.is_empty() {
            Ok(Condition::NotBlank)
        } else if let Some(text) = argument.strip_prefix("equals=") {
            Ok(Condition::Equals(bytes(text)))
        } else if let Some(text) = argument.strip_prefix("notequals=") {
            Ok(Condition::NotEquals(bytes(text)))
        } else {
            let text = format!("unrecognized %(if) argument: {argument}");
            Err(Failure::fatal(text))
        }
    }

    /// Returns whether the condition holds for what is tested.
    pub(super) fn holds(&self, tested: &[u8]) -> bool {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self {
            Condition::NotBlank => !tested.iter().all(is_blank),
            Condition::Equals(text) => text == tested,
            Condition::NotEquals(text) => text != tested,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn align(argument: &str, text: &str) -> String {
        let mut out = Vec::new();
        Alignment::parse(argument)
            .unwrap()
            .push(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_are_padded_by_columns_and_never_cut() {
        assert_eq!(align("5", "a"), "a    ");
        assert_eq!(align("right,5", "a"), "    a");
        assert_eq!(align("width=4,position=middle", "a"), " a  ");
        assert_eq!(align("3,right", "abcdef"), "abcdef");
        assert_eq!(align("4,right", "\u{6f22}"), "  \u{6f22}");
    }

    #[test]
    fn blanks_alone_are_nothing() {
        let condition = Condition::parse("").unwrap();
        assert!(!condition.holds(b"  \n"));
        assert!(condition.holds(b" x "));
        assert!(Condition::parse("equals=").unwrap().holds(b""));
        assert!(Condition::parse("foo").is_err());
    }
}
