//! Random numbers of a seed, and mutations of bytes.

/// SplitMix64.
pub struct Rng(u64);

impl Rng {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next_u64() % limit.max(1) as u64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next_u64().to_le_bytes()[3]
    }

    /// Changes bytes in a few places: single bits, bytes with a meaning, parts cut, doubled, moved
    /// from another input.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        const TELLING: [u8; 16] = [
            0, 1, 0x7f, 0x80, 0xff, b'\n', b'/', b'.', b' ', b'\t', b'^', b'#', b'r', b'i', b'g',
            b':',
        ];
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            let to = (at + 1 + self.below(16)).min(bytes.len());
            match self.below(9) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = self.byte(),
                2 if !bytes.is_empty() => bytes[at] = TELLING[self.below(TELLING.len())],
                3 => bytes.insert(at, TELLING[self.below(TELLING.len())]),
                4 if !bytes.is_empty() => drop(bytes.drain(at..to)),
                5 if !bytes.is_empty() => {
                    let part = bytes[at..to].to_vec();
                    let place = self.below(bytes.len());
                    bytes.splice(place..place, part);
                }
                6 if !other.is_empty() => {
                    let from = self.below(other.len());
                    let end = (from + 1 + self.below(64)).min(other.len());
                    let place = self.below(bytes.len());
                    let over = (place + end - from).min(bytes.len());
                    let over = if self.below(2) == 0 { place } else { over };
                    bytes.splice(place..over, other[from..end].iter().copied());
                }
                7 => bytes.truncate(at),
                8 => {
                    let number = self.next_u64() >> self.below(64);
                    let number = number.to_be_bytes();
                    let place = self.below(bytes.len());
                    let wide = [1, 2, 3, 4, 8][self.below(5)];
                    let over = (place + wide).min(bytes.len());
                    bytes.splice(place..over, number[8 - wide..].iter().copied());
                }
                _ => {}
            }
        }
    }
}
