//! Finding a byte, the same way on every processor of a kind.
//!
//! What the library calls asks the processor first what else it can do. That takes a virtual machine 40 microseconds,
//! a tenth of a process that changes one ref, and what is gained by it on lines of some dozen bytes is not measurable.
//!
//! ```
//! use refdb_system::find::{byte, last_byte};
//! assert_eq!(byte(b'/', b"refs/heads/main"), Some(4));
//! assert_eq!(last_byte(b'/', b"refs/heads/main"), Some(10));
//! ```

#[cfg(not(target_arch = "x86_64"))]
use memchr::arch::all::memchr::One;
#[cfg(target_arch = "x86_64")]
use memchr::arch::x86_64::sse2::memchr::One;

/// Returns where a byte comes first.
#[inline]
pub fn byte(wanted: u8, content: &[u8]) -> Option<usize> {
    searcher(wanted)?.find(content)
}

/// Returns where a byte comes last.
#[inline]
pub fn last_byte(wanted: u8, content: &[u8]) -> Option<usize> {
    searcher(wanted)?.rfind(content)
}

/// Returns what searches; every processor of the kind has it.
#[inline]
fn searcher(wanted: u8) -> Option<One> {
    #[cfg(target_arch = "x86_64")]
    return One::new(wanted);
    #[cfg(not(target_arch = "x86_64"))]
    Some(One::new(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_found_wherever_it_is() {
        for len in 0..100 {
            for at in 0..len {
                let mut content = vec![b'a'; len];
                content[at] = b'\n';
                let last = content.len() - 1 - at;
                assert_eq!(byte(b'\n', &content), Some(at));
                content.reverse();
                assert_eq!(last_byte(b'\n', &content), Some(last));
                assert_eq!(byte(0, &content), None);
                assert_eq!(last_byte(0, &content), None);
            }
        }
    }
}
