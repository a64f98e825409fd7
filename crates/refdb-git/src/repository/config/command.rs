//! Values of the command line and the environment: `-c`, `GIT_CONFIG_COUNT` and
//! `GIT_CONFIG_PARAMETERS`.

use bstr::{BString, ByteSlice};
use refdb::{Error, Result};

use super::parse::{Variables, canonical_key};
use crate::repository::environment::Environment;

/// A value that a command line gives.
#[derive(Clone, Debug)]
pub(crate) struct Override {
    /// The key as it was given.
    pub(crate) key: BString,
    /// The value; `None` for a key without `=`.
    pub(crate) value: Option<BString>,
}

impl Override {
    /// Reads the argument of `-c`.
    pub(crate) fn from_argument(argument: &[u8]) -> Override {
        match argument.split_once_str("=") {
            Some((key, value)) => Override {
                key: key.into(),
                value: Some(value.into()),
            },
            None => Override {
                key: argument.into(),
                value: None,
            },
        }
    }

    /// Appends the value as `GIT_CONFIG_PARAMETERS` spells it.
    pub(crate) fn push_quoted(&self, out: &mut BString) {
        quote(&self.key, out);
        out.push(b'=');
        if let Some(value) = &self.value {
            quote(value, out);
        }
    }
}

/// Returns the values of the environment, then those of the command line.
pub(super) fn variables(environment: &Environment, overrides: &[Override]) -> Result<Variables> {
    let mut given = counted(environment)?;
    if let Some(parameters) = environment.bytes("GIT_CONFIG_PARAMETERS") {
        let read = quoted(&parameters)
            .ok_or_else(|| unparsable("bogus format in GIT_CONFIG_PARAMETERS"))?;
        given.extend(read);
    }
    let mut variables = Variables::default();
    for one in given.iter().chain(overrides) {
        let key = canonical_key(&one.key).map_err(unparsable)?;
        let value = one.value.as_ref().map(|value| value.as_slice());
        let pushed = variables.push(&key, value);
        pushed.ok_or_else(|| unparsable("too many values"))?;
    }
    Ok(variables)
}

/// Appends a word as a shell reads it.
fn quote(word: &[u8], out: &mut BString) {
    out.push(b'\'');
    for &byte in word {
        match byte {
            b'\'' | b'!' => out.extend_from_slice(&[b'\'', b'\\', byte, b'\'']),
            byte => out.push(byte),
        }
    }
    out.push(b'\'');
}

fn unparsable(reason: impl std::fmt::Display) -> Error {
    Error::misconfigured(reason, "unable to parse command-line config")
}

/// Reads `GIT_CONFIG_COUNT` and its keys and values.
fn counted(environment: &Environment) -> Result<Vec<Override>> {
    let Some(count) = environment.bytes("GIT_CONFIG_COUNT") else {
        return Ok(Vec::new());
    };
    let text = count.trim_ascii();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let count: u64 = text
        .to_str()
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| unparsable("bogus count in GIT_CONFIG_COUNT"))?;
    if i32::try_from(count).is_err() {
        return Err(unparsable("too many entries in GIT_CONFIG_COUNT"));
    }
    (0..count)
        .map(|index| {
            let get = |what: &str, of: &str| {
                let name = format!("GIT_CONFIG_{of}_{index}");
                let value = environment.bytes(&name);
                value.ok_or_else(|| unparsable(format!("missing config {what} {name}")))
            };
            Ok(Override {
                key: get("key", "KEY")?,
                value: Some(get("value", "VALUE")?),
            })
        })
        .collect()
}

/// Reads `GIT_CONFIG_PARAMETERS`: words in single quotes, either `'key=value'`, or `'key'='value'`
/// and `'key'=` for a key without a value.
fn quoted(parameters: &[u8]) -> Option<Vec<Override>> {
    let mut values = Vec::new();
    let mut rest = parameters.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = unquote(rest)?;
        rest = after;
        if let Some(after) = rest.strip_prefix(b"=") {
            rest = after;
            let mut value = None;
            if rest.first() == Some(&b'\'') {
                let (word, after) = unquote(rest)?;
                rest = after;
                value = Some(word);
            }
            values.push(Override { key: word, value });
        } else {
            values.push(Override::from_argument(&word));
        }
        if !rest.is_empty() && !rest.first()?.is_ascii_whitespace() {
            return None;
        }
        rest = rest.trim_ascii_start();
    }
    Some(values)
}

/// Reads one word in single quotes, in which `\'` and `\!` stand between two quoted parts.
fn unquote(text: &[u8]) -> Option<(BString, &[u8])> {
    let mut word = BString::default();
    let mut rest = text.strip_prefix(b"'")?;
    loop {
        let (part, after) = rest.split_once_str("'")?;
        word.extend_from_slice(part);
        match after {
            [b'\\', byte @ (b'\'' | b'!'), b'\'', tail @ ..] => {
                word.push(*byte);
                rest = tail;
            }
            _ => return Some((word, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use refdb::ErrorKind;

    fn read(pairs: &[(&str, &str)], overrides: &[&str]) -> Result<Vec<String>> {
        let environment = Environment::from_pairs(pairs.iter().copied());
        let overrides: Vec<_> = overrides
            .iter()
            .map(|argument| Override::from_argument(argument.as_bytes()))
            .collect();
        let variables = variables(&environment, &overrides)?;
        let show = |at| match variables.value(at) {
            Some(value) => format!("{}={value}", variables.key(at)),
            None => variables.key(at).to_string(),
        };
        Ok((0..variables.len()).map(show).collect())
    }

    #[test]
    fn all_sources_in_their_order() {
        let environment = [
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "A.b"),
            ("GIT_CONFIG_VALUE_0", "0"),
            (
                "GIT_CONFIG_PARAMETERS",
                "'a.b=c' 'a.d'='it'\\''s' 'a.e'= 'a.f'",
            ),
        ];
        assert_eq!(
            read(&environment, &["x.Y=1=2", "x.z"]).unwrap(),
            ["a.b=0", "a.b=c", "a.d=it's", "a.e", "a.f", "x.y=1=2", "x.z"]
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for pairs in [
            [("GIT_CONFIG_COUNT", "x")],
            [("GIT_CONFIG_COUNT", "-1")],
            [("GIT_CONFIG_COUNT", "1")],
            [("GIT_CONFIG_PARAMETERS", "foo")],
            [("GIT_CONFIG_PARAMETERS", "'foo")],
            [("GIT_CONFIG_PARAMETERS", "'a.b=c'x")],
        ] {
            let error = read(&pairs, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
        }
        assert!(read(&[], &["nosection"]).is_err());
    }
}
