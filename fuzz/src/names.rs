//! The rules for names: what they promise each other.

use refdb::name::{FormatOptions, is_safe, is_well_formed, normalize};
use refdb::{RefName, RefNameBuf};

pub(crate) fn names(bytes: &[u8]) {
    let once = normalize(bytes);
    assert_eq!(
        normalize(&once),
        once,
        "normalizing twice is normalizing once"
    );
    let full = is_well_formed(bytes, FormatOptions::FULL);
    let one_level = is_well_formed(bytes, FormatOptions::ONE_LEVEL);
    assert!(
        one_level || !full,
        "what is allowed with two levels is with one"
    );
    let pattern = FormatOptions {
        refspec_pattern: true,
        ..FormatOptions::FULL
    };
    assert!(is_well_formed(bytes, pattern) || !full);
    if full {
        assert_eq!(once, bytes, "a good name is normal");
        assert!(
            !bytes.starts_with(b"refs/") || is_safe(bytes),
            "a good name is safe"
        );
        for part in bytes.split(|&byte| byte == b'/') {
            assert!(!part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock"));
        }
        assert!(
            !bytes
                .iter()
                .any(|byte| byte.is_ascii_control() || b" ~^:?*[\\".contains(byte))
        );
        assert!(!bytes.windows(2).any(|pair| pair == b".." || pair == b"@{"));
    }
    if is_safe(bytes) {
        assert!(!bytes.contains(&0));
        assert!(
            !bytes
                .split(|&byte| byte == b'/')
                .any(|part| part == b".." || part.is_empty())
        );
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        match RefName::new(text) {
            Ok(name) => assert_eq!(name.as_bytes(), bytes),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert_eq!(RefNameBuf::new(text).is_ok(), RefName::new(text).is_ok());
        let is_lax = is_safe(bytes) || RefName::new(text).is_ok();
        assert_eq!(RefName::lax(text).is_ok(), is_lax);
    }
}
