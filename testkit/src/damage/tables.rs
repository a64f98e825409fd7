//! Damage to one table: header, footer, and each section's blocks, restarts and records.

use std::ops::Range;
use std::path::PathBuf;

use reftable::{BlockInfo, BlockKind, Table};

use super::corpus::{Expected, Kind, Subject};
use crate::forge;
use crate::format::ObjectFormat;
use crate::rng::Rng;

/// The sections, with the kind of their blocks and, for indexes, of the blocks they are about.
const SECTIONS: [(&str, BlockKind, Option<BlockKind>); 6] = [
    ("refs", BlockKind::Ref, None),
    ("ref index", BlockKind::Index, Some(BlockKind::Ref)),
    ("objects", BlockKind::Object, None),
    ("object index", BlockKind::Index, Some(BlockKind::Object)),
    ("logs", BlockKind::Log, None),
    ("log index", BlockKind::Index, Some(BlockKind::Log)),
];

/// An update index that no table here has, and behind which there are others.
const FAR: u64 = (1 << 48) - 1;

/// A table that is to be damaged.
pub(super) struct Victim {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    header_len: usize,
}

impl Victim {
    /// Takes the oldest table of the stack, which has every section.
    pub(super) fn oldest(subject: &Subject) -> Victim {
        let list = subject.original(&subject.path("reftable/tables.list"));
        let list = String::from_utf8(list).expect("a list is text");
        let name = list.lines().next().expect("there are tables");
        let path = subject.path("reftable").join(name);
        let header_len = match subject.format().objects {
            ObjectFormat::Sha1 => 24,
            ObjectFormat::Sha256 => 28,
        };
        Victim {
            bytes: subject.original(&path),
            path,
            header_len,
        }
    }

    fn footer(&self) -> usize {
        self.bytes.len() - self.header_len - 44
    }

    /// Makes the footer's checksum right again.
    fn reseal(&mut self) {
        let (footer, end) = (self.footer(), self.bytes.len() - 4);
        let sum = crc32(&self.bytes[footer..end]);
        self.bytes[end..].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns the blocks of a section.
    pub(super) fn blocks(&self, section: usize) -> Vec<BlockInfo> {
        let (_, kind, about) = SECTIONS[section];
        let table = Table::open(self.bytes.clone()).expect("the table is whole");
        let mut data = BlockKind::Ref;
        let mut found = Vec::new();
        for block in table.blocks() {
            let block = block.expect("the table is whole");
            if block.kind != BlockKind::Index {
                data = block.kind;
            }
            if block.kind == kind && about.is_none_or(|about| about == data) {
                found.push(block);
            }
        }
        assert!(!found.is_empty(), "no blocks of {}", SECTIONS[section].0);
        found
    }

    /// Returns where a block's type byte is.
    fn head(&self, block: &BlockInfo) -> usize {
        let start = size(block.offset);
        if start == 0 { self.header_len } else { start }
    }

    fn range(&self, block: &BlockInfo) -> Range<usize> {
        let start = size(block.offset);
        start..start + size(block.len_on_disk)
    }

    fn damage(self, subject: &Subject, place: Range<usize>) -> Expected {
        subject.write(&self.path, &self.bytes);
        Expected::at(self.path, place)
    }
}

/// Returns the kinds of damage to a table.
pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = headers();
    kinds.extend(footers());
    kinds.extend(lengths());
    for section in 0..SECTIONS.len() {
        kinds.extend(of_section(section));
    }
    kinds
}

fn kind(
    name: impl Into<String>,
    apply: impl Fn(&Subject, &mut Rng, Victim) -> Expected + 'static,
) -> Kind {
    Kind {
        name: name.into(),
        apply: Box::new(move |subject, rng| apply(subject, rng, Victim::oldest(subject))),
    }
}

fn headers() -> Vec<Kind> {
    let fields = [
        ("magic", 0..4),
        ("version", 4..5),
        ("block size", 5..8),
        ("least update index", 8..16),
        ("greatest update index", 16..24),
    ];
    let flips = fields.into_iter().map(|(name, field)| {
        kind(
            format!("header: {name}"),
            move |subject, rng, mut victim| {
                let at = field.start + rng.below(field.len());
                victim.bytes[at] ^= 1 << rng.below(7);
                victim.damage(subject, 0..24)
            },
        )
    });
    let mut kinds: Vec<Kind> = flips.collect();
    kinds.push(kind(
        "header: update indices and copy",
        |subject, _, mut victim| {
            let copy = victim.footer();
            victim.bytes[15] ^= 64;
            victim.bytes[copy + 15] ^= 64;
            victim.reseal();
            victim.damage(subject, 0..24)
        },
    ));
    kinds.push(kind(
        "header: update indices and copy, far from those of the records",
        |subject, _, mut victim| {
            victim.bytes = forge::with_indices(victim.bytes, FAR, FAR);
            victim.damage(subject, 0..24)
        },
    ));
    kinds
}

fn footers() -> Vec<Kind> {
    let mut kinds = vec![
        kind(
            "footer: zeros, as after a power failure",
            |subject, _, mut victim| {
                let footer = victim.footer();
                victim.bytes[footer..].fill(0);
                let end = victim.bytes.len();
                victim.damage(subject, footer..end)
            },
        ),
        kind("footer: checksum", |subject, rng, mut victim| {
            let (footer, end) = (victim.footer(), victim.bytes.len());
            victim.bytes[end - 1 - rng.below(4)] ^= 1 << rng.below(8);
            victim.damage(subject, footer..end)
        }),
        kind("footer: missing", |subject, _, mut victim| {
            let footer = victim.footer();
            victim.bytes.truncate(footer);
            victim.damage(subject, 0..footer)
        }),
    ];
    let fields = ["ref index", "objects", "object index", "logs", "log index"];
    for (number, name) in fields.into_iter().enumerate() {
        let name = format!("footer: place of {name}, checksum right");
        kinds.push(kind(name, move |subject, _, mut victim| {
            let at = victim.footer() + victim.header_len + number * 8;
            victim.bytes[at..at + 8].fill(0);
            victim.reseal();
            let end = victim.bytes.len();
            victim.damage(subject, 0..end)
        }));
    }
    kinds
}

fn lengths() -> Vec<Kind> {
    let mut kinds = vec![
        kind("table: no bytes", |subject, _, mut victim| {
            victim.bytes.clear();
            victim.damage(subject, 0..1)
        }),
        kind("table: nothing but zeros", |subject, _, mut victim| {
            victim.bytes.fill(0);
            victim.damage(subject, 0..1)
        }),
        kind(
            "table: bytes behind the footer",
            |subject, _, mut victim| {
                let end = victim.bytes.len();
                victim.bytes.extend_from_slice(b"more");
                victim.damage(subject, 0..end + 4)
            },
        ),
        kind(
            "table: cut inside the footer",
            |subject, rng, mut victim| {
                let end = victim.bytes.len() - 1 - rng.below(30);
                victim.bytes.truncate(end);
                victim.damage(subject, 0..end)
            },
        ),
    ];
    for (section, (name, ..)) in SECTIONS.into_iter().enumerate() {
        let name = format!("table: cut inside {name}");
        kinds.push(kind(name, move |subject, rng, mut victim| {
            let blocks = victim.blocks(section);
            let block = blocks[rng.below(blocks.len())];
            let end = victim.range(&block).start + size(block.len_on_disk) / 2;
            victim.bytes.truncate(end);
            victim.damage(subject, 0..end)
        }));
    }
    kinds
}

fn of_section(section: usize) -> Vec<Kind> {
    let (name, block_kind, _) = SECTIONS[section];
    let of_block = |what: &str, change: fn(&mut Victim, &BlockInfo, &mut Rng)| {
        kind(
            format!("{name}: {what}"),
            move |subject, rng, mut victim| {
                let blocks = victim.blocks(section);
                let block = blocks[rng.below(blocks.len())];
                change(&mut victim, &block, rng);
                let place = victim.range(&block);
                victim.damage(subject, place)
            },
        )
    };
    let mut kinds = vec![
        of_block("type of a block", |victim, block, _| {
            let head = victim.head(block);
            victim.bytes[head] = b'x';
        }),
        of_block("length of a block", |victim, block, _| {
            let head = victim.head(block);
            victim.bytes[head + 1] = 0x7f;
        }),
        of_block("zeros in the place of a block", |victim, block, _| {
            let range = victim.head(block)..victim.range(block).end;
            victim.bytes[range].fill(0);
        }),
    ];
    if block_kind == BlockKind::Log {
        kinds.push(of_block("compressed bytes", |victim, block, rng| {
            let range = victim.range(block);
            let at = range.start + range.len() / 2 + rng.below(range.len() / 3);
            victim.bytes[at] ^= 0x55;
        }));
        return kinds;
    }
    kinds.push(of_block("number of restarts", |victim, block, _| {
        let end = size(block.offset) + size(block.len);
        victim.bytes[end - 2] ^= 0x40;
    }));
    kinds.push(of_block("place of a restart", |victim, block, rng| {
        let end = size(block.offset) + size(block.len) - 2;
        let restart = rng.below(size(block.restarts));
        victim.bytes[end - 3 * restart - 1] ^= 1;
    }));
    kinds.push(of_block("order of keys", |victim, block, _| {
        // The first byte of the second record's suffix, behind its two lengths.
        let head = victim.head(block) + 4;
        let first = (usize::from(victim.bytes[head + 1]) >> 3).max(1);
        let suffix = head + 2;
        victim.bytes[suffix..suffix + first].fill(0xff);
    }));
    kinds
}

fn size(number: u64) -> usize {
    usize::try_from(number).expect("a table fits into memory")
}

/// The checksum of zlib and gzip, bit by bit.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(!0, step)
}
