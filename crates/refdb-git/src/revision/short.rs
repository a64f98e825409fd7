//! Abbreviated ids, and the names that `git describe` gives.

use bstr::ByteSlice;
use refdb::name::{FormatOptions, is_well_formed};
use refdb::{ObjectFormat, ObjectId, Result};

use super::{Hint, Note, Revisions, shown};
use crate::objects::ABBREVIATION_MIN;

impl Revisions<'_> {
    /// Returns the one object whose id begins with these digits; says so when there are several.
    pub(super) fn abbreviated(&self, hex: &[u8], hint: Hint) -> Result<Option<ObjectId>> {
        let Some(hex) = self.digits(hex) else {
            return Ok(None);
        };
        let candidates = self.odb.abbreviations()?.with_prefix(hex)?;
        if candidates.len() <= 1 {
            return Ok(candidates.first().copied());
        }
        let hint = match hint {
            Hint::Any => self.configured_hint(),
            hint => hint,
        };
        let mut admitted = Vec::new();
        for &candidate in &candidates {
            if hint.admits(self, candidate)? {
                admitted.push(candidate);
            }
        }
        if let [only] = admitted.as_slice() {
            return Ok(Some(*only));
        }
        let hex = hex.to_ascii_lowercase();
        self.complain(format!("short object ID {} is ambiguous", shown(&hex)));
        let listed = if admitted.is_empty() {
            candidates
        } else {
            admitted
        };
        self.list_candidates(&listed)?;
        Ok(None)
    }

    /// Returns whether a name could also be an abbreviated id, and one object has it.
    pub(super) fn is_abbreviation(&self, name: &[u8]) -> Result<bool> {
        let Some(hex) = self.digits(name) else {
            return Ok(false);
        };
        Ok(self.odb.abbreviations()?.with_prefix(hex)?.len() == 1)
    }

    /// Returns the digits of an abbreviated id. Git lets zeros follow where all digits are there, up
    /// to the length of the longest ids of any format.
    fn digits<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let lengths = ABBREVIATION_MIN..=ObjectFormat::Sha256.hex_len();
        let all = self.odb.format().hex_len();
        let (digits, more) = text.split_at_checked(all).unwrap_or((text, b""));
        let is_abbreviated = lengths.contains(&text.len())
            && digits.iter().all(u8::is_ascii_hexdigit)
            && more.iter().all(|&byte| byte == b'0');
        is_abbreviated.then_some(digits)
    }

    /// Returns what `core.disambiguate` says.
    fn configured_hint(&self) -> Hint {
        let value = self.repository.config().string("core.disambiguate");
        match value.map(|value| value.as_bytes()) {
            Some(b"commit") => Hint::Commit,
            Some(b"committish") => Hint::Committish,
            Some(b"tree") => Hint::Tree,
            Some(b"treeish") => Hint::Treeish,
            Some(b"blob") => Hint::Blob,
            _ => Hint::Any,
        }
    }

    fn list_candidates(&self, candidates: &[ObjectId]) -> Result<()> {
        let mut lines = vec!["The candidates are:".to_owned()];
        let abbreviations = self.odb.abbreviations()?;
        for &candidate in candidates {
            let len = abbreviations.len(candidate, self.repository.abbreviation()?)?;
            let hex = candidate.to_string();
            let hex = hex.get(..len).unwrap_or(&hex);
            if let Some(kind) = self.kind(candidate)? {
                lines.push(format!("  {hex} {}", kind.as_str()));
            }
        }
        let hints = lines.into_iter().map(Note::Hint);
        self.notes.borrow_mut().extend(hints);
        Ok(())
    }
}

/// Returns the digits of `<name>-<count>-g<digits>`.
pub(super) fn described(name: &[u8]) -> Option<&[u8]> {
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    let (front, hex) = name.split_at(name.len() - digits);
    let front = front.strip_suffix(b"-g")?;
    let (tag, count) = front.rsplit_once_str("-")?;
    let is_count = !count.is_empty() && count.iter().all(u8::is_ascii_digit);
    (is_count && is_well_formed(tag, FormatOptions::ONE_LEVEL)).then_some(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_describe_gives() {
        assert_eq!(described(b"v1.0-3-gabcdef"), Some(&b"abcdef"[..]));
        assert_eq!(described(b"a-b-12-g0123"), Some(&b"0123"[..]));
        assert_eq!(described(b"v1.0-gabcdef"), None);
        assert_eq!(described(b"v1.0-x-gabcdef"), None);
        assert_eq!(described(b"a..b-1-gabcdef"), None);
        assert_eq!(described(b"abcdef"), None);
    }
}
