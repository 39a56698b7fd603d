//! Who is next: numbers without order, and the same ones in every run.

/// A fixed row of such numbers (Steele, Lea, Flood: splitmix64).
#[derive(Clone, Copy, Debug, Default)]
pub struct Draw(u64);

impl Draw {
    /// The next number of the row.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next one, below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }
}
