//! A small random generator whose whole state is one seed.
//!
//! Its sequence is part of the tests: a seed printed by a failing test must give the same case on
//! every machine and in every later version.
//!
//! ```
//! use refdb_testkit::rng::Rng;
//!
//! let (mut a, mut b) = (Rng::new(7), Rng::new(7));
//! assert_eq!(a.below(1000), b.below(1000));
//! ```

/// The xorshift64* generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts the sequence of `seed`. Neighbouring seeds give unrelated sequences.
    pub fn new(seed: u64) -> Rng {
        // One step of splitmix64: spreads the seed over all bits.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The state must not be zero.
        Rng((z ^ (z >> 31)) | 1)
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number from 0 up to but without `limit`.
    ///
    /// # Panics
    ///
    /// If `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("a usize has at most 64 bits");
        // The upper bits are the good ones. The bias is below 2^-32 for the limits of tests.
        usize::try_from((self.next_u64() >> 16) % limit).expect("smaller than a usize")
    }

    /// Returns true in `percent` of 100 cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one element.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Puts elements into another order.
    pub fn shuffle<T>(&mut self, elements: &mut [T]) {
        for index in (1..elements.len()).rev() {
            elements.swap(index, self.below(index + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_stays_the_same() {
        let mut rng = Rng::new(1);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            first,
            [
                5424204624148110235,
                15555979849632202484,
                6851360858507811590
            ]
        );
    }

    #[test]
    fn every_value_below_the_limit_comes_up() {
        let mut rng = Rng::new(0);
        let mut seen = [false; 7];
        for _ in 0..200 {
            seen[rng.below(7)] = true;
        }
        assert_eq!(seen, [true; 7]);
    }
}
