//! Values as string literals of other languages.

/// For which language values are quoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quoting {
    /// Values stand as they are.
    #[default]
    None,
    /// For a POSIX shell.
    Shell,
    /// For Perl.
    Perl,
    /// For Python.
    Python,
    /// For Tcl.
    Tcl,
}

impl Quoting {
    /// Returns whether a value may have zero bytes; what stands behind one is cut off otherwise.
    pub(super) fn takes_zero_bytes(self) -> bool {
        matches!(self, Quoting::None | Quoting::Perl)
    }

    /// Appends `value` to `out` as a literal.
    pub(super) fn push(self, value: &[u8], out: &mut Vec<u8>) {
        let mark = match self {
            Quoting::None => return out.extend_from_slice(value),
            Quoting::Shell | Quoting::Perl | Quoting::Python => b'\'',
            Quoting::Tcl => b'"',
        };
        out.push(mark);
        let end = match self.takes_zero_bytes() {
            true => None,
            false => value.iter().position(|&byte| byte == 0),
        };
        for &byte in value.get(..end.unwrap_or(value.len())).unwrap_or(value) {
            match (self, byte) {
                (Quoting::Shell, b'\'' | b'!') => {
                    out.extend_from_slice(&[b'\'', b'\\', byte, b'\''])
                }
                (Quoting::Perl | Quoting::Python, b'\'' | b'\\') => {
                    out.extend_from_slice(&[b'\\', byte]);
                }
                (Quoting::Python, b'\n') => out.extend_from_slice(b"\\n"),
                (Quoting::Tcl, _) => push_tcl(byte, out),
                _ => out.push(byte),
            }
        }
        out.push(mark);
    }
}

fn push_tcl(byte: u8, out: &mut Vec<u8>) {
    let escaped = match byte {
        b'[' | b']' | b'{' | b'}' | b'$' | b'\\' | b'"' => byte,
        b'\x0c' => b'f',
        b'\r' => b'r',
        b'\n' => b'n',
        b'\t' => b't',
        b'\x0b' => b'v',
        _ => return out.push(byte),
    };
    out.extend_from_slice(&[b'\\', escaped]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_has_its_own_escapes() {
        let quote = |quoting: Quoting, value: &str| {
            let mut out = Vec::new();
            quoting.push(value.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(quote(Quoting::Shell, "it's!"), r"'it'\''s'\!''");
        assert_eq!(quote(Quoting::Perl, r"a\'b"), r"'a\\\'b'");
        assert_eq!(quote(Quoting::Python, "a\n'"), r"'a\n\''");
        assert_eq!(quote(Quoting::Tcl, "${x}\n\""), r#""\$\{x\}\n\"""#);
    }
}
